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
from typing import NamedTuple, Protocol

from ..files import dirfd
from ..files.copying import copy_whole
from ..files.dirfd import DirEntryAt, OpenTree
from ..files.overlayfs import is_copied_up, origin_of
from ..paths import FolderValues, Paths, real_path
from ..sandbox.overlay import Overlay, Root, clock_offset
from .change import MANY, Change, Kind, Recorded, Skipped, State, Type
from .held.git.view import View
from .jobs import in_conflict
from .layer import layer_index
from .reasons import Note, Reason
from .run import OpenRuns, Replaced, RunFolder, RunInfo, is_small, signature
from .scan import scan

# Nanoseconds. If the clock was set back by less, that is taken for a measurement error.
_JITTER = 1_000_000
# Added to a larger step back, to be safe.
_SLACK = 1_000_000_000


class Captured(NamedTuple):
    items: list[Recorded]
    skipped: tuple[Skipped, ...]


class Replacements(Protocol):
    def __call__(self, root: str, path: str) -> list[Replaced]:
        """Return the versions of a file that runs replaced, the oldest first."""


def find_changes(paths: Paths, overlay: Overlay) -> Captured:
    """List and number the changes, without keeping anything."""
    layers = {
        root.path: (overlay.upper(name), *filter(os.path.isdir, root.lowers))
        for name, root in zip(overlay.overlay_map, overlay.roots, strict=True)
    }
    own = tuple({real_path(path) for path in (*paths.own, paths.playground)})
    view = View(layers, (*map(str, paths.own), *own))
    sets = [scan(root, view, partial(_index_pack, paths)) for root in layers]
    skipped = tuple(skip for found in sets for skip in found.skipped)
    changes = [change for found in sets for change in found.changes]
    began = _began(overlay)
    edits = {
        path: _OutsideEdits(path, overlay.upper(name), began[path])
        for name, path in overlay.overlay_map.items()
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
    paths: Paths, overlay: Overlay, info: RunInfo, found: Captured, replaced: Replacements
) -> list[Recorded]:
    """Keep the changes that were found, with the base of each, and return them."""
    run = RunFolder(paths, overlay.run_id)
    run.create(info)
    began = _began(overlay)
    items: list[Recorded] = []
    runs = OpenRuns(paths)
    try:
        copies = len(found.items) < MANY
        for root in overlay.roots:
            bases = _Bases(run, runs, root, began[root.path], replaced, copies=copies)
            with contextlib.closing(bases):
                here = [item for item in found.items if item.change.root == root.path]
                items += map(bases.keep, here)
    finally:
        runs.close()
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
        run: RunFolder,
        runs: OpenRuns,
        root: Root,
        began: int,
        replaced: Replacements,
        *,
        copies: bool,
    ) -> None:
        self._run = run
        self._runs = runs
        self._root = root
        self._began = began
        self._replaced = replaced
        self._copies = copies
        # None if the layer that the command saw is lost: then no base is known.
        self._on: Mapping[str, tuple[str, int]] | None = {}
        if root.layer:
            try:
                self._on = layer_index(root.layer)
            except (OSError, ValueError, KeyError):
                self._on = None
        self._project = OpenTree(root.path, top=dirfd.open_root(root.path))
        self._layer = OpenTree(root.layer) if root.layer and self._on is not None else None

    def close(self) -> None:
        self._project.leave()
        if self._layer is not None:
            self._layer.leave()

    def keep(self, item: Recorded) -> Recorded:
        """Keep the base of a change, if it has one; return the change with facts about its base."""
        change = item.change
        if item.state is State.CONFLICT:
            return in_conflict(item, item.note or Note(Reason.CHANGED))._replace(is_known=False)
        if self._on is None:
            return self._unknown(item)
        on = self._on.get(change.path)
        if on is not None:
            if change.kind is not Kind.ADDED and change.old_type in (Type.FILE, Type.LINK):
                self._link_from_layer(item)
            return item._replace(on=on)
        if change.kind is Kind.ADDED or change.old_type is Type.FOLDER:
            return item
        return self._keep_from_project(item)

    def _link_from_layer(self, item: Recorded) -> None:
        assert self._layer is not None
        seen = DirEntryAt(*self._layer.split(item.change.path))
        kept = self._runs.at(self._run.id, f"base/{item.number}")
        kept.unlink(missing_ok=True)
        seen.link_to(kept)

    def _keep_from_project(self, item: Recorded) -> Recorded:
        try:
            seen = DirEntryAt(*self._project.split(item.change.path))
            found = seen.lstat()
        except OSError:
            found = None
        if found is None:
            return self._unknown(item)  # somebody deleted it
        if found.st_ctime_ns > self._began:
            return self._find_earlier(item)
        # A file with another name could be changed through that, if it were moved.
        is_linked = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
        is_cheap = is_small(found) or stat.S_ISLNK(found.st_mode)
        if (self._copies and is_cheap) or is_linked:
            kept = self._runs.at(self._run.id, f"base/{item.number}")
            # What cannot be read can be moved away, and put back.
            with contextlib.suppress(PermissionError):
                copy_whole(seen, kept)
                now = seen.lstat()
                if now is None or now.st_ctime_ns != found.st_ctime_ns:
                    kept.unlink()
                    return self._unknown(item)
        return item._replace(base=signature(found))

    def _find_earlier(self, item: Recorded) -> Recorded:
        """Look for the version that the command saw with a run that has replaced it since."""
        change = item.change
        for found in self._replaced(change.root, change.path):
            if found.replaced_at <= self._began < found.left_at:
                theirs = self._runs.at(found.run_id, f"base/{found.number}")
                if theirs.lstat() is not None:
                    copy_whole(theirs, self._runs.at(self._run.id, f"base/{item.number}"))
                    return item
        return self._unknown(item)

    def _unknown(self, item: Recorded) -> Recorded:
        note = Note(Reason.CHANGED)
        return in_conflict(item._replace(state=State.CONFLICT), note)._replace(is_known=False)


# --- folders that others moved or deleted while the command ran -----------------------------------
# Moving a folder, or deleting it with its content, leaves no mark on the files themselves.

_CHANGED = Note(Reason.CHANGED)
_REMOVED = Note(Reason.REMOVED)


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
    removed: list[int] = []
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
            itself = here.edits[path] if type_ is Type.FOLDER else None
            is_mode = kind is Kind.MODIFIED and itself is not None and itself.has_changed
            if around.is_moved or (itself is not None and itself.is_moved):
                state, note = State.CONFLICT, _CHANGED
            elif is_mode and itself is not None and itself.has_other_names:
                # Its names were changed, and perhaps its mode: nobody can tell whose mode is new.
                state, note = State.CONFLICT, _CHANGED
            elif is_mode:
                # The upper folder has the mode from before: overlayfs copied it with the first
                # name that the command wrote.
                continue
        elif type_ is Type.FOLDER:
            if here.edits[path].is_removed:
                removed.append(number)
        elif not is_quiet and type_ is Type.FILE and here.was_there(path, changes):
            # Since it is missing on disk, the scan took it for a new file.
            change = change._replace(kind=Kind.MODIFIED, old_type=Type.FILE, old_mode=change.mode)
            if around.is_removed:
                state, note = State.CONFLICT, _REMOVED
        items.append(Recorded(number, change, state, note))
    if removed:
        needed = _folders_of(items, frozenset(removed))
        for number in removed:
            item = items[number]
            if (item.change.root, item.change.path) not in needed:
                items[number] = item._replace(state=State.CONFLICT, note=_REMOVED)
    return items


def _folders_of(items: Sequence[Recorded], but: frozenset[int]) -> set[tuple[str, str]]:
    """Return the folders of files that the command created, except for the changes in `but`."""
    found: set[tuple[str, str]] = set()
    for item in items:
        root, path, kind, *_ = item.change
        if kind is not Kind.ADDED or item.number in but:
            continue
        while (path := path.rpartition("/")[0]) and (root, path) not in found:
            found.add((root, path))
    return found
