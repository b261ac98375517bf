# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists what a command changed: one walk over its upper folder, which never follows a link."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

from ..files import dirfd
from ..files.dirfd import FOLDER
from ..files.ignore import IgnoredPaths
from ..files.overlayfs import (
    find_in_open_layers,
    names_in,
    read_merged,
    same_bytes,
)
from ..files.whiteouts import is_opaque, is_whiteout
from ..paths import FolderValues, is_inside, keep_own_rights
from .change import Change, ChangeSet, Flag, Kind, Skipped, Type
from .held.git.hooks import same_hook_settings
from .held.git.judge import GitAnswer, GitJudge
from .held.git.objects import IndexPack
from .held.git.targets import GitTargets, NestedRepositories
from .held.git.view import View
from .held.mass_deletion import hold_mass_deletion
from .held.risky import (
    CHECKOUT,
    NamesAround,
    builds_this_program,
    is_git_name,
    is_obeyed,
    is_plain_folder,
    is_plain_name,
    risk_of,
)
from .reasons import Note
from .roots import has_repository, is_git_folder

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class ClosedFolders:
    """Makes folders of an upper folder readable for us, and notes their modes on disk: they stay
    readable, and a killed scan is repeated."""

    def __init__(self, upper: str) -> None:
        self._note = Path(f"{upper}.modes")
        self._modes: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in self._note.read_text(encoding="ascii").splitlines():
                with contextlib.suppress(ValueError):  # cut off before the folder was opened
                    path, mode = json.loads(line)
                    self._modes.setdefault(path, mode)

    def mode(self, path: str, found: os.stat_result) -> int:
        """Return the mode that the command left."""
        return self._modes.get(path, stat.S_IMODE(found.st_mode))

    def open(self, name: str, around: int | None, path: str, found: os.stat_result) -> int:
        if found.st_mode & 0o700 != 0o700:
            self._modes.setdefault(path, stat.S_IMODE(found.st_mode))
            descriptor = os.open(self._note, _FLAGS, 0o600)
            try:
                os.write(descriptor, f"{json.dumps([path, self._modes[path]])}\n".encode())
            finally:
                os.close(descriptor)
            dirfd.set_mode(name, around, stat.S_IMODE(found.st_mode) | 0o700)
        return os.open(name, FOLDER, dir_fd=around)


_CLOSED = "a folder that you may not read"
_LENT = stat.S_ISUID | stat.S_ISGID
# Of a file that can be executed, or has rights that it must not have.
_SPECIAL = _LENT | 0o111
_MADE = (Kind.ADDED, Kind.REPLACED)

# A touched file that is larger counts as changed: comparing it would take minutes.
_MOST_COMPARED = 1 << 30
# Four times as long as a path that programs can open. Each folder on the way has a change with its
# whole path, so a longer way would take more memory than anybody has use for.
_LONGEST = 4 * 4096
# Descriptors that each level takes, and that are in use elsewhere.
_TAKEN_BY_LEVEL, _IN_USE = 4, 256


def scan(root: str, view: View, index_pack: IndexPack = lambda _pack, _width: None) -> ChangeSet:
    """Return what the command changed in a root, one of the view's.

    Parents come before their content; a deleted folder comes after its content.
    """
    dirfd.allow_many_descriptors()
    walk = _Walk(root, view)
    try:
        walk.run()
    finally:
        walk.close()
    walk.judge_git(GitJudge(root, view, index_pack))
    hold_mass_deletion(root, walk.changes)
    return ChangeSet(tuple(walk.changes), tuple(walk.skipped), walk.notes)


class _Level:
    """A folder that the walk is in: the one in upper, and those that it covers. Where upper has
    none (-1), everything in the covered ones is deleted."""

    __slots__ = (
        "checked", "git", "hides", "is_ordinary", "lowers", "names", "prefix", "then", "upper"
    )  # fmt: skip

    def __init__(self, prefix: str, git: str | None, upper: int = -1) -> None:
        self.prefix = prefix
        # The path of the git folder that it is in.
        self.git = git
        self.upper = upper
        self.lowers: list[int] = []
        self.names: Iterator[str] = iter(())
        # Adds the change that comes after those in here.
        self.then: Callable[[], None] | None = None
        # Whether it hides the folders below it completely.
        self.hides = False
        # Whether files in it are special only by their names, and for how many repositories that
        # was found out.
        self.is_ordinary = False
        self.checked = -1

    def leave(self) -> None:
        for descriptor in (self.upper, *self.lowers):
            if descriptor >= 0:
                os.close(descriptor)


class _Walk:
    def __init__(self, root: str, view: View) -> None:
        self._root = root
        self._layers = view.roots[root]
        self._closed = ClosedFolders(self._layers[0])
        self.changes: list[Change] = []
        self.skipped: list[Skipped] = []
        # Why changes are held, by path.
        self.notes: dict[str, Note] = {}
        # The numbers of the changes in git's folders, with the folder of each; and of files that
        # git runs.
        self._git: list[tuple[int, str]] = []
        self._run_by_git: list[int] = []
        self._levels: list[_Level] = []
        # Whether the checkout that this program runs from is in the root.
        self._is_own = is_inside(CHECKOUT, root)
        # Whether no part of a folder's path is special.
        self._plain_folders = FolderValues(
            top=True,
            find=lambda folder, around: around and is_plain_folder(folder.rpartition("/")[2]),
        )
        self._git_targets = GitTargets.of(root)
        self._repositories = 0
        self._nested_repositories = NestedRepositories(root)
        self._around = NamesAround(self._layers)
        # By the ignore files of the project, not by those that the command wrote.
        self._ignored = IgnoredPaths(root) if has_repository(root) else None

    def run(self) -> None:
        upper, *lowers, project = self._layers
        # A command cannot take away the user's own rights to the project's folder.
        with contextlib.suppress(FileNotFoundError):
            keep_own_rights(upper, os.stat(self._root).st_mode)
        git = "" if is_git_folder(self._root) else None
        level = _Level("", git, self._closed.open(upper, None, "", os.stat(upper)))
        self._levels.append(level)
        top, below = level.upper, level.lowers
        for lower in lowers:
            below.append(os.open(lower, FOLDER))
        below.append(dirfd.open_root(project))
        new = self._closed.mode("", os.fstat(top)) & 0o1777
        old = _mode(os.fstat(below[0]))
        if new != old & 0o1777:
            self._add(".", Kind.MODIFIED, Type.FOLDER, mode=new, old_type=Type.FOLDER, old_mode=old)
        level.names = iter(sorted(os.listdir(top)))
        while self._levels:
            level = self._levels[-1]
            name = next(level.names, None)
            if name is None:
                self._levels.pop().leave()
                if level.then:
                    level.then()
            else:
                self._look(level, name)

    def close(self) -> None:
        while self._levels:
            self._levels.pop().leave()

    def _look(self, level: _Level, name: str) -> None:
        path = level.prefix + name
        old, covered = find_in_open_layers(level.lowers, name)
        new = None
        if level.upper >= 0:
            new = os.stat(name, dir_fd=level.upper, follow_symlinks=False)
        if new is None or is_whiteout(new):
            if old is not None:
                self._delete(level, path, name, old, covered)
        elif stat.S_ISDIR(new.st_mode):
            self._folder(level, path, name, new, old, covered)
        elif stat.S_ISREG(new.st_mode) or stat.S_ISLNK(new.st_mode):
            self._file(level, path, name, new, old, covered)
        else:
            self.skipped.append(Skipped(self._root, path, _kind_of_file(new.st_mode)))

    def _folder(
        self,
        level: _Level,
        path: str,
        name: str,
        new: os.stat_result,
        old: os.stat_result | None,
        covered: list[int],
    ) -> None:
        if is_too_deep(path):
            self._skip_deep(path)
            return
        mode = self._closed.mode(path, new) & 0o1777
        flags = (Flag.STRIPPED,) if new.st_mode & _LENT else ()
        lowers: list[int] = []
        if old is not None and stat.S_ISDIR(old.st_mode):
            lowers = self._open_below(name, covered)
            if not lowers:
                self._skip_closed(level, path, name, new, old)
                return
        inside = self._inside(level, path, name)
        inside.lowers = lowers
        self._levels.append(inside)
        if old is None:
            self._add(path, Kind.ADDED, Type.FOLDER, mode, flags=flags, git=level.git)
        else:
            old_type, was = type_of(old), _mode(old)
            kind = Kind.MODIFIED if old_type is Type.FOLDER else Kind.REPLACED
            # Overlayfs does not copy the setgid bit to the upper folder.
            if kind is Kind.REPLACED or mode != was & 0o1777:
                git = self._git_folder(level, name)
                self._add(path, kind, Type.FOLDER, mode, None, flags, old_type, was, git=git)
        upper = inside.upper = self._closed.open(name, level.upper, path, new)
        names = sorted(os.listdir(upper))
        if lowers or ".git" in names:
            # Of a worktree that the command adds, too, the hooks are known.
            pointer = read_merged(self._layers, f"{path}/.git") if ".git" in names else None
            self._git_targets.add_repository(f"{self._root}/{path}", pointer)
            self._repositories += 1
        # The kernel marks only the outermost new folder as opaque.
        inside.hides = level.hides or is_opaque(upper)
        inside.names = iter(names)
        if lowers and inside.hides:
            hidden = _Level(f"{path}/", inside.git)
            self._levels.append(hidden)
            hidden.lowers += map(os.dup, lowers)
            hidden.names = iter(sorted(set(names_in(lowers)) - set(names)))

    def _inside(self, level: _Level, path: str, name: str) -> _Level:
        git = level.git
        if git is None and (is_git_name(name) or is_git_folder(f"{self._root}/{path}")):
            git = path
        return _Level(f"{path}/", git)

    def _file(
        self,
        level: _Level,
        path: str,
        name: str,
        new: os.stat_result,
        old: os.stat_result | None,
        covered: list[int],
    ) -> None:
        kind, type_ = Kind.ADDED, type_of(new)
        mode = _mode(new) if type_ is Type.FILE else None
        target = os.readlink(name, dir_fd=level.upper) if type_ is Type.LINK else None
        old_type = old_mode = None
        if old is not None:
            old_type, old_mode = _old_type(old), _mode(old)
            kind = Kind.MODIFIED if old_type is type_ else Kind.REPLACED
            if old_type is type_ and _is_same(level.upper, covered[0], name, new, old):
                return
        modes = (mode or 0) | (old_mode or 0)
        if (
            type_ is Type.FILE
            and old_type in (None, Type.FILE)
            and not modes & _SPECIAL
            and self._is_ordinary(level, name)
        ):
            # Nearly all are like this, and 20,000 take half as long without the rest.
            self._append(path, kind, type_, mode, None, (), old_type, old_mode)
            return
        flags = []
        if type_ is Type.FILE:
            if new.st_mode & _LENT:
                flags.append(Flag.STRIPPED)
            was_executable = old is not None and stat.S_ISREG(old.st_mode) and old.st_mode & 0o111
            if new.st_mode & 0o111 and not was_executable:
                flags.append(Flag.EXECUTABLE)
        elif target is not None and _leads_outside(self._root, path, target):
            flags.append(Flag.OUTSIDE)
        add = partial(
            self._add, path, kind, type_, mode, target, flags, old_type, old_mode,
            git=self._git_folder(level, name),
            is_git_target=name == "package.json" and self._changes_hooks(path),
        )  # fmt: skip
        if old_type is Type.FOLDER:
            self._delete_inside(level, path, name, covered, add)
        else:
            add()

    def _git_folder(self, level: _Level, name: str) -> str | None:
        """Return the git folder that a name is in, or "" if it is in the place of one."""
        return level.git if level.git is not None else ("" if is_git_name(name) else None)

    def _is_ordinary(self, level: _Level, name: str) -> bool:
        """Return whether nothing about a file that cannot be executed needs a second look."""
        if level.checked != self._repositories:
            level.checked = self._repositories
            level.is_ordinary = (
                not self._is_own
                and level.git is None
                and self._plain_folders[level.prefix[:-1]]
                and not self._git_targets.is_near(level.prefix)
            )
        return level.is_ordinary and is_plain_name(name)

    def _changes_hooks(self, path: str) -> bool:
        """Return whether a package.json says something else to the managers of git's hooks."""
        if not self._git_targets.reads_manifests:
            return False
        new, old = read_merged(self._layers, path), read_merged((self._root,), path)
        return new is None or not same_hook_settings(old or b"", new)

    def _delete(
        self, level: _Level, path: str, name: str, old: os.stat_result, covered: list[int]
    ) -> None:
        type_ = type_of(old)
        if (
            type_ is Type.FILE
            and stat.S_ISREG(old.st_mode)
            and not old.st_mode & _SPECIAL
            and self._is_ordinary(level, name)
        ):
            self._append(path, Kind.DELETED, type_, None, None, (), type_, _mode(old))
            return
        add = partial(
            self._add, path, Kind.DELETED, type_, old_type=_old_type(old), old_mode=_mode(old),
            git=self._git_folder(level, name),
        )  # fmt: skip
        if type_ is not Type.FOLDER:
            add()
        elif is_too_deep(path):
            # The folders above it are skipped later, because they are not empty.
            self._skip_deep(path)
        else:
            self._delete_inside(level, path, name, covered, add)

    def _delete_inside(
        self, around: _Level, path: str, name: str, covered: list[int], then: Callable[[], None]
    ) -> None:
        """Enter a folder, to add the deletion of everything in it; `then` adds what comes after."""
        lowers = self._open_below(name, covered)
        if not lowers:
            self.skipped.append(Skipped(self._root, path, _CLOSED))
        else:
            level = self._inside(around, path, name)
            level.lowers = lowers
            level.names = iter(names_in(lowers))
            level.then = then
            self._levels.append(level)

    def _skip_closed(
        self, level: _Level, path: str, name: str, new: os.stat_result, old: os.stat_result
    ) -> None:
        """Leave out what the command wrote into a folder that we may not read. Without that, its
        mode may change."""
        mode, was = self._closed.mode(path, new) & 0o1777, _mode(old)
        descriptor = self._closed.open(name, level.upper, path, new)
        has_content = level.hides or is_opaque(descriptor) or bool(os.listdir(descriptor))
        os.close(descriptor)
        if has_content:
            self.skipped.append(Skipped(self._root, path, _CLOSED))
        elif mode != was & 0o1777:
            self._add(path, Kind.MODIFIED, Type.FOLDER, mode, None, (), Type.FOLDER, was)

    def _open_below(self, name: str, covered: Sequence[int]) -> list[int]:
        """Open a folder in the layers that have it. Return nothing if we may not read it."""
        opened: list[int] = []
        try:
            for below in covered:
                opened.append(os.open(name, FOLDER, dir_fd=below))
                if not os.access(".", os.X_OK, dir_fd=opened[-1], effective_ids=True):
                    raise PermissionError
        except PermissionError:
            for descriptor in opened:
                os.close(descriptor)
            return []
        return opened

    def _skip_deep(self, path: str) -> None:
        self.skipped.append(Skipped(self._root, path, "a folder too deep to be looked into"))

    def _add(
        self,
        path: str,
        kind: Kind,
        type_: Type,
        mode: int | None = None,
        target: str | None = None,
        flags: Sequence[Flag] = (),
        old_type: Type | None = None,
        old_mode: int | None = None,
        *,
        git: str | None = None,
        is_git_target: bool = False,
    ) -> None:
        number = len(self.changes)
        is_new_folder = kind is Kind.ADDED and type_ is Type.FOLDER
        is_program = type_ is not Type.FOLDER and bool(((mode or 0) | (old_mode or 0)) & 0o111)
        is_git_target = is_git_target or self._git_targets.covers(
            path, is_new_folder=is_new_folder, is_program=is_program or type_ is Type.LINK
        )
        if type_ is Type.FOLDER:
            self._git += [(number, git)] if git is not None and kind in _MADE else []
        elif is_git_target or self._nested_repositories.covers(
            path, type_, old_type, is_program=is_program
        ):
            flags = (*flags, Flag.LATER, Flag.HELD)
            self._run_by_git.append(number)
        elif self._is_own and builds_this_program(f"{self._root}/{path}"):
            flags = (*flags, Flag.LATER, Flag.HELD)
        elif git is not None:
            self._git.append((number, git))
        else:
            flags = (*flags, *self._marks(path, is_deleted=kind is Kind.DELETED))
        self._append(path, kind, type_, mode, target, flags, old_type, old_mode)

    def _append(
        self,
        path: str,
        kind: Kind,
        type_: Type,
        mode: int | None,
        target: str | None,
        flags: Sequence[Flag],
        old_type: Type | None,
        old_mode: int | None,
    ) -> None:
        if _is_opened(kind, type_, mode, old_type, old_mode):
            flags = (*flags, Flag.SHARED)
        is_ignored = self._ignored is not None and self._ignored.covers(
            path, is_folder=Type.FOLDER in (type_, old_type)
        )
        self.changes.append(
            Change(
                self._root, path, kind, type_, mode, target, tuple(flags), old_type, old_mode,
                is_ignored,
            )
        )  # fmt: skip

    def _marks(self, path: str, *, is_deleted: bool) -> tuple[Flag, ...]:
        folder, _, name = path.rpartition("/")
        if self._plain_folders[folder] and is_plain_name(name):
            return ()
        if is_obeyed(path, self._around, is_deleted=is_deleted):
            return (Flag.LATER, Flag.HELD)
        risk = risk_of(path)
        return (risk,) if risk else ()

    def judge_git(self, judge: GitJudge) -> None:
        """Hold the changes in git's folders that the table does not let cross, leave out what git
        makes again, and note why files that git runs are held."""
        left_out: set[int] = set()
        for number, git in self._git:
            change = self.changes[number]
            answer = judge.judge(change, git)
            if isinstance(answer, Note):
                self.notes[change.path] = answer
                self.changes[number] = change._replace(flags=(*change.flags, Flag.LATER, Flag.HELD))
            elif answer is GitAnswer.LEFT_OUT:
                left_out.add(number)
                self.skipped.append(Skipped(self._root, change.path, "git makes it again"))
            elif answer is GitAnswer.REMOVED:
                self.changes[number] = change._replace(kind=Kind.DELETED, mode=None, flags=())
            elif is_git_name(os.path.basename(change.path)) and (risk := risk_of(change.path)):
                self.changes[number] = change._replace(flags=(*change.flags, risk))
        for number in self._run_by_git:
            self.notes[self.changes[number].path] = judge.runs(self.changes[number])
        self._hold_folders()
        if left_out:
            self.changes = [one for n, one in enumerate(self.changes) if n not in left_out]

    def _hold_folders(self) -> None:
        """Hold the deletions of folders in which something is held."""
        held = {
            folder
            for change in self.changes
            if Flag.HELD in change.flags
            for folder in dirfd.folders_above(change.path)
        }
        if not held:
            return
        for number, change in enumerate(self.changes):
            if change.path in held and change.ends_folder and Flag.HELD not in change.flags:
                self.changes[number] = change._replace(flags=(*change.flags, Flag.HELD))


def is_too_deep(path: str) -> bool:
    if len(os.fsencode(path)) > _LONGEST:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(limit - _IN_USE, _IN_USE) // _TAKEN_BY_LEVEL
    return limit != resource.RLIM_INFINITY and path.count("/") >= most


def _is_same(upper: int, lower: int, name: str, new: os.stat_result, old: os.stat_result) -> bool:
    if stat.S_ISLNK(new.st_mode):
        return os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=lower)
    if new.st_mode != old.st_mode or new.st_size != old.st_size:
        return False
    return same_bytes(name, upper, name, lower, most=_MOST_COMPARED)


def _leads_outside(root: str, path: str, target: str) -> bool:
    """Return whether a link's target is outside the root, by its text alone.

    A ".." after a name counts as outside: the name may be a link to anywhere.
    """
    names = [name for name in target.split("/") if name not in ("", ".")]
    is_absolute = target.startswith("/")
    upwards = len(list(takewhile("..".__eq__, names)))
    if ".." in names[upwards:] or upwards > (0 if is_absolute else path.count("/")):
        return True
    return is_absolute and not is_inside(os.path.normpath(target), root)


def _is_opened(
    kind: Kind, type_: Type, mode: int | None, old_type: Type | None, old_mode: int | None
) -> bool:
    """Return whether a change gives the group or others a right that they did not have, and that
    a new file would not have."""
    if mode is None or kind is Kind.DELETED or type_ is Type.LINK:
        return False
    if old_mode is None or old_type is not type_:
        usual = 0o777 & ~current_umask()
        return bool(mode & 0o077 & ~usual)
    gained = mode & 0o077 & ~old_mode
    if type_ is Type.FILE:
        # Who may read a file can run a copy of it.
        gained &= ~((old_mode & 0o044) >> 2)
    else:
        # Without the sticky bit, everybody can delete the files of others.
        gained |= (old_mode & ~mode & stat.S_ISVTX) if mode & 0o022 else 0
    return bool(gained)


@cache
def current_umask() -> int:
    """Return the umask without setting it, which would affect other threads."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"(?m)^Umask:\s*([0-7]+)", status)
    return int(found[1], 8) if found else 0o022


def _mode(found: os.stat_result) -> int:
    return stat.S_IMODE(found.st_mode)


def type_of(found: os.stat_result) -> Type:
    if stat.S_ISDIR(found.st_mode):
        return Type.FOLDER
    return Type.LINK if stat.S_ISLNK(found.st_mode) else Type.FILE


def _old_type(found: os.stat_result) -> Type | None:
    """Return what was there; None for a pipe, a socket or a device, which has no content."""
    is_special = not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode))
    return None if is_special and not stat.S_ISDIR(found.st_mode) else type_of(found)


def _kind_of_file(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
