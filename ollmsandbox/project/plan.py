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
from .change import MANY, Kind, Recorded, State, Type
from .jobs import in_conflict, modes_note, note_planning
from .reasons import Note, Reason
from .run import (
    OpenRuns,
    is_part,
    is_small,
    mine_name,
    new_pair,
    read_run,
    read_small,
    signature,
)
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
    # Its signature, if it is in the project.
    known_as: str = ""
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
        self._uppers = {root: OpenTree(upper) for root, upper in (uppers or {}).items()}
        self.runs = OpenRuns(paths)
        self._trees: dict[str, OpenTree] = {}
        # What will be at a place, by root and path; and of these, folders that come or go.
        self._planned: dict[tuple[str, str], _There] = {}
        self._folders: dict[tuple[str, str], _There] = {}
        # Whether a run keeps copies of the versions that are in the project.
        self._copies: dict[str, bool] = {}
        # The names of the versions that a run keeps, such as "base/7".
        self._kept: dict[str, set[str]] = {}
        self._known: dict[str, list[Recorded]] = {}

    def close(self) -> None:
        self.runs.close()
        for tree in self._trees.values():
            tree.close()
        self._trees.clear()
        for upper in self._uppers.values():
            upper.leave()
        self._uppers.clear()

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def begin(self, run_id: str, changes: int) -> None:
        """Prepare to plan changes of a run. If it has too many, it keeps no copies of versions."""
        if run_id not in self._copies:
            self._copies[run_id] = changes < MANY
            note_planning(self._paths, self._project, run_id)
            self._kept[run_id] = {
                f"{part}/{name}"
                for part in ("base", "result")
                for name in os.listdir(self.runs.folder(run_id, part))
            }

    def is_kept(self, run_id: str, place: str) -> bool:
        """Return whether a run keeps a version there."""
        return place in self._kept[run_id]

    def upper(self, root: str) -> OpenTree | None:
        """Return the upper folder that has the results of a run."""
        return self._uppers.get(root)

    def note_kept(self, run_id: str, place: str) -> None:
        self._kept[run_id].add(place)

    def left_by(self, on: tuple[str, int]) -> str:
        """Return the signature of what an applied change left in the project; "" if it is not
        applied."""
        run_id, number = on
        if run_id not in self._known:
            self._known[run_id] = read_run(self._paths, run_id).changes
        rest = self._paths.runs / run_id / "result" / f"{number}.rest"
        found = [item for item in self._known[run_id] if item.number == number]
        is_whole = found and found[0].state is State.APPLIED and not found[0].made
        return found[0].after if is_whole and not rest.exists() else ""

    def mark(self) -> tuple[object, ...]:
        """Return a snapshot for `reset`."""
        return dict(self._planned), dict(self._folders)

    def reset(self, mark: tuple[object, ...]) -> None:
        self._planned, self._folders = mark  # type: ignore[assignment]

    def plan(self, run_id: str, item: Recorded, way: Way, *, force: bool = False) -> Planned:
        """Plan one change. With `force`, it replaces whatever is there, unless it can be merged."""
        try:
            return _Plan(self, run_id, item, way, force=force).make()
        except ConflictError as conflict:
            is_lost = conflict.reason is Reason.LOST
            state = State.FAILED if is_lost else State.CONFLICT
            return _failed(item, state, Note(conflict.reason))
        except (FileNotFoundError, NotADirectoryError):
            reason = self._missing_reason(item)
            gone = Kind.ADDED if way is Way.UNDO else Kind.DELETED
            if reason is Reason.ROOT_MISSING and item.change.kind is gone:
                state = State.UNDONE if way is Way.UNDO else State.APPLIED
                return Planned([], item._replace(state=state, note=None, after=""))
            state = State.FAILED if reason is Reason.ROOT_MISSING else State.CONFLICT
            return _failed(item, state, Note(reason))
        except OSError as error:
            return _failed(item, State.FAILED, Note.of_error(error))

    def plan_part(self, run_id: str, item: Recorded, old: bytes, new: bytes) -> Planned:
        """Plan some hunks of a change, given as the two versions that they are between."""
        try:
            return _Plan(self, run_id, item, Way.PART, force=False).make_part(old, new)
        except ConflictError as conflict:
            return Planned([], item._replace(note=Note(conflict.reason)), State.CONFLICT)
        except OSError as error:
            return Planned([], item._replace(note=Note.of_error(error)), State.FAILED)

    def _missing_reason(self, item: Recorded) -> Reason:
        """Return why there is no folder for a change."""
        for folder in reversed([*folders_above(item.change.path)]):
            try:
                found = os.lstat(f"{item.change.root}/{folder}")
            except FileNotFoundError:
                break
            if not stat.S_ISDIR(found.st_mode):
                return Reason.PARENT_REPLACED
        return Reason.ROOT_MISSING

    def has_folder(self, root: str, path: str) -> bool:
        """Return whether there is a folder at a path, now or when the job gets there."""
        try:
            found = self.there(root, path).found
        except OSError:
            return False
        return found is not None and stat.S_ISDIR(found.st_mode)

    def there(self, root: str, path: str) -> _There:
        """Return what will be at a path when the items before are done."""
        if (root, path) in self._planned:
            return self._planned[root, path]
        for folder in folders_above(path) if self._folders else ():
            around = self._folders.get((root, folder))
            if around is not None and (
                around.found is None or not stat.S_ISDIR(around.found.st_mode)
            ):
                raise NotADirectoryError(folder)
            if around is not None and around.spot is None:
                return _There(None, None)  # in a folder that is made by then
        spot = DirEntryAt(*self._tree(root).split(path))
        return _There(spot.lstat(), spot)

    def folder_mode(self, root: str, path: str, found: os.stat_result | None = None) -> int:
        """Return the mode of a folder, from before it was made accessible to be looked into."""
        tree = self._tree(root)
        before = tree.mode_before(path)
        if before is not None:
            return before
        return (found or os.fstat(tree.folder(path))).st_mode

    def will_be(self, root: str, path: str, there: _There, *, is_folder: bool = False) -> None:
        self._planned[root, path] = there
        if is_folder or (root, path) in self._folders:
            self._folders[root, path] = there

    def copies(self, run_id: str) -> bool:
        return self._copies.get(run_id, True)

    def _tree(self, root: str) -> OpenTree:
        if root not in self._trees:
            note = modes_note(self._paths, self._project, root)
            self._trees[root] = OpenTree(root, note, top=dirfd.open_root(root), is_durable=True)
        return self._trees[root]


# Stands for a folder that the job will create.
_A_FOLDER = os.stat("/")


class _Plan:
    """Plans one change in one way."""

    def __init__(
        self, planner: Planner, run_id: str, item: Recorded, way: Way, *, force: bool
    ) -> None:
        self._planner = planner
        self._runs = planner.runs
        self._run_id = run_id
        self._item = item
        self._change = item.change
        self._way = way
        self._force = force
        self._old, self._new = self._sides()
        is_undo = way is Way.UNDO
        self._state = State.UNDONE if is_undo else State.APPLIED
        # A change that cannot be undone or made again is what it was.
        was = item.state
        self._otherwise = was if was in _DECIDED else State.CONFLICT
        self._made = "" if is_part(item) else item.made
        self._there = _There(None, None)

    def make(self) -> Planned:
        if self._applies_all and self._planner.is_kept(
            self._run_id, f"result/{self._item.number}.rest"
        ):
            self._made = self._pair_of_all()
        if self._change.path == ".":
            return self._mode(self._planner.folder_mode(self._change.root, ""))
        self._there = self._planner.there(self._change.root, self._change.path)
        if self._old.type is Type.FOLDER and self._new.type is Type.FOLDER:
            found = self._there.found
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise ConflictError(Reason.REMOVED)
            root, path = self._change.root, self._change.path
            return self._mode(self._planner.folder_mode(root, path, found))
        items: list[Item] = []
        if self._old.type is Type.FOLDER:
            items += self._remove_folder()
        if self._new.type is Type.FOLDER:
            return self._make_folder()
        if self._new.is_there:
            return self._put(items)
        if self._old.type is Type.FOLDER:
            return Planned(items) if items else self._is_so()
        return self._remove()

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
        was_pending = self._item.state not in _DECIDED
        state = self._item.state if was_pending else State.APPLIED
        # What the user decided before stays one side of the pair.
        is_decision = bool(self._item.made) and not is_part(self._item)
        made = self._item.made if is_decision else ""
        if part == base:
            state = self._item.state if was_pending else State.UNDONE
        elif part == whole and not is_decision and self._change.mode == self._change.old_mode:
            state = State.APPLIED
        else:
            made = self._store_pair(base, part, is_part=not is_decision)
        self._state, self._otherwise, self._made = state, self._item.state, made
        if merged == current:
            return self._is_so()
        return Planned([self._put_text(merged)])

    # --- versions ----------------------------------------------------------------------------

    def _sides(self) -> tuple[_Side, _Side]:
        """Return the version that is expected in the project, and the one that replaces it."""
        item = self._item
        is_undo = self._way is Way.UNDO
        is_decided = item.state in (State.APPLIED, State.UNDONE)
        known_as = item.after if is_decided or is_undo else item.base
        if item.on is not None and not is_decided and not is_undo:
            known_as = self._planner.left_by(item.on)
        if item.made and (is_decided or is_part(item)):
            before, after = self._made_sides()
            old, new = (after, before) if is_undo else (before, after)
            if is_part(item) and not is_undo:
                # A part of it is in the project.
                old, new = after, self._result()
            return old._replace(known_as=known_as), new
        if is_undo:
            return self._result(known_as), self._base()
        return self._base(known_as), self._result()

    def _base(self, known_as: str = "") -> _Side:
        change, place = self._change, f"base/{self._item.number}"
        is_added = change.kind is Kind.ADDED
        is_special = change.old_type is None and not is_added
        old_type = None if is_added else change.old_type
        target = _read_link(self._spot(place)) if old_type is Type.LINK else None
        return _Side(old_type, change.old_mode, place, known_as, target, is_special)

    def _result(self, known_as: str = "") -> _Side:
        change, number = self._change, self._item.number
        if change.kind is Kind.DELETED:
            return _Side(None, None, "", known_as)
        place = f"result/{number}.rest"
        if self._applies_all or not self._planner.is_kept(self._run_id, place):
            place = f"result/{number}"
            is_taken = self._planner.is_kept(self._run_id, place)
            if not is_taken and self._planner.upper(change.root) is not None:
                place = UPPER
        return _Side(change.type, change.mode, place, known_as, change.target)

    def _made_sides(self) -> tuple[_Side, _Side]:
        name = f"made/{self._item.number}-{self._item.made}"
        sides = []
        for place in (f"{name}.before", f"{name}.after"):
            found = self._spot(place).lstat()
            if found is None:
                sides.append(_Side(None, None, place))
            else:
                is_link = stat.S_ISLNK(found.st_mode)
                target = _read_link(self._spot(place)) if is_link else None
                mode = stat.S_IMODE(found.st_mode)
                type_ = Type.LINK if is_link else Type.FILE
                sides.append(_Side(type_, mode, place, target=target))
        return sides[0], sides[1]

    def _part_versions(self) -> tuple[bytes | None, bytes, bytes | None]:
        """Return three texts: before the change, with the hunks that are in the project, and with
        all hunks."""
        item = self._item
        is_in = item.state is State.APPLIED
        known_as = item.after if item.state is State.UNDONE else item.base
        self._keep_from_project(f"base/{item.number}", known_as)
        if is_in and not item.made:
            self._keep_from_project(self._result().place, item.after)
        base = read_small(self._spot(f"base/{item.number}"))
        whole = read_small(self._spot(self._result().place))
        if item.made:
            before, after = (read_small(self._spot(side.place)) for side in self._made_sides())
            return before, after or b"", whole
        return base, (whole if is_in else base) or b"", whole

    def _keep_from_project(self, place: str, known_as: str) -> None:
        """Keep a copy of a version that is only in the project, in a run with many changes."""
        found, spot, kept = self._there.found, self._there.spot, self._spot(place)
        is_it = spot is not None and is_small(found) and signature(found) == known_as
        if spot is not None and is_it and kept.lstat() is None:
            copy_whole(spot, kept)
            self._planner.note_kept(self._run_id, place)

    @property
    def _applies_all(self) -> bool:
        """Return whether a discarded change is applied, also with hunks discarded before that."""
        return self._item.state is State.DISCARDED and self._way is Way.APPLY

    def _pair_of_all(self) -> str:
        name, before, after = new_pair(self._item.number)
        for kept, place in (("base", before), ("result", after)):
            copy_whole(self._spot(f"{kept}/{self._item.number}"), self._spot(place))
        return name

    def _store_pair(self, before: bytes, after: bytes, *, is_part: bool) -> str:
        name, first, second = new_pair(self._item.number, is_part=is_part)
        spot = self._there.spot
        assert spot is not None
        for place, data in ((first, before), (second, after)):
            write_like(spot, self._spot(place), data, self._mode_there())
        return name

    def _spot(self, place: str) -> DirEntryAt:
        if place == UPPER:
            upper = self._planner.upper(self._change.root)
            assert upper is not None
            return DirEntryAt(*upper.split(self._change.path))
        return self._runs.at(self._run_id, place)

    def _is(self, side: _Side) -> bool:
        """Return whether a version is what is at the place."""
        found, spot = self._there.found, self._there.spot
        if found is None or spot is None:
            return not side.is_there
        if side.known_as and signature(found) == side.known_as:
            return True
        if side is self._old and self._there.of is not None and self._there.of == self._item.on:
            return True
        if side.type is Type.LINK:
            is_link = stat.S_ISLNK(found.st_mode) and side.target is not None
            return is_link and _read_link(spot) == side.target
        if side.type is not Type.FILE or not stat.S_ISREG(found.st_mode):
            return False
        is_readable = os.access(spot.name, os.R_OK, dir_fd=spot.dir_fd, effective_ids=True)
        if not is_small(found) or not is_readable:
            # Not to be compared: a copy has the same time, size and mode.
            return side.known_as.partition(":")[2] == signature(found).partition(":")[2]
        kept = self._spot(side.place)
        if not is_small(kept.lstat()):
            return False
        return same_bytes(kept.name, kept.dir_fd, spot.name, spot.dir_fd)

    def _current(self) -> bytes | None:
        spot = self._there.spot
        return None if spot is None else read_small(spot)

    def _mode_there(self) -> int:
        assert self._there.found is not None
        return stat.S_IMODE(self._there.found.st_mode) & 0o1777

    def _merged_mode(self) -> int:
        """Return the mode of the new version: the command's only if it changed the mode, and nobody
        else did."""
        there, old, new = self._mode_there(), self._old.mode, self._new.mode
        is_own = new is not None and (old is None or there == old & 0o1777)
        return new & 0o1777 if is_own and new is not None else there

    # --- files and links ---------------------------------------------------------------------

    def _put(self, items: list[Item]) -> Planned:
        found = self._there.found
        if items:
            # In the place of a folder that is removed before.
            return Planned([*items, self._put_new(None)])
        if found is None:
            if self._old.is_there and not self._force:
                raise ConflictError(Reason.REMOVED)
            if self._old.is_there:
                return Planned([self._put_forced()])
            return Planned([self._put_new(None)])
        if stat.S_ISDIR(found.st_mode):
            raise ConflictError(Reason.IS_FOLDER)
        if self._old.is_there and not is_part(self._item) and self._is(self._old):
            return Planned([self._put_new(found)])
        if self._is(self._new) and self._merged_mode() == self._mode_there():
            return self._is_so(signature(found))
        if self._way is Way.BOTH:
            return Planned([self._put_both()])
        merged = self._merge()
        if merged is not None:
            return Planned([self._put_text(merged)])
        if self._force:
            return Planned([self._put_forced()])
        raise ConflictError(self._why_not())

    def _why_not(self) -> Reason:
        found = self._there.found
        assert found is not None
        if not self._old.is_there:
            return Reason.PLACE_TAKEN
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            return Reason.IS_SPECIAL_FILE
        is_text = self._old.type is self._new.type is Type.FILE and stat.S_ISREG(found.st_mode)
        has_both = is_text and None not in self._texts() and self._current() is not None
        return Reason.SAME_LINES if has_both and self._item.is_known else Reason.CHANGED

    def _texts(self) -> tuple[bytes | None, bytes | None]:
        return read_small(self._spot(self._old.place)), read_small(self._spot(self._new.place))

    def _merge(self) -> bytes | None:
        """Return the file with the change merged in; None if it is a conflict."""
        if not (self._old.type is self._new.type is Type.FILE) or not self._item.is_known:
            return None
        (old, new), current = self._texts(), self._current()
        if old is None or new is None or current is None:
            return None
        has_hunks = is_part(self._item) or self._new.place.endswith(".rest")
        return merge_change(old, new, current, has_hunks=has_hunks)

    def _put_text(self, text: bytes) -> Item:
        """Stage a merge. The old text need not be kept: the merge contains it."""
        there = self._there
        assert there.spot is not None and there.found is not None
        stage = f"stage/{self._item.number}"
        spot = self._spot(stage)
        write_like(there.spot, spot, text, self._merged_mode())
        staged = os.stat(spot.name, dir_fd=spot.dir_fd, follow_symlinks=False)
        return self._item_to_put(stage, spot, staged, there.found, out="", after="")

    def _put_both(self) -> Item:
        """Stage the user's text with the command's lines added."""
        current, new = self._current(), read_small(self._spot(self._new.place))
        old = read_small(self._spot(self._old.place)) if self._item.is_known else None
        both = None if current is None or new is None else keep_both(old, new, current)
        if both is None or current is None:
            raise ConflictError(Reason.CHANGED)
        name, before, after = new_pair(self._item.number)
        spot = self._there.spot
        assert spot is not None
        for place, text in ((before, self._without_part(current)), (after, both)):
            write_like(spot, self._spot(place), text, self._mode_there())
        self._made = name
        return self._put_text(both)

    def _without_part(self, current: bytes) -> bytes:
        """Return the user's text without hunks that were applied before: they are undone, too, if
        the change is."""
        if not is_part(self._item):
            return current
        before, after = (read_small(self._spot(side.place)) for side in self._made_sides())
        mine = None
        if before is not None and after is not None:
            mine = merge_change(after, before, current, has_hunks=True)
        return current if mine is None else mine

    def _put_forced(self) -> Item:
        """Stage the command's version; what it replaces is kept for an undo."""
        if self._way is Way.UNDO:
            return self._put_new(self._there.found, out=mine_name(self._item.number))
        name, before, after = new_pair(self._item.number)
        new = self._spot(self._new.place)
        if new.lstat() is None:
            raise ConflictError(Reason.LOST)
        copy_whole(new, self._spot(after))
        current, spot = self._current(), self._there.spot
        if is_part(self._item) and current is not None and spot is not None:
            mine = self._without_part(current)
            write_like(spot, self._spot(before), mine, self._mode_there())
            before = ""
        self._made = name
        return self._put_new(self._there.found, out=before)

    def _put_new(self, found: os.stat_result | None, out: str | None = None) -> Item:
        """Stage a kept version: itself if that is safe, or else a copy."""
        place = self._new.place
        kept = self._spot(place)
        version = kept.lstat()
        if version is None:
            lost = Reason.OTHER_LOST if self._way is Way.UNDO else Reason.LOST
            raise ConflictError(lost)
        if place == UPPER:
            strip(kept)
        mode = self._merged_mode() if found is not None else (self._new.mode or 0) & 0o1777
        is_link = self._new.type is Type.LINK
        is_right = is_link or self._new.is_special or stat.S_IMODE(version.st_mode) == mode
        is_only = version.st_nlink == 1 and is_right
        slot, spot = place, kept
        if not is_only or is_link or (self._planner.copies(self._run_id) and is_small(version)):
            stage = f"stage/{self._item.number}"
            slot, spot = stage, self._spot(stage)
            is_right = self._copy_version(kept, spot, version) and is_right
            if not is_right:
                dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)
            version = os.stat(spot.name, dir_fd=spot.dir_fd, follow_symlinks=False)
        if out is None:
            out = self._place_for_old(slot) if found is not None else ""
        after = signature(version)
        return self._item_to_put(slot, spot, version, found, out=out, after=after)

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
        return "" if slot.startswith("stage/") else f"stage/{self._item.number}"

    def _has(self, place: str) -> bool:
        """Return whether the run keeps a version there."""
        if place.startswith("made/"):
            return self._spot(place).lstat() is not None
        return self._planner.is_kept(self._run_id, place)

    def _item_to_put(
        self,
        slot: str,
        spot: DirEntryAt,
        staged: os.stat_result,
        found: os.stat_result | None,
        *,
        out: str,
        after: str,
    ) -> Item:
        change, number = self._change, self._item.number
        # Not if hunks of it were discarded: then it is not what a later command saw.
        is_whole = bool(after) and self._new.place in (UPPER, f"result/{number}")
        of = (self._run_id, number) if is_whole else None
        there = _There(staged, spot, is_planned=True, of=of)
        self._planner.will_be(change.root, change.path, there)
        return Item(
            self._run_id, number, change.root, change.path, "put", self._expected(found), slot,
            staged.st_ino, staged.st_mtime_ns, out, after, 0,
            self._state.value, self._otherwise.value, self._made,
        )  # fmt: skip

    def _expected(self, found: os.stat_result | None) -> Expected | None:
        if found is None:
            return None
        expected = expect(found)
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
        if not slot.startswith("mine-") and self._has(slot):
            slot = f"stage/{self._item.number}"
        self._planner.will_be(self._change.root, self._change.path, _There(None, None))
        item = self._to_do("remove")._replace(expected=self._expected(found), slot=slot)
        return Planned([item])

    # --- folders -----------------------------------------------------------------------------

    def _mode(self, found: int) -> Planned:
        there, old, new = found & 0o1777, self._old.mode, self._new.mode
        if new is None or there == new & 0o1777:
            return self._is_so()
        if old is not None and there != old & 0o1777 and not self._force:
            raise ConflictError(Reason.CHANGED)
        return Planned([self._to_do("mode")._replace(mode=new & 0o1777)])

    def _make_folder(self) -> Planned:
        found, items = self._there.found, []
        if found is not None and stat.S_ISDIR(found.st_mode):
            return self._is_so()
        if found is not None:
            if not self._old.is_there or self._old.type is Type.FOLDER:
                raise ConflictError(Reason.PLACE_TAKEN)
            items = self._remove().items
        mode = 0o755 if self._new.mode is None else self._new.mode & 0o1777
        self._planner.will_be(
            self._change.root, self._change.path, _There(_A_FOLDER, None), is_folder=True
        )
        return Planned([*items, self._to_do("mkdir")._replace(mode=mode)])

    def _remove_folder(self) -> list[Item]:
        found = self._there.found
        if found is None or not stat.S_ISDIR(found.st_mode):
            return []
        self._planner.will_be(
            self._change.root, self._change.path, _There(None, None), is_folder=True
        )
        return [self._to_do("rmdir")]

    def _to_do(self, does: str) -> Item:
        change = self._change
        return Item(
            self._run_id,
            self._item.number,
            change.root,
            change.path,
            does,
            state=self._state.value,
            otherwise=self._otherwise.value,
            made=self._made,
        )

    def _is_so(self, after: str = "") -> Planned:
        """Return the change as done, because the project is like that already."""
        done = self._item._replace(state=self._state, note=None, after=after, made=self._made)
        return Planned([], done)


def _read_link(spot: DirEntryAt) -> str | None:
    try:
        return os.readlink(spot.name, dir_fd=spot.dir_fd)
    except FileNotFoundError:
        return None


def _failed(item: Recorded, failed: State, note: Note) -> Planned:
    state = item.state if item.state in _DECIDED else failed
    return Planned([], in_conflict(item._replace(state=state), note), failed)
