# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists what a command changed, and marks what is risky or held: one walk over its upper folder,
which never follows a link."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from ..files import dirfd
from ..files.dirfd import FOLDER
from ..files.ignore import IgnoredPaths
from ..files.overlayfs import find_in_open_layers, names_in, read_merged, same_bytes
from ..files.trees import is_opaque, is_whiteout
from ..paths import FolderValues, is_inside, keep_own_rights
from .change import Change, ChangeSet, Flag, Kind, Skipped, Type
from .held import risky
from .held.git.hooks import same_hook_settings
from .held.git.judge import GitAnswer, GitJudge
from .held.git.objects import IndexPack
from .held.git.targets import GitTargets, NestedRepositories
from .held.git.view import View
from .held.links import mark_link_targets
from .held.mass_deletion import hold_mass_deletion
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
        """Return the mode that the command left, without setuid and setgid bits."""
        return self._modes.get(path, stat.S_IMODE(found.st_mode)) & 0o1777

    def open(self, name: str, around: int | None, path: str, found: os.stat_result) -> int:
        if found.st_mode & 0o700 != 0o700:
            self._modes.setdefault(path, stat.S_IMODE(found.st_mode))
            with os.fdopen(os.open(self._note, _FLAGS, 0o600), "wb") as note:
                note.write(f"{json.dumps([path, self._modes[path]])}\n".encode())
            dirfd.set_mode(name, around, stat.S_IMODE(found.st_mode) | 0o700)
        return os.open(name, FOLDER, dir_fd=around)


_CLOSED = "a folder that you may not read"
_DEEP = "a folder too deep to be looked into"
_LENT = stat.S_ISUID | stat.S_ISGID
# Of a file that can be executed, or has rights that it must not have.
_SPECIAL = _LENT | 0o111
_MADE = (Kind.ADDED, Kind.REPLACED)

# A touched file that is larger counts as changed: comparing it would take minutes.
_MOST_COMPARED = 1 << 30
# Four times as long as a path that programs can open. Each folder on the way has a change with its
# whole path, so a longer way would take more memory than anybody has use for.
_LONGEST = 4 * 4096
# The bytes of all paths of a run. Long ones count more: 3,000 files with paths of 16 KiB would take
# 200 MB of the database, and 300,000 usual ones take less.
_MOST_PATHS = 256 << 20
_USUAL, _WEIGHT = 1024, 16
# Descriptors that each level takes, and that are in use elsewhere.
_TAKEN_BY_LEVEL, _IN_USE = 4, 256


def scan(root: str, view: View, index_pack: IndexPack = lambda _pack, _width: None) -> ChangeSet:
    """Return what the command changed in a root, one of the view's.

    Parents come before their content; a deleted folder comes after its content.
    """
    dirfd.allow_many_descriptors()
    walk = _Walk(root, view)
    walk.run()
    walk.judge_git(GitJudge(root, view, index_pack))
    mark_link_targets(view.roots[root], walk.changes, walk.names_around)
    hold_mass_deletion(root, walk.changes)
    return ChangeSet(walk.changes, walk.skipped, walk.notes)


class _Level:
    """A folder that the walk is in: the one in upper, and those that it covers. Where upper has
    none (-1), everything in the covered ones is deleted."""

    __slots__ = (
        "checked", "git", "hides", "is_ordinary", "lowers", "names", "prefix", "then", "upper"
    )  # fmt: skip

    def __init__(
        self, prefix: str, git: str | None, lowers: list[int], names: Iterable[str] = ()
    ) -> None:
        self.prefix = prefix
        # The path of the git folder that it is in.
        self.git = git
        self.upper = -1
        self.lowers = lowers
        self.names = iter(names)
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


class _Place(NamedTuple):
    """A name in a level, what is there without upper, and the layers that have that."""

    level: _Level
    name: str
    path: str
    old: os.stat_result | None
    covered: list[int]


class _Walk:
    def __init__(self, root: str, view: View) -> None:
        self._root = root
        self._layers = view.roots[root]
        self._closed = ClosedFolders(self._layers[0])
        self.changes: list[Change] = []
        self.skipped: list[Skipped] = []
        self._paths = 0
        # Why changes are held, by path.
        self.notes: dict[str, Note] = {}
        # The numbers of the changes in git's folders, with the folder of each; and of files that
        # git runs.
        self._git: list[tuple[int, str]] = []
        self._run_by_git: list[int] = []
        self._levels: list[_Level] = []
        # Whether the checkout that this program runs from is in the root.
        self._is_own = is_inside(risky.CHECKOUT, root)
        # The root's own name, if it is special: a linked folder may be `.vscode`.
        name = os.path.basename(root)
        self._own_name = "" if risky.is_plain_folder(name) else f"{name}/"
        # Whether no part of a folder's path is special.
        self._plain_folders = FolderValues(
            top=not self._own_name,
            find=lambda folder, around: around and risky.is_plain_folder(folder.rpartition("/")[2]),
        )
        self._git_targets = GitTargets.of(root, view.roots)
        self._repositories = 0
        self._nested_repositories = NestedRepositories(root)
        self.names_around = risky.NamesAround(self._layers)
        # By the ignore files of the project, not by those that the command wrote.
        self._ignored = IgnoredPaths(root) if has_repository(root) else None

    def run(self) -> None:
        try:
            self._enter_root()
            while self._levels:
                level = self._levels[-1]
                name = next(level.names, None)
                if name is not None:
                    self._look(level, name)
                    continue
                self._levels.pop().leave()
                if level.then:
                    level.then()
        finally:
            while self._levels:
                self._levels.pop().leave()

    def _enter_root(self) -> None:
        upper, *lowers, project = self._layers
        # A command cannot take away the user's own rights to the project's folder.
        with contextlib.suppress(FileNotFoundError):
            keep_own_rights(upper, os.stat(self._root).st_mode)
        level = _Level("", "" if is_git_folder(self._root) else None, [])
        self._levels.append(level)
        level.upper = self._closed.open(upper, None, "", os.stat(upper))
        for lower in lowers:
            level.lowers.append(os.open(lower, FOLDER))
        level.lowers.append(dirfd.open_root(project))
        self._add_mode(".", self._closed.mode("", os.fstat(level.upper)), os.fstat(level.lowers[0]))
        level.names = iter(sorted(os.listdir(level.upper)))

    def _look(self, level: _Level, name: str) -> None:
        path = level.prefix + name
        if self._paths > _MOST_PATHS:
            return
        self._paths += len(path) if len(path) <= _USUAL else _WEIGHT * len(path)
        if self._paths > _MOST_PATHS:
            self.skipped.append(
                Skipped(self._root, path, "more than can be recorded, from here on")
            )
            return
        place = _Place(level, name, path, *find_in_open_layers(level.lowers, name))
        new = None
        if level.upper >= 0:
            new = os.stat(name, dir_fd=level.upper, follow_symlinks=False)
        if new is None or is_whiteout(new):
            if place.old is not None:
                self._delete(place, place.old)
        elif stat.S_ISDIR(new.st_mode):
            self._folder(place, new)
        elif stat.S_ISREG(new.st_mode) or stat.S_ISLNK(new.st_mode):
            self._file(place, new)
        else:
            self._skip(place.path, _kind_of_file(new.st_mode))

    def _folder(self, place: _Place, new: os.stat_result) -> None:
        level, name, path, old, covered = place
        if _is_too_deep(path):
            self._skip(path, _DEEP)
            return
        mode = self._closed.mode(path, new)
        old_type = old and _type_of(old)
        lowers: list[int] = []
        if old_type is Type.FOLDER:
            lowers = self._open_below(name, covered)
            if not lowers:
                self._skip_closed(place, new)
                return
        inside = self._inside(place, lowers)
        self._levels.append(inside)
        flags = (Flag.STRIPPED,) if new.st_mode & _LENT else ()
        if old is not None and old_type is Type.FOLDER:
            self._add_mode(path, mode, old, flags, git=self._git_folder(level, name))
        else:
            kind = Kind.ADDED if old is None else Kind.REPLACED
            was = old and _mode(old)
            git = level.git if old is None else self._git_folder(level, name)
            change = Change(self._root, path, kind, Type.FOLDER, mode, None, flags, old_type, was)
            self._add(change, git=git)
        upper = inside.upper = self._closed.open(name, level.upper, path, new)
        names = sorted(os.listdir(upper))
        if lowers or ".git" in names:
            # Of a worktree that the command adds, too, the hooks are known.
            pointer = read_merged(self._layers, f"{path}/.git") if ".git" in names else None
            is_new = ".git" in names
            self._git_targets.add_repository(f"{self._root}/{path}", pointer, is_new=is_new)
            self._repositories += 1
        # The kernel marks only the outermost new folder as opaque.
        inside.hides = level.hides or is_opaque(upper)
        inside.names = iter(names)
        if lowers and inside.hides:
            unseen = sorted(set(names_in(lowers)) - set(names))
            hidden = _Level(f"{path}/", inside.git, [], unseen)
            self._levels.append(hidden)
            hidden.lowers += map(os.dup, lowers)

    def _inside(self, place: _Place, lowers: list[int], names: Iterable[str] = ()) -> _Level:
        path, git = place.path, place.level.git
        if git is None and (risky.is_git_name(place.name) or is_git_folder(f"{self._root}/{path}")):
            git = path
        return _Level(f"{path}/", git, lowers, names)

    def _file(self, place: _Place, new: os.stat_result) -> None:
        level, name, path, old, covered = place
        kind, type_ = Kind.ADDED, _type_of(new)
        mode = _mode(new) if type_ is Type.FILE else None
        target = os.readlink(name, dir_fd=level.upper) if type_ is Type.LINK else None
        old_type = old_mode = None
        if old is not None:
            old_type, old_mode = _old_type(old), _mode(old)
            kind = Kind.MODIFIED if old_type is type_ else Kind.REPLACED
            if old_type is type_ and _is_same(level.upper, covered[0], name, new, old):
                return
        change = Change(self._root, path, kind, type_, mode, target, (), old_type, old_mode)
        modes = (mode or 0) | (old_mode or 0)
        if (
            type_ is Type.FILE
            and old_type in (None, Type.FILE)
            and not modes & _SPECIAL
            and self._is_ordinary(level, name)
        ):
            # Nearly all are like this, and 20,000 take half as long without the rest.
            self._append(change)
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
            self._add,
            change._replace(flags=tuple(flags)),
            git=self._git_folder(level, name),
            is_git_target=name == "package.json" and self._changes_hooks(path),
        )
        if old_type is Type.FOLDER:
            self._delete_inside(place, add)
        else:
            add()

    def _git_folder(self, level: _Level, name: str) -> str | None:
        """Return the git folder that a name is in, or "" if it is in the place of one."""
        return level.git if level.git is not None else ("" if risky.is_git_name(name) else None)

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
        return level.is_ordinary and risky.is_plain_name(name)

    def _changes_hooks(self, path: str) -> bool:
        """Return whether a package.json says something else to the managers of git's hooks."""
        if not self._git_targets.reads_manifests:
            return False
        new, old = read_merged(self._layers, path), read_merged((self._root,), path)
        return new is None or not same_hook_settings(old or b"", new)

    def _delete(self, place: _Place, old: os.stat_result) -> None:
        type_, path = _type_of(old), place.path
        change = Change(
            self._root, path, Kind.DELETED, type_, old_type=_old_type(old), old_mode=_mode(old)
        )
        add = partial(self._add, change, git=self._git_folder(place.level, place.name))
        if (
            change.old_type is Type.FILE
            and not old.st_mode & _SPECIAL
            and self._is_ordinary(place.level, place.name)
        ):
            self._append(change)
        elif type_ is not Type.FOLDER:
            add()
        elif _is_too_deep(path):
            # The folders above it are skipped later, because they are not empty.
            self._skip(path, _DEEP)
        else:
            self._delete_inside(place, add)

    def _delete_inside(self, place: _Place, then: Callable[[], None]) -> None:
        """Enter a folder, to add the deletion of everything in it; `then` adds what comes after."""
        lowers = self._open_below(place.name, place.covered)
        if not lowers:
            self._skip(place.path, _CLOSED)
            return
        level = self._inside(place, lowers, names_in(lowers))
        level.then = then
        self._levels.append(level)

    def _skip_closed(self, place: _Place, new: os.stat_result) -> None:
        """Leave out what the command wrote into a folder that we may not read. Without that, its
        mode may change."""
        level, name, path, old, _ = place
        descriptor = self._closed.open(name, level.upper, path, new)
        has_content = level.hides or is_opaque(descriptor) or bool(os.listdir(descriptor))
        os.close(descriptor)
        if has_content:
            self._skip(path, _CLOSED)
        elif old is not None:
            self._add_mode(path, self._closed.mode(path, new), old)

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

    def _skip(self, path: str, what: str) -> None:
        self.skipped.append(Skipped(self._root, path, what))

    def _add_mode(
        self,
        path: str,
        mode: int,
        old: os.stat_result,
        flags: tuple[Flag, ...] = (),
        *,
        git: str | None = None,
    ) -> None:
        """Add the change of a folder's mode if there is one. Overlayfs does not copy the setgid bit
        to the upper folder."""
        kind, type_, was = Kind.MODIFIED, Type.FOLDER, _mode(old)
        if mode != was & 0o1777:
            change = Change(self._root, path, kind, type_, mode, None, flags, type_, was)
            self._add(change, git=git)

    def _add(self, change: Change, *, git: str | None, is_git_target: bool = False) -> None:
        _, path, kind, type_, mode, _, flags, old_type, old_mode, _ = change
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
        elif self._is_own and risky.builds_this_program(f"{self._root}/{path}"):
            flags = (*flags, Flag.LATER, Flag.HELD)
        elif git is not None:
            self._git.append((number, git))
        else:
            flags = (*flags, *self._marks(path, is_deleted=kind is Kind.DELETED))
        self._append(change._replace(flags=flags))

    def _append(self, change: Change) -> None:
        if _is_opened(change):
            change = change._replace(flags=(*change.flags, Flag.SHARED))
        is_folder = Type.FOLDER in (change.type, change.old_type)
        if self._ignored is not None and self._ignored.covers(change.path, is_folder=is_folder):
            change = change._replace(is_ignored=True)
        self.changes.append(change)

    def _marks(self, path: str, *, is_deleted: bool) -> tuple[Flag, ...]:
        folder, _, name = path.rpartition("/")
        if self._plain_folders[folder] and risky.is_plain_name(name):
            return ()
        if risky.is_obeyed(path, self.names_around, is_deleted=is_deleted):
            return (Flag.LATER, Flag.HELD)
        risk = risky.risk_of(self._own_name + path)
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
            elif risky.is_git_name(os.path.basename(change.path)) and (
                risk := risky.risk_of(change.path)
            ):
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


def _is_too_deep(path: str) -> bool:
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


def _is_opened(change: Change) -> bool:
    """Return whether a change gives the group or others a right that they did not have, and that
    a new file would not have."""
    _, _, kind, type_, mode, _, _, old_type, old_mode, _ = change
    if mode is None or kind is Kind.DELETED or type_ is Type.LINK:
        return False
    if old_mode is None or old_type is not type_:
        usual = 0o777 & ~_umask()
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
def _umask() -> int:
    """Return the umask without setting it, which would affect other threads."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"(?m)^Umask:\s*([0-7]+)", status)
    return int(found[1], 8) if found else 0o022


def _mode(found: os.stat_result) -> int:
    return stat.S_IMODE(found.st_mode)


def _type_of(found: os.stat_result) -> Type:
    if stat.S_ISDIR(found.st_mode):
        return Type.FOLDER
    return Type.LINK if stat.S_ISLNK(found.st_mode) else Type.FILE


def _old_type(found: os.stat_result) -> Type | None:
    """Return what was there; None for a pipe, a socket or a device, which has no content."""
    type_ = _type_of(found)
    return None if type_ is Type.FILE and not stat.S_ISREG(found.st_mode) else type_


def _kind_of_file(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
