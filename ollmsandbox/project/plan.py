# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what a change puts into the project, or takes out of it, and stages that.

A change is a pair of versions. Applying it replaces the first by the second, undoing it the second
by the first. If the file in the project is neither, the texts are merged; where both changed the
same lines, and for files without lines, it is a conflict. Planning writes only to the run's folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from ..files import dirfd
from ..files.copying import copy_whole, strip, write_like
from ..files.dirfd import DirEntryAt, OpenTree, folders_above
from ..files.exchange import Expected, expect
from ..files.overlayfs import same_bytes
from ..paths import Paths
from ..text.merge import keep_both, merge_change
from .change import MANY, Change, Kind, Recorded, State, Type
from .held.git.index import is_same_index
from .jobs import in_conflict, modes_note, note_planning
from .reasons import Note, Reason
from .run import OpenRuns, is_part, is_small, mine_name, new_pair, read_run, read_small, signature
from .swap import UPPER, ConflictError, Item

_DECIDED = (State.APPLIED, State.UNDONE, State.DISCARDED)


class Way(Enum):
    APPLY = auto()
    UNDO = auto()
    # Keep the user's lines and the command's.
    BOTH = auto()
    # Apply or undo some hunks.
    PART = auto()


class Planned(NamedTuple):
    """The items of a job for one change, or a new state if the project need not be touched."""

    items: list[Item]
    decided: Recorded | None = None
    # CONFLICT or FAILED if it cannot be done. A change that cannot be undone or redone keeps its
    # state all the same.
    failed: State | None = None


class _Side(NamedTuple):
    """One version of a change."""

    # None for nothing.
    type: Type | None
    mode: int | None
    # Where the run keeps it, or would.
    place: str
    # Of a link that the command left.
    target: str | None = None
    # A pipe, socket or device, which can only be moved.
    is_special: bool = False

    @property
    def is_there(self) -> bool:
        return self.type is not None or self.is_special


class _There(NamedTuple):
    """The file at a place, now or when the items before are done."""

    found: os.stat_result | None
    spot: DirEntryAt | None
    is_planned: bool = False
    # The change whose result it is: its run and number.
    of: tuple[str, int] | None = None


class Planner:
    """Plans a job: several changes of several runs, in the order in which they will be done."""

    def __init__(self, paths: Paths, project: str, uppers: Mapping[str, str] | None = None) -> None:
        """`uppers` are the upper folders of a command, by root, if its results are still there."""
        self._paths = paths
        self._project = project
        self.uppers = {root: OpenTree(upper) for root, upper in (uppers or {}).items()}
        self.runs = OpenRuns(paths)
        self._trees: dict[str, OpenTree] = {}
        # What will be at a place, by root and path; and whether folders come or go.
        self.planned: dict[tuple[str, str], _There] = {}
        self._has_folders = False
        # Whether a run keeps copies of the versions that are in the project.
        self.copies: dict[str, bool] = {}
        # The names of the versions that a run keeps, such as "base/7".
        self.kept: dict[str, set[str]] = {}
        self._known: dict[str, list[Recorded]] = {}

    def close(self) -> None:
        self.runs.close()
        for tree in self._trees.values():
            tree.close()
        self._trees.clear()
        for upper in self.uppers.values():
            upper.leave()

    def begin(self, run_id: str, changes: int) -> None:
        """Prepare to plan changes of a run. If it has too many, it keeps no copies of versions."""
        if run_id not in self.kept:
            self.copies[run_id] = changes < MANY
            note_planning(self._paths, self._project, run_id)
            self.kept[run_id] = {
                f"{part}/{name}"
                for part in ("base", "result")
                for name in os.listdir(self.runs.folder(run_id, part))
            }

    def left_by(self, on: tuple[str, int]) -> str:
        """Return the signature of what a change left in the project; "" if it is not applied."""
        run_id, number = on
        if run_id not in self._known:
            self._known[run_id] = read_run(self._paths, run_id).changes
        rest = self._paths.runs / run_id / "result" / f"{number}.rest"
        for item in self._known[run_id][number : number + 1]:
            if item.state is State.APPLIED and not item.made and not rest.exists():
                return item.after
        return ""

    def plan(
        self,
        run_id: str,
        item: Recorded,
        way: Way,
        *,
        force: bool = False,
        part: tuple[bytes, bytes] | None = None,
    ) -> Planned:
        """Plan one change, or the `part` of it between two texts. With `force`, it replaces
        whatever is there, unless it can be merged."""
        try:
            plan = _Plan(self, run_id, item, way, force=force)
            return plan.make_part(*part) if part else plan.make()
        except ConflictError as conflict:
            state = State.FAILED if conflict.reason is Reason.LOST else State.CONFLICT
            return refused(item, state, Note(conflict.reason))
        except (FileNotFoundError, NotADirectoryError):
            if _is_in_replaced_folder(item.change):
                return refused(item, State.CONFLICT, Note(Reason.PARENT_REPLACED))
            if item.change.kind is (Kind.ADDED if way is Way.UNDO else Kind.DELETED):
                state = State.UNDONE if way is Way.UNDO else State.APPLIED
                return Planned([], item._replace(state=state, note=None, after=""))
            return refused(item, State.FAILED, Note(Reason.ROOT_MISSING))
        except OSError as error:
            return refused(item, State.FAILED, Note.of_error(error))

    def has_folder(self, root: str, path: str) -> bool:
        """Return whether there is a folder at a path, now or when the job gets there."""
        try:
            return _is_folder(self.there(root, path).found)
        except OSError:
            return False

    def there(self, root: str, path: str) -> _There:
        """Return what will be at a path when the items before are done."""
        if (root, path) in self.planned:
            return self.planned[root, path]
        for folder in folders_above(path) if self._has_folders else ():
            around = self.planned.get((root, folder))
            if around is not None:
                if not _is_folder(around.found):
                    raise NotADirectoryError(folder)
                return _There(None, None)  # in a folder that is made by then
        spot = DirEntryAt(*self._tree(root).split(path))
        return _There(spot.lstat(), spot)

    def folder_mode(self, root: str, path: str, found: os.stat_result | None = None) -> int:
        """Return the mode of a folder, from before it was made accessible to be looked into."""
        tree = self._tree(root)
        before = tree.mode_before(path)
        return (found or os.fstat(tree.folder(path))).st_mode if before is None else before

    def will_be(self, change: Change, there: _There, *, is_folder: bool = False) -> None:
        self.planned[change.root, change.path] = there
        self._has_folders |= is_folder

    def _tree(self, root: str) -> OpenTree:
        if root not in self._trees:
            note = modes_note(self._paths, self._project, root)
            self._trees[root] = OpenTree(root, note, top=dirfd.open_root(root))
        return self._trees[root]


# Stands for a folder that the job will create.
_A_FOLDER = os.stat("/")


class _Plan:
    """Plans one change in one way."""

    def __init__(
        self, planner: Planner, run_id: str, item: Recorded, way: Way, *, force: bool
    ) -> None:
        self._planner = planner
        self._kept = planner.kept[run_id]
        self._run_id = run_id
        self._item = item
        self._change = item.change
        self._way = way
        self._force = force
        self._state = State.UNDONE if way is Way.UNDO else State.APPLIED
        # A change that cannot be undone or made again is what it was.
        self._otherwise = item.state if item.state in _DECIDED else State.CONFLICT
        self._made = "" if is_part(item) else item.made
        # A discarded change is applied also with hunks that were discarded before.
        self._applies_all = item.state is State.DISCARDED and way is Way.APPLY
        self._there = _There(None, None)
        self._stage = f"stage/{item.number}"
        self._old, self._new = self._sides()

    def make(self) -> Planned:
        root, path, number = self._change.root, self._change.path, self._item.number
        if self._applies_all and f"result/{number}.rest" in self._kept:
            self._made, *places = new_pair(number)
            for part, place in zip(("base", "result"), places, strict=True):
                copy_whole(self._spot(f"{part}/{number}"), self._spot(place))
        if path == ".":
            return self._mode(self._planner.folder_mode(root, ""))
        self._there = self._planner.there(root, path)
        found = self._there.found
        if self._new.type is Type.FOLDER:
            if self._old.type is not Type.FOLDER:
                return self._make_folder()
            if not _is_folder(found):
                raise ConflictError(Reason.REMOVED)
            return self._mode(self._planner.folder_mode(root, path, found))
        if self._old.type is Type.FOLDER and _is_folder(found):
            self._there = _There(None, None)
            self._planner.will_be(self._change, self._there, is_folder=True)
            put = self._put_new().items if self._new.is_there else []
            return Planned([self._to_do("rmdir"), *put])
        if self._new.is_there:
            return self._put()
        return self._is_so() if self._old.type is Type.FOLDER else self._remove()

    def make_part(self, old: bytes, new: bytes) -> Planned:
        """Merge the change from one text to another, and record what is in the project then."""
        self._there = self._planner.there(self._change.root, self._change.path)
        current = self._current()
        merged = None if current is None else merge_change(old, new, current, has_hunks=True)
        if merged is None:
            raise ConflictError(Reason.SAME_LINES)
        base, before, whole = self._part_versions()
        part = None if base is None else merge_change(old, new, before, has_hunks=True)
        if base is None or part is None:
            raise ConflictError(Reason.SAME_LINES)
        was = self._otherwise = self._item.state
        self._state = State.APPLIED if was in _DECIDED else was
        # What the user decided before stays one side of the pair.
        is_decision = bool(self._made)
        if part == base:
            self._state = State.UNDONE if was in _DECIDED else was
        elif part == whole and not is_decision and self._change.mode == self._change.old_mode:
            self._state = State.APPLIED
        else:
            self._write_pair(base, part, is_part=not is_decision)
        return self._is_so() if merged == current else self._put_text(merged)

    # --- versions ----------------------------------------------------------------------------

    def _sides(self) -> tuple[_Side, _Side]:
        """Return the version that is expected in the project, and the one that replaces it."""
        item, is_undo = self._item, self._way is Way.UNDO
        if item.made and (item.state in (State.APPLIED, State.UNDONE) or is_part(item)):
            before, after = self._made_side("before"), self._made_side("after")
            if is_part(item) and not is_undo:
                # A part of it is in the project.
                before, after = after, self._result()
        else:
            before, after = self._base(), self._result()
        return (after, before) if is_undo else (before, after)

    def _base(self) -> _Side:
        change, place = self._change, f"base/{self._item.number}"
        if change.kind is Kind.ADDED:
            return _Side(None, change.old_mode, place)
        return _Side(change.old_type, change.old_mode, place, is_special=change.old_type is None)

    def _result(self) -> _Side:
        change, number = self._change, self._item.number
        if change.kind is Kind.DELETED:
            return _Side(None, None, "")
        place = f"result/{number}.rest"
        if self._applies_all or place not in self._kept:
            place = f"result/{number}"
            if place not in self._kept and change.root in self._planner.uppers:
                place = UPPER
        return _Side(change.type, change.mode, place, change.target)

    def _made_side(self, end: str) -> _Side:
        """Return the version `before` or `after` what was really done."""
        place = f"made/{self._item.number}-{self._item.made}.{end}"
        found = self._spot(place).lstat()
        if found is None:
            return _Side(None, None, place)
        type_ = Type.LINK if stat.S_ISLNK(found.st_mode) else Type.FILE
        return _Side(type_, stat.S_IMODE(found.st_mode), place)

    def _part_versions(self) -> tuple[bytes | None, bytes, bytes | None]:
        """Return three texts: before the change, with the hunks that are in the project, and with
        all hunks."""
        item, base, result = self._item, f"base/{self._item.number}", self._result().place
        is_in = item.state is State.APPLIED
        self._keep_from_project(base, item.after if item.state is State.UNDONE else item.base)
        if is_in and not item.made:
            self._keep_from_project(result, item.after)
        before, whole = self._read(base), self._read(result)
        if item.made:
            before, after = self._made_texts()
            return before, after or b"", whole
        return before, (whole if is_in else before) or b"", whole

    def _keep_from_project(self, place: str, known_as: str) -> None:
        """Keep a copy of a version that is only in the project, in a run with many changes."""
        found, spot, kept = self._there.found, self._there.spot, self._spot(place)
        is_it = is_small(found) and signature(found) == known_as
        if spot is not None and is_it and kept.lstat() is None:
            copy_whole(spot, kept)
            self._kept.add(place)

    def _write_pair(self, before: bytes, after: bytes, *, is_part: bool = False) -> None:
        """Keep the file before and after what is really done."""
        self._made, *places = new_pair(self._item.number, is_part=is_part)
        for place, text in zip(places, (before, after), strict=True):
            self._write(place, text, self._mode_there())

    def _write(self, place: str, text: bytes, mode: int) -> None:
        assert self._there.spot is not None
        write_like(self._there.spot, self._spot(place), text, mode)

    def _spot(self, place: str) -> DirEntryAt:
        if place == UPPER:
            return DirEntryAt(*self._planner.uppers[self._change.root].split(self._change.path))
        return self._planner.runs.at(self._run_id, place)

    def _read(self, place: str) -> bytes | None:
        return read_small(self._spot(place))

    def _made_texts(self) -> tuple[bytes | None, bytes | None]:
        return self._read(self._made_side("before").place), self._read(
            self._made_side("after").place
        )

    def _current(self) -> bytes | None:
        spot = self._there.spot
        return None if spot is None else read_small(spot)

    def _is(self, side: _Side) -> bool:
        """Return whether a version is what is at the place."""
        found, spot = self._there.found, self._there.spot
        if found is None or spot is None:
            return not side.is_there
        known_as = self._known_as() if side is self._old else ""
        if known_as and signature(found) == known_as:
            return True
        if side is self._old and self._there.of is not None and self._there.of == self._item.on:
            return True
        if side.type is Type.LINK:
            target = side.target or _read_link(self._spot(side.place))
            is_link = stat.S_ISLNK(found.st_mode) and target is not None
            return is_link and _read_link(spot) == target
        if side.type is not Type.FILE or not stat.S_ISREG(found.st_mode):
            return False
        # `git status` writes the index again, and means the same.
        if side is self._old and os.path.basename(self._change.path) == "index":
            kept = self._spot(side.place)
            if is_same_index(kept.name, kept.dir_fd, spot.name, spot.dir_fd):
                return True
        is_readable = os.access(spot.name, os.R_OK, dir_fd=spot.dir_fd, effective_ids=True)
        if not is_small(found) or not is_readable:
            # Not to be compared: a copy has the same time, size and mode.
            return known_as.partition(":")[2] == signature(found).partition(":")[2]
        kept = self._spot(side.place)
        if not is_small(kept.lstat()):
            return False
        return same_bytes(kept.name, kept.dir_fd, spot.name, spot.dir_fd)

    def _known_as(self) -> str:
        """Return the signature of the old version, if it is in the project."""
        item = self._item
        if self._way is Way.UNDO or item.state in (State.APPLIED, State.UNDONE):
            return item.after
        return item.base if item.on is None else self._planner.left_by(item.on)

    def _mode_there(self) -> int:
        assert self._there.found is not None
        return stat.S_IMODE(self._there.found.st_mode) & 0o1777

    def _merged_mode(self) -> int:
        """Return the mode of the new version: the command's only if it changed the mode, and nobody
        else did."""
        there, old, new = self._mode_there(), self._old.mode, self._new.mode
        if new is not None and (old is None or there == old & 0o1777):
            return new & 0o1777
        return there

    # --- files and links ---------------------------------------------------------------------

    def _put(self) -> Planned:
        found = self._there.found
        if found is None:
            if not self._old.is_there:
                return self._put_new()
            if not self._force:
                raise ConflictError(Reason.REMOVED)
            return self._put_forced()
        if stat.S_ISDIR(found.st_mode):
            raise ConflictError(Reason.IS_FOLDER)
        if self._old.is_there and not is_part(self._item) and self._is(self._old):
            return self._put_new()
        if self._is(self._new) and self._merged_mode() == self._mode_there():
            return self._is_so(signature(found))
        if self._way is Way.BOTH:
            return self._put_both()
        texts = self._texts()
        has_hunks = is_part(self._item) or self._new.place.endswith(".rest")
        merged = merge_change(*texts, has_hunks=has_hunks) if texts else None
        if merged is not None:
            return self._put_text(merged)
        if self._force:
            return self._put_forced()
        if not self._old.is_there:
            raise ConflictError(Reason.PLACE_TAKEN)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            raise ConflictError(Reason.IS_SPECIAL_FILE)
        is_text = texts is not None and not any(b"\0" in text for text in texts)
        raise ConflictError(Reason.SAME_LINES if is_text else Reason.CHANGED)

    def _texts(self) -> tuple[bytes, bytes, bytes] | None:
        """Return the three texts to merge; None if that is impossible."""
        if not (self._old.type is self._new.type is Type.FILE) or not self._item.is_known:
            return None
        old, new = self._read(self._old.place), self._read(self._new.place)
        current = self._current()
        if old is None or new is None or current is None:
            return None
        return old, new, current

    def _put_text(self, text: bytes) -> Planned:
        """Stage a merge. The old text need not be kept: the merge contains it."""
        self._write(self._stage, text, self._merged_mode())
        spot = self._spot(self._stage)
        return self._put_staged(self._stage, spot, _stat(spot))

    def _put_both(self) -> Planned:
        """Stage the user's text with the command's lines added."""
        current, new = self._current(), self._read(self._new.place)
        old = self._read(self._old.place) if self._item.is_known else None
        both = None if current is None or new is None else keep_both(old, new, current)
        if both is None or current is None:
            raise ConflictError(Reason.CHANGED)
        self._write_pair(self._without_part(current), both)
        return self._put_text(both)

    def _without_part(self, current: bytes) -> bytes:
        """Return the user's text without hunks that were applied before: they are undone, too, if
        the change is."""
        before, after = self._made_texts() if is_part(self._item) else (None, None)
        if before is None or after is None:
            return current
        mine = merge_change(after, before, current, has_hunks=True)
        return current if mine is None else mine

    def _put_forced(self) -> Planned:
        """Stage the command's version; what it replaces is kept for an undo."""
        if self._way is Way.UNDO:
            return self._put_new(out=mine_name(self._item.number))
        self._made, before, after = new_pair(self._item.number)
        new = self._spot(self._new.place)
        if new.lstat() is None:
            raise ConflictError(Reason.LOST)
        copy_whole(new, self._spot(after))
        current = self._current() if is_part(self._item) else None
        if current is not None:
            self._write(before, self._without_part(current), self._mode_there())
            before = ""
        return self._put_new(out=before)

    def _put_new(self, out: str | None = None) -> Planned:
        """Stage a kept version: itself if that is safe, or else a copy."""
        slot = self._new.place
        spot = kept = self._spot(slot)
        version = kept.lstat()
        if version is None:
            raise ConflictError(Reason.OTHER_LOST if self._way is Way.UNDO else Reason.LOST)
        if slot == UPPER:
            strip(kept)
        found = self._there.found
        mode = self._merged_mode() if found is not None else (self._new.mode or 0) & 0o1777
        is_link = self._new.type is Type.LINK
        is_right = is_link or self._new.is_special or stat.S_IMODE(version.st_mode) == mode
        is_only = version.st_nlink == 1 and is_right
        copies = self._planner.copies[self._run_id]
        if not is_only or is_link or (copies and is_small(version)):
            slot, spot = self._stage, self._spot(self._stage)
            is_right = self._copy_version(kept, spot, version) and is_right
            if not is_right:
                dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)
            version = _stat(spot)
        if out is None:
            out = self._place_for_old(slot) if found is not None else ""
        return self._put_staged(slot, spot, version, out=out, after=signature(version))

    def _copy_version(self, kept: DirEntryAt, spot: DirEntryAt, version: os.stat_result) -> bool:
        """Copy a kept version; return False if its mode was changed for that, because even its
        owner may not read it."""
        own, now = (self._new.mode or 0) & 0o1777, stat.S_IMODE(version.st_mode)
        # A kill may have left it readable.
        is_open = now == own | stat.S_IRUSR != own and not stat.S_ISLNK(version.st_mode)
        try:
            copy_whole(kept, spot)
        except PermissionError:
            is_open = True
            dirfd.set_mode(kept.name, kept.dir_fd, now | stat.S_IRUSR, any_kind=True)
            copy_whole(kept, spot)
        finally:
            if is_open:
                dirfd.set_mode(kept.name, kept.dir_fd, own, any_kind=True)
        return not is_open

    def _place_for_old(self, slot: str) -> str:
        """Return where to keep the old version when it comes out of the project."""
        if self._old.place and not self._has(self._old.place):
            return self._old.place
        return "" if slot == self._stage else self._stage

    def _has(self, place: str) -> bool:
        if place.startswith("made/"):
            return self._spot(place).lstat() is not None
        return place in self._kept

    def _put_staged(
        self, slot: str, spot: DirEntryAt, staged: os.stat_result, *, out: str = "", after: str = ""
    ) -> Planned:
        number = self._item.number
        # Not if hunks of it were discarded: then it is not what a later command saw.
        is_whole = bool(after) and self._new.place in (UPPER, f"result/{number}")
        of = (self._run_id, number) if is_whole else None
        self._planner.will_be(self._change, _There(staged, spot, is_planned=True, of=of))
        return Planned([self._to_do("put", self._expected(), slot, staged, out, after)])

    def _expected(self) -> Expected | None:
        if self._there.found is None:
            return None
        expected = expect(self._there.found)
        # Moving what is staged into the project changes its change time.
        return (*expected[:4], 0) if self._there.is_planned else expected

    def _remove(self) -> Planned:
        found = self._there.found
        if found is None:
            return self._is_so()
        if stat.S_ISDIR(found.st_mode):
            raise ConflictError(Reason.IS_FOLDER)
        slot = self._old.place
        if not self._is(self._old):
            if not self._force:
                raise ConflictError(Reason.CHANGED)
            if self._way is Way.UNDO:
                slot = mine_name(self._item.number)
            else:
                self._made, slot, _ = new_pair(self._item.number)
        slot = self._stage if self._has(slot) else slot
        self._planner.will_be(self._change, _There(None, None))
        return Planned([self._to_do("remove", self._expected(), slot)])

    # --- folders -----------------------------------------------------------------------------

    def _mode(self, found: int) -> Planned:
        there, old, new = found & 0o1777, self._old.mode, self._new.mode
        if new is None or there == new & 0o1777:
            return self._is_so()
        if old is not None and there != old & 0o1777 and not self._force:
            raise ConflictError(Reason.CHANGED)
        return Planned([self._to_do("mode", mode=new & 0o1777)])

    def _make_folder(self) -> Planned:
        if _is_folder(self._there.found):
            return self._is_so()
        if self._there.found is not None and not self._old.is_there:
            raise ConflictError(Reason.PLACE_TAKEN)
        removed = self._remove().items
        mode = (self._new.mode or 0) & 0o1777
        self._planner.will_be(self._change, _There(_A_FOLDER, None), is_folder=True)
        return Planned([*removed, self._to_do("mkdir", mode=mode)])

    def _to_do(
        self,
        does: str,
        expected: Expected | None = None,
        slot: str = "",
        staged: os.stat_result | None = None,
        out: str = "",
        after: str = "",
        mode: int = 0,
    ) -> Item:
        inode, modified = (staged.st_ino, staged.st_mtime_ns) if staged else (0, 0)
        return Item(
            self._run_id, self._item.number, self._change.root, self._change.path, does,
            expected, slot, inode, modified, out, after, mode,
            self._state.value, self._otherwise.value, self._made,
        )  # fmt: skip

    def _is_so(self, after: str = "") -> Planned:
        """Return the change as done, because the project is like that already."""
        done = self._item._replace(state=self._state, note=None, after=after, made=self._made)
        return Planned([], done)


def _is_folder(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISDIR(found.st_mode)


def _is_in_replaced_folder(change: Change) -> bool:
    """Return whether a folder around a change is now a file or a link."""
    around = (f"{change.root}/{folder}" for folder in folders_above(change.path))
    return any(
        os.path.lexists(folder) and (os.path.islink(folder) or not os.path.isdir(folder))
        for folder in around
    )


def _stat(spot: DirEntryAt) -> os.stat_result:
    return os.stat(spot.name, dir_fd=spot.dir_fd, follow_symlinks=False)


def _read_link(spot: DirEntryAt) -> str | None:
    try:
        return os.readlink(spot.name, dir_fd=spot.dir_fd)
    except FileNotFoundError:
        return None


def refused(item: Recorded, failed: State, note: Note) -> Planned:
    """Return the plan of a change that is left as it is."""
    state = item.state if item.state in _DECIDED else failed
    return Planned([], in_conflict(item._replace(state=state), note), failed)
