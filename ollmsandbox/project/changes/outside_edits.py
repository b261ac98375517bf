# SPDX-License-Identifier: GPL-3.0-or-later
"""Detects folders that others moved or deleted while a command ran.

Moving a folder, or deleting it with its content, leaves no mark on the files themselves. Edits of
single files are noticed when a change is applied (apply/applier.py), or when it becomes pending
(apply/settle.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...paths import FolderValues
from .change import Change, Kind, Recorded, State, Type
from .overlayfs import is_copied_up, origin_of
from .reasons import Note, Reason

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


class OutsideEdits:
    """Finds the edits that others made to folders of one root while a command ran."""

    def __init__(self, root: str, upper: str, began: int, opened: Mapping[str, int]) -> None:
        """`opened` are the full paths of folders that the scan has opened, and when they were
        changed before that."""
        self._root = root
        self._upper = upper
        self._began = began
        self._opened = opened
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
        changed = self._opened.get(f"{self._root}/{folder}", there.st_ctime_ns)
        has_changed = changed > self._began
        has_other_names = there.st_mtime_ns > self._began
        # A rename changes the folder's change time only, and the modification time of its parent.
        is_moved = has_changed and not has_other_names and around.has_other_names
        return _FolderEdits(has_changed, has_other_names, is_moved or around.is_moved)


def number_changes(
    changes: Sequence[Change], roots: Mapping[str, OutsideEdits], began: Mapping[str, int]
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
            here, since = roots[root], began[root]
            around = here.edits[place[1]]
            is_quiet = not (around.has_changed or around.is_removed or around.is_moved)
            last = place
        if is_quiet and type_ is not Type.FOLDER:
            # The usual case.
            items.append(Recorded(number, change, State.PENDING, None, since))
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
        items.append(Recorded(number, change, state, note, since))
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
