# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes in plain English, for the command line and for models: the short list after a run, and
its lines. The window has its own texts for this list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ..paths import FolderValues
from ..text.visible import quoted_path
from .change import Change, Flag, Kind, Recorded, Report, Skipped, State, Type, folders_around
from .reasons import Note, Reason

# What is lost comes first.
KIND_ORDER = (Kind.DELETED, Kind.REPLACED, Kind.MODIFIED, Kind.ADDED)
# The worst comes first, so that no number of others can push it out of a list.
FLAG_LABELS = {
    Flag.HELD: "needs approval",
    Flag.LATER: "can run code outside the sandbox",
    Flag.OPENING: "can run code when you enter or open its folder",
    Flag.TOOL: "can run code when a tool starts",
    Flag.SHARED: "gives other users more rights",
    Flag.STRIPPED: "its setuid or setgid bit was removed",
    Flag.OUTSIDE: "leads out of the project",
    Flag.EXECUTABLE: "executable",
    Flag.BUILD: "runs in a build or a test",
}
_SEVERITY = tuple(FLAG_LABELS)
HEADING = "Worth a second look:"

_COUNTED = frozenset((Flag.EXECUTABLE, Flag.BUILD))
_LOST = (Kind.DELETED, Kind.REPLACED)
_TROUBLED = (State.CONFLICT, State.FAILED)
# Lines for what is lost, and for what is worth a second look; and lines for everything else.
_MANY, _FEW = 400, 40
# So many lines of each severity come before the others of any.
_TURN = 20
# Long names must not push a mark out of sight. The window and `--json` show them whole.
_LONGEST_NAME = 240
_REPOSITORY = re.compile(
    r"(?P<folder>(?:[^/]+/)*?)\.git/(?P<inner>(?:(?:modules|worktrees)/[^/]+/)*)(?P<name>.+)",
    re.DOTALL,
)
# What git itself writes while it works. It neither runs nor obeys any of this, unlike its
# configuration, hooks, attributes and alternates.
_BOOKKEEPING = re.compile(
    r"objects|objects/(?!info/(?:http-)?alternates).+|logs(?:/.+)?|refs(?:/.+)?|info/refs"
    r"|index|packed-refs|shallow|gc\.log|HEAD|[A-Z]+_HEAD|[A-Z]+_MSG|[A-Z]+_EDITMSG"
    r"|MERGE_MODE|MERGE_RR|MERGE_AUTOSTASH|AUTO_MERGE",
    re.DOTALL,
)


@dataclass
class FolderLine:
    """A folder that came, went or was replaced with everything in it, as one line.

    The numbers are of the files that have no line of their own.
    """

    folder: Recorded
    # One of the changes that the line stands for. The others are in the same state.
    example: Recorded
    files: int = 0
    executables: int = 0
    builds: int = 0
    changes: int = 0
    last_file: Recorded | None = None

    def add(self, item: Recorded) -> None:
        self.changes += 1
        # A file in place of a folder is the line itself.
        if item.change.type is not Type.FOLDER and item is not self.folder:
            self.files += 1
            self.executables += Flag.EXECUTABLE in item.change.flags
            self.builds += Flag.BUILD in item.change.flags
            self.last_file = item


@dataclass
class GitLine:
    """What git wrote or deleted in one repository to do its work, as one line."""

    root: str
    # The folder that the repository is of, with a slash at its end; "" for the root itself.
    folder: str
    is_deleted: bool
    changes: int = 0
    files: list[str] = field(default_factory=list)


PathLine = Recorded | FolderLine
Line = PathLine | GitLine
# Returns what is to be said about one change.
Remarks = Callable[[Recorded], Sequence[str]]


class ShortList(NamedTuple):
    # What is lost; then other files; then what is summed up.
    lines: tuple[Line, ...] = ()
    # Risky and held files, those that failed, and everything else that has a remark.
    flagged: tuple[Line, ...] = ()
    # The number of changes that no line stands for, and of those among them that are flagged.
    left_out: int = 0
    left_flagged: int = 0
    # The number of files that git ignores, which have no lines.
    ignored: int = 0


class _WholeFolders:
    """Finds the outermost folder around a change that came, went or was replaced as a whole."""

    def __init__(self, items: Iterable[Recorded]) -> None:
        self._folders = {
            (item.change.root, item.change.path): item
            for item in items
            if item.change.makes_folder or item.change.ends_folder
        }
        # By root.
        self._outermost: dict[str, FolderValues[Recorded | None]] = {
            root: FolderValues(None, partial(self._find, root)) for root, _ in self._folders
        }

    def _find(self, root: str, folder: str, around: Recorded | None) -> Recorded | None:
        return around or self._folders.get((root, folder))

    def around(self, item: Recorded) -> Recorded | None:
        root, path, kind, type_, *_ = item.change
        if root not in self._outermost:
            return None
        found = self._outermost[root][path.rpartition("/")[0]]
        if found is None and (type_ is Type.FOLDER or kind is Kind.REPLACED):
            found = self._folders.get((root, path))
        if found is None or found.change.kind is kind:
            return found
        # Its content was added, or deleted, in place of the other.
        return found if found.change.kind is Kind.REPLACED else None


class _Builder:
    def __init__(self, items: Sequence[Recorded]) -> None:
        self._whole = _WholeFolders(items)
        # By the path of the folder, and by what the changes in it have in common.
        self._folders: dict[tuple[str, str, State, Note | None, bool], FolderLine] = {}
        self._repositories: dict[tuple[str, str, bool], GitLine] = {}
        self._lines: list[PathLine] = []
        self._flagged: list[PathLine] = []
        # Folders in which something has a line of its own.
        self._named: set[tuple[str, str]] = set()
        for item in items:
            self._add(item)

    def _add(self, item: Recorded) -> None:
        change = item.change
        folder = self._whole.around(item)
        has_flag = is_flagged(item)
        if not has_flag and (git := _git_file(change.path, folder)):
            key = (change.root, git[0], change.kind is Kind.DELETED)
            if key not in self._repositories:
                self._repositories[key] = GitLine(*key)
            line = self._repositories[key]
            line.changes += 1
            line.files += [git[1]] if change.type is not Type.FOLDER else []
            return
        if folder is None or not _can_be_summed_up(item):
            (self._flagged if has_flag else self._lines).append(item)
        else:
            is_held = _is_held_deletion(item)
            alike = (change.root, folder.change.path, item.state, item.note, is_held)
            if alike not in self._folders:
                flags = (Flag.HELD,) if is_held else ()
                example = item._replace(change=change._replace(flags=flags))
                self._folders[alike] = FolderLine(folder, example)
            self._folders[alike].add(item)
        if folder is not None and has_flag:
            self._named.add((change.root, folder.change.path))

    def build(self) -> ShortList:
        for (root, path, *_), found in self._folders.items():
            line: PathLine = found
            if found.folder.change.kind is Kind.ADDED and found.files == 1 and found.last_file:
                line = found.last_file  # says more than its folder
            if is_flagged(line if isinstance(line, Recorded) else found.example):
                self._flagged.append(line)
            elif found.files or (root, path) not in self._named:
                self._lines.append(line)
        repositories = self._repositories.values()
        ordered = sorted(self._lines, key=_by_kind)
        lost: list[Line] = [line for line in ordered if _kind(line) in _LOST]
        lost += [line for line in repositories if line.is_deleted]
        rest = [line for line in ordered if _kind(line) not in _LOST]
        # The files of a long list are cut before the lines that stand for many.
        files = [line for line in rest if isinstance(line, Recorded)]
        sums: list[Line] = [line for line in rest if not isinstance(line, Recorded)]
        sums += [line for line in repositories if not line.is_deleted]
        most_files = max(_FEW - len(sums), _FEW // 2)
        risky = _in_turn(self._flagged)
        parts = ((lost, _MANY), (files, most_files), (sums, _FEW // 2), (risky, _MANY))
        first, then, last, flagged = (tuple(lines[:most]) for lines, most in parts)
        left_out = sum(_count(line) for lines, most in parts for line in lines[most:])
        left_flagged = sum(map(_count, risky[_MANY:]))
        return ShortList((*first, *then, *last), flagged, left_out, left_flagged)


def short_list(items: Sequence[Recorded]) -> ShortList:
    """Return a list of changes that is short enough to be read after a run."""
    shown, ignored = split_ignored(items)
    return _Builder(shown).build()._replace(ignored=count_files(ignored))


def split_ignored(items: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Split changes into those that a user means by "changes", and those of files that git ignores
    and that are not worth a second look."""
    quiet = {id(item) for item in items if item.change.is_ignored and not _needs_a_look(item)}
    if not quiet:
        return list(items), []
    quiet |= _around_ignored(items, quiet)
    shown = [item for item in items if id(item) not in quiet]
    return shown, [item for item in items if id(item) in quiet]


def _needs_a_look(item: Recorded) -> bool:
    """Return whether a change has a line of its own even if git ignores the file."""
    # Whoever builds a project edits these files all the time.
    is_edited = item.is_because(Reason.EDITED) or item.is_because(Reason.PARTLY)
    return is_flagged(item._replace(note=None) if is_edited else item)


def _around_ignored(items: Sequence[Recorded], ignored: set[int]) -> set[int]:
    """Return the ids of new and deleted folders in which git ignores everything that changed: to
    git, a folder is nothing but what is in it."""
    folders = {
        (item.change.root, item.change.path): id(item)
        for item in items
        if id(item) not in ignored
        and item.change.type is Type.FOLDER
        and item.change.kind in (Kind.ADDED, Kind.DELETED)
        and not _needs_a_look(item)
    }
    if not folders:
        return set()
    quiet = ignored.union(folders.values())
    found = folders_around(item for item in items if id(item) in ignored)
    found -= folders_around(item for item in items if id(item) not in quiet)
    return {folders[place] for place in folders.keys() & found}


def count_files(items: Sequence[Recorded]) -> int:
    """Return the number of files and links; of folders if there is nothing else."""
    return sum(item.change.type is not Type.FOLDER for item in items) or len(items)


def ignored_text(count: int) -> str:
    return f"{counted(count, 'file')} that git ignores"


def is_flagged(item: Recorded) -> bool:
    """Return whether a change is worth a second look."""
    change = item.change
    if item.note is not None or item.state in _TROUBLED:
        return True
    # A folder is held only because of what is in it.
    return bool(change.flags) and (change.type is not Type.FOLDER or change.flags != (Flag.HELD,))


def _is_held_deletion(item: Recorded) -> bool:
    """Return whether a deletion is held although the file itself is not risky."""
    change = item.change
    is_folder = change.type is Type.FOLDER
    return change.kind is Kind.DELETED and change.flags == (Flag.HELD,) and not is_folder


def _can_be_summed_up(item: Recorded) -> bool:
    if item.state is State.CONFLICT:
        return False
    flags = item.change.flags
    if item.change.type is Type.FOLDER:
        return flags in ((), (Flag.HELD,))
    # Unlike risky files, executables are not run by themselves: their number is enough.
    return _COUNTED.issuperset(flags) or _is_held_deletion(item)


def is_bookkeeping(item: Recorded) -> bool:
    """Return whether git wrote or deleted the file to do its own work."""
    return not is_flagged(item) and _git_file(item.change.path, None) is not None


def _git_file(path: str, whole: Recorded | None) -> tuple[str, str] | None:
    """Return the folder of a repository and the name in it, if it is one of git's own files.

    A repository that came or went as a whole is a folder like others.
    """
    if ".git/" not in path or (found := _REPOSITORY.fullmatch(path)) is None:
        return None
    folder, inner, name = found.group("folder", "inner", "name")
    if _BOOKKEEPING.fullmatch(name) is None:
        return None
    if whole is not None and len(whole.change.path) < len(f"{folder}.git/{inner}"):
        return None
    return (f"{folder}.git/{inner}" if inner else folder), name


def _kind(line: PathLine) -> Kind:
    return line.folder.change.kind if isinstance(line, FolderLine) else line.change.kind


def _by_kind(line: PathLine) -> int:
    return KIND_ORDER.index(_kind(line))


def severity(item: Recorded) -> int:
    """Return how urgently somebody should look at a change; 0 is the most urgent."""
    if item.state in _TROUBLED:
        return 1
    return min(map(_SEVERITY.index, item.change.flags), default=len(_SEVERITY))


def _by_severity(line: PathLine) -> tuple[int, int, int]:
    item = line.example if isinstance(line, FolderLine) else line
    # What is in the project's own folder comes before what is deep inside.
    return severity(item), _by_kind(line), item.change.path.count("/")


def _in_turn(lines: list[PathLine]) -> list[PathLine]:
    """Sort lines so that thousands of one severity do not push out those of another."""
    lines = sorted(lines, key=_by_severity)
    groups = [list(group) for _, group in groupby(lines, lambda line: _by_severity(line)[0])]
    first = [line for group in groups for line in group[:_TURN]]
    return first + [line for group in groups for line in group[_TURN:]]


def _count(line: Line) -> int:
    return 1 if isinstance(line, Recorded) else line.changes


def short_lines(
    short: ShortList, project: str, remarks: Remarks, *, width: int = 0
) -> Iterator[str]:
    """Yield the list as text, without what is left out."""
    text = partial(line_text, project=project, remarks=remarks, width=width)
    yield from map(text, short.lines)
    if short.flagged:
        yield HEADING
    yield from map(text, short.flagged)
    if short.left_flagged:
        yield f"  and {short.left_flagged:,} more like these"
    if short.ignored:
        yield f"  {ignored_text(short.ignored)}"


def line_text(line: Line, project: str, remarks: Remarks, *, width: int = 0) -> str:
    """Return the line as text, with kinds in a column that is `width` characters wide."""
    if isinstance(line, GitLine):
        return _git_text(line, project)
    item = line.folder if isinstance(line, FolderLine) else line
    change = item.change
    details = []
    if isinstance(line, FolderLine) and change.kind is not Kind.REPLACED:
        details += _sizes(line)
    if mode := mode_text(change):
        details.append(f"mode {mode}")
    if change.kind is Kind.REPLACED and change.old_type:
        details.append(f"was a {change.old_type.value}")
        if isinstance(line, FolderLine) and (sizes := _sizes(line)):
            is_gone = change.old_type is Type.FOLDER
            details = [f"{details[0]} with {sizes[0]}"] if is_gone else [*sizes, *details]
    said = remarks(line.example if isinstance(line, FolderLine) else line)
    return (
        f"  {change.kind.value:{width}} {shown_name(item, project, longest=_LONGEST_NAME)}"
        + (f" ({', '.join(details)})" if details else "")
        + (f" [{'; '.join(said)}]" if said else "")
    )


def mode_text(change: Change) -> str:
    """Return the mode before and after a change, or the mode of something new that others have
    more rights to than usual; "" if there is nothing to say about it."""
    if change.mode is None:
        return ""
    if change.kind is Kind.MODIFIED and change.old_mode not in (None, change.mode):
        return f"{change.old_mode:04o} → {change.mode:04o}"
    return f"{change.mode:04o}" if Flag.SHARED in change.flags else ""


def _sizes(line: FolderLine) -> list[str]:
    sizes = [counted(line.files, "file")] if line.files else []
    if line.executables:
        sizes.append(f"{line.executables:,} executable")
    return [*sizes, f"{line.builds:,} for builds or tests"] if line.builds else sizes


def _git_text(line: GitLine, project: str) -> str:
    folder = line.folder if line.root == project else f"{line.root}/{line.folder}"
    where = f" in {quoted_path(folder)}" if folder else ""
    what = ", ".join(map(quoted_path, line.files)) or "folders"
    if len(line.files) > 5:
        what = counted(len(line.files), "file")
    return f"  git{where}: {'deleted ' if line.is_deleted else ''}{what}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def skipped_lines(report: Report, project: str, *, width: int = 0) -> Iterator[str]:
    """Yield a line for each file that cannot be in a project, up to a limit."""
    for item in report.skipped[:_FEW]:
        path = quoted_path(shown_path(item, project))
        yield f"  {'left out':{width}} {path} [{item.what}]"
    if len(report.skipped) > _FEW:
        yield f"  {'left out':{width}} {len(report.skipped) - _FEW:,} more"


def count_kinds(items: Sequence[Recorded]) -> dict[Kind, int]:
    """Return the number of changes of each kind that there is."""
    # list.count() makes no Python call per item: there may be a hundred thousand.
    kinds = [item.change.kind for item in items]
    return {kind: count for kind in KIND_ORDER if (count := kinds.count(kind))}


def shown_path(item: Recorded | Skipped, project: str) -> str:
    """Return the path relative to the project, or the absolute path in a linked root."""
    place = item if isinstance(item, Skipped) else item.change
    return place.path if place.root == project else f"{place.root}/{place.path}"


def shown_name(item: Recorded, project: str, *, longest: int | None = None) -> str:
    """Return the path on one line, with a slash for a folder and the target of a link. Of one that
    is longer than `longest`, the middle is left out."""
    change = item.change
    path = shown_path(item, project) + ("/" if change.type is Type.FOLDER else "")
    name = quoted_path(_shortened(path, longest))
    if change.target is None:
        return name
    return f"{name} -> {quoted_path(_shortened(change.target, longest))}"


def _shortened(path: str, longest: int | None) -> str:
    if longest is None or len(path) <= longest:
        return path
    return f"{path[: longest // 3]}...{path[-longest // 2 :]}"
