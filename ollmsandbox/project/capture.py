# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what a command wrote into numbered changes, and keeps the base of each.

The project is not touched. After a kill, it is repeated, until the list of changes is written. This
is the only place that compares times with the beginning of the run: the command did not see what
was changed after it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..files import dirfd
from ..files.copying import copy_whole
from ..files.dirfd import DirEntryAt, OpenTree
from ..files.overlayfs import is_copied_up, origin_of
from ..paths import FolderValues, Paths, real_path
from ..sandbox.overlay import Overlay, Root, clock_offset
from .change import MANY, Change, Kind, Recorded, Skipped, State, Type, folders_around
from .held.git.view import View
from .index import replaced_since
from .jobs import in_conflict
from .layer import layer_index
from .projects import ProjectManager
from .reasons import Note, Reason
from .run import OpenRuns, RunFolder, RunInfo, is_small, signature
from .scan import scan

# Nanoseconds. If the clock was set back by less, that is taken for a measurement error.
_JITTER = 1_000_000
# Added to a larger step back, to be safe.
_SLACK = 1_000_000_000
_CHANGED, _REMOVED = Note(Reason.CHANGED), Note(Reason.REMOVED)


class Captured(NamedTuple):
    items: list[Recorded]
    skipped: tuple[Skipped, ...]


def find_changes(paths: Paths, overlay: Overlay) -> Captured:
    """List and number the changes, without keeping anything."""
    layers = {
        root.path: (overlay.uppers[root.path], *filter(os.path.isdir, root.lowers))
        for root in overlay.roots
    }
    own = tuple({real_path(path) for path in (*paths.own, paths.playground)})
    view = View(layers, (*map(str, paths.own), *own))
    sets = [scan(root, view, partial(_index_pack, paths)) for root in layers]
    skipped = tuple(skip for found in sets for skip in found.skipped)
    changes = [change for found in sets for change in found.changes]
    began = _began(overlay)
    edits = {
        root: _OutsideEdits(root, upper, began[root]) for root, upper in overlay.uppers.items()
    }
    notes = {(root, path): note for root, found in zip(layers, sets, strict=True)
             for path, note in found.notes.items()}  # fmt: skip
    items = _number_changes(changes, edits)
    if notes:
        items = [
            item._replace(note=item.note or notes.get((item.change.root, item.change.path)))
            for item in items
        ]
    return Captured(items, skipped)


# In memory, without any configuration, and with limits for memory and the size of the index.
_INDEX_PACK = """
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_CEILING_DIRECTORIES=/run HOME=/run
cd /run && ulimit -v 8388608 && ulimit -f 262144 || exit
git index-pack --threads=1 --object-format="$1" -o made.idx /proc/self/fd/0 >&2 && cat made.idx
"""
_MOST_OF_INDEX, _LONGEST = 128 << 20, 300


def _index_pack(paths: Paths, pack: int, width: int) -> bytes | None:
    """Return the index that git itself makes for a pack, of which every object is read."""
    from ..sandbox.isolated import run_isolated  # few commands leave a pack

    hash_ = "sha1" if width == 20 else "sha256"
    argv = ("/bin/sh", "-c", _INDEX_PACK, "sh", hash_)
    return run_isolated(argv, pack, os.environ, paths=paths, most=_MOST_OF_INDEX, timeout=_LONGEST)


def _began(overlay: Overlay) -> dict[str, int]:
    """Return when the run began, for each root by the clock of its file system. If the clock was
    set back since, return an earlier time."""
    set_back = overlay.clock - clock_offset()
    back = set_back + _SLACK if set_back > _JITTER else 0
    return {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}


def capture(
    manager: ProjectManager, overlay: Overlay, info: RunInfo, found: Captured
) -> list[Recorded]:
    """Keep the changes that were found, with the base of each, and return them."""
    run = RunFolder(manager.paths, overlay.run_id)
    run.create(info)
    began = _began(overlay)
    items: list[Recorded] = []
    copies = len(found.items) < MANY
    with contextlib.closing(OpenRuns(manager.paths)) as runs:
        for root in overlay.roots:
            bases = _Bases(manager, runs, run.id, root, began[root.path], copies=copies)
            with contextlib.closing(bases):
                here = [item for item in found.items if item.change.root == root.path]
                items += map(bases.keep, here)
    items.sort(key=lambda item: item.number)
    run.make_durable()
    run.append(item for item in items if item.state is State.CONFLICT)
    # Last: with this, the run is captured.
    run.write_changes(info, items)
    return items


class _Bases:
    """Keeps the versions that the command saw in one root."""

    def __init__(
        self,
        manager: ProjectManager,
        runs: OpenRuns,
        run_id: str,
        root: Root,
        began: int,
        *,
        copies: bool,
    ) -> None:
        self._manager = manager
        self._runs = runs
        self._run_id = run_id
        self._began = began
        self._copies = copies
        # None if the layer that the command saw is lost: then no base is known.
        self._on: Mapping[str, tuple[str, int]] | None = {}
        self._layer = None
        if root.layer:
            try:
                self._on = layer_index(root.layer)
                self._layer = OpenTree(root.layer)
            except (OSError, ValueError, KeyError):
                self._on = None
        self._project = OpenTree(root.path, top=dirfd.open_root(root.path))

    def close(self) -> None:
        self._project.leave()
        if self._layer is not None:
            self._layer.leave()

    def keep(self, item: Recorded) -> Recorded:
        """Keep the base of a change, if it has one; return the change with facts about its base."""
        change = item.change
        if item.state is State.CONFLICT or self._on is None:
            return _unknown(item)
        on = self._on.get(change.path)
        has_base = change.kind is not Kind.ADDED and change.old_type is not Type.FOLDER
        if on is None:
            return self._keep_from_project(item) if has_base else item
        if has_base and change.old_type is not None:
            assert self._layer is not None
            kept = self._kept(item)
            kept.unlink(missing_ok=True)
            DirEntryAt(*self._layer.split(change.path)).link_to(kept)
        return item._replace(on=on)

    def _kept(self, item: Recorded) -> DirEntryAt:
        return self._runs.at(self._run_id, f"base/{item.number}")

    def _keep_from_project(self, item: Recorded) -> Recorded:
        try:
            seen = DirEntryAt(*self._project.split(item.change.path))
            found = seen.lstat()
        except OSError:
            found = None
        if found is None:
            return _unknown(item)  # somebody deleted it
        if found.st_ctime_ns > self._began:
            return self._find_earlier(item)
        # A file with another name could be changed through that, if it were moved.
        is_linked = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
        is_cheap = is_small(found) or stat.S_ISLNK(found.st_mode)
        if (self._copies and is_cheap) or is_linked:
            kept = self._kept(item)
            # What cannot be read can be moved away, and put back.
            with contextlib.suppress(PermissionError):
                copy_whole(seen, kept)
                now = seen.lstat()
                if now is None or now.st_ctime_ns != found.st_ctime_ns:
                    kept.unlink()
                    return _unknown(item)
        return item._replace(base=signature(found))

    def _find_earlier(self, item: Recorded) -> Recorded:
        """Look for the version that the command saw with a run that has replaced it since."""
        # Do not create the database for that.
        has_runs = self._manager.paths.database.exists()
        place = item.change[:2]
        for run, number in replaced_since(self._manager, *place, self._began) if has_runs else ():
            theirs = self._runs.at(run, f"base/{number}")
            if theirs.lstat() is not None:
                copy_whole(theirs, self._kept(item))
                return item
        return _unknown(item)


def _unknown(item: Recorded) -> Recorded:
    """Return a change as a conflict: what the command saw is not known."""
    unknown = item._replace(state=State.CONFLICT, is_known=False)
    return in_conflict(unknown, item.note or _CHANGED)


# --- folders that others moved or deleted while the command ran -----------------------------------
# Moving a folder, or deleting it with its content, leaves no mark on the files themselves.


class _FolderEdits(NamedTuple):
    """The edits that others made to one folder since the command began."""

    has_changed: bool = False
    # Something was added to it or removed from it.
    has_other_names: bool = False
    is_moved: bool = False
    # It is missing, but existed when the command looked.
    is_removed: bool = False


class _OutsideEdits:
    """Finds the edits that others made to folders of one root while a command ran."""

    def __init__(self, root: str, upper: str, began: int) -> None:
        self._root = root
        self._upper = upper
        self._began = began
        # By the path of the folder.
        self.edits = FolderValues(self._look("", _FolderEdits()), self._look)
        # The inodes on disk of files that the command deleted or replaced.
        self._left: set[int] | None = None

    def was_there(self, path: str, changes: Sequence[Change]) -> bool:
        """Return whether a file that is missing on disk was one of the project's.

        A file that the command moved there has the same mark, so the inodes of those are compared.
        If in doubt, the command created the file.
        """
        file = f"{self._upper}/{path}"
        if not is_copied_up(file) or os.lstat(file).st_nlink > 1:
            return False
        if self._left is None:
            self._left = set()
            for change in changes:
                if change.root == self._root and self._may_have_left(change):
                    with contextlib.suppress(OSError):
                        self._left.add(os.lstat(f"{self._root}/{change.path}").st_ino)
        origin = origin_of(file)
        return not self._left or (origin is not None and origin not in self._left)

    def _may_have_left(self, change: Change) -> bool:
        """Return whether the command may have moved the file away that was at this path."""
        if change.old_type is not Type.FILE or change.kind is Kind.ADDED:
            return False
        return change.kind is Kind.DELETED or not is_copied_up(f"{self._upper}/{change.path}")

    def _look(self, folder: str, around: _FolderEdits) -> _FolderEdits:
        try:
            there = os.lstat(f"{self._root}/{folder}")
        except OSError:
            may_be = around.has_changed or around.is_removed
            return _FolderEdits(is_removed=may_be and is_copied_up(f"{self._upper}/{folder}"))
        has_changed = there.st_ctime_ns > self._began
        has_other_names = there.st_mtime_ns > self._began
        # A rename changes the folder's change time only, and the modification time of its parent.
        is_moved = has_changed and not has_other_names and around.has_other_names
        return _FolderEdits(has_changed, has_other_names, is_moved or around.is_moved)


def _number_changes(
    changes: Sequence[Change], roots: Mapping[str, _OutsideEdits]
) -> list[Recorded]:
    """Number the changes, and mark conflicts: changes in folders that others moved or deleted.

    A folder whose mode only others changed is not a change of the command: leave it out.
    """
    items: list[Recorded] = []
    removed: set[int] = set()
    last = None
    for change in changes:
        number = len(items)
        root, path, kind, type_ = change[:4]
        place = (root, path.rpartition("/")[0])
        if place != last:
            here = roots[root]
            around = here.edits[place[1]]
            is_quiet = not (around.has_changed or around.is_removed or around.is_moved)
            last = place
        if is_quiet and type_ is not Type.FOLDER:
            # The usual case.
            items.append(Recorded(number, change))
            continue
        state, note = State.PENDING, None
        if kind is not Kind.ADDED:
            itself = here.edits[path] if type_ is Type.FOLDER else _FolderEdits()
            is_mode = kind is Kind.MODIFIED and itself.has_changed
            # If its names were changed, and perhaps its mode, nobody can tell whose mode is new.
            if around.is_moved or itself.is_moved or (is_mode and itself.has_other_names):
                state, note = State.CONFLICT, _CHANGED
            elif is_mode:
                # The upper folder has the mode from before: overlayfs copied it with the first
                # name that the command wrote.
                continue
        elif type_ is Type.FOLDER:
            if here.edits[path].is_removed:
                removed.add(number)
        elif not is_quiet and type_ is Type.FILE and here.was_there(path, changes):
            # Since it is missing on disk, the scan took it for a new file.
            change = change._replace(kind=Kind.MODIFIED, old_type=Type.FILE, old_mode=change.mode)
            if around.is_removed:
                state, note = State.CONFLICT, _REMOVED
        items.append(Recorded(number, change, state, note))
    # Not of folders that are missing themselves.
    made = (item for item in items if item.change.kind is Kind.ADDED and item.number not in removed)
    needed = folders_around(made) if removed else ()
    for number in removed:
        item = items[number]
        if (item.change.root, item.change.path) not in needed:
            items[number] = item._replace(state=State.CONFLICT, note=_REMOVED)
    return items
