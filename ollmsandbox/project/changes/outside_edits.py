# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody else did to the folders of a project while a command ran: to move one, or to delete
it with all that is in it, leaves no mark on the files themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .change import Change, Kind, Recorded, State, Type
from .overlayfs import is_copied_up, origin_of
from .reasons import Note, Reason

_CHANGED = Note(Reason.CHANGED)
_REMOVED = Note(Reason.REMOVED)


class _Found(NamedTuple):
    """Of a folder, since the command began."""

    has_changed: bool = False
    # Something came into it, or left it.
    has_other_names: bool = False
    is_moved: bool = False
    # It is not there, but was when the command looked.
    is_removed: bool = False


class Elsewhere:
    """In one root, since a command began that wrote into `upper`."""

    def __init__(self, root: str, upper: str, began: int) -> None:
        self._root = root
        self._upper = upper
        self._began = began
        self._known = {"": self._look("", _Found())}
        # The inodes on disk of what the command took away, or put something else in place of.
        self._left: set[int] | None = None

    def look(self, folder: str) -> _Found:
        found = self._known.get(folder)
        if found is not None:
            return found
        # Not one in the other: a path may have thousands of parts.
        unknown = []
        while folder not in self._known:
            unknown.append(folder)
            folder = folder.rpartition("/")[0]
        found = self._known[folder]
        for folder in reversed(unknown):
            found = self._known[folder] = self._look(folder, found)
        return found

    def is_copied_up(self, path: str) -> bool:
        return is_copied_up(f"{self._upper}/{path}")

    def was_there(self, path: str, changes: Sequence[Change]) -> bool:
        """Of a file at whose place nothing is: whether it was the project's. A file that the
        command moved there was one, too, and has the same mark. In doubt the command made it."""
        file = f"{self._upper}/{path}"
        if not is_copied_up(file) or os.lstat(file).st_nlink > 1:
            return False
        if self._left is None:
            self._left = {
                found.st_ino
                for change in changes
                if change.root == self._root and self._may_have_left(change)
                if (found := self._find(change.path))
            }
        origin = origin_of(file)
        return not self._left or (origin is not None and origin not in self._left)

    def _may_have_left(self, change: Change) -> bool:
        """What it was, its place, in the command's hands."""
        if change.old_type is not Type.FILE or change.kind is Kind.ADDED:
            return False
        return change.kind is Kind.DELETED or not self.is_copied_up(change.path)

    def _find(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(f"{self._root}/{path}")
        except OSError:
            return None

    def _look(self, folder: str, around: _Found) -> _Found:
        try:
            there = os.lstat(f"{self._root}/{folder}")
        except OSError:
            may_be = around.has_changed or around.is_removed
            return _Found(is_removed=may_be and self.is_copied_up(folder))
        has_changed = there.st_ctime_ns > self._began
        has_other_names = there.st_mtime_ns > self._began
        # Only that it got another name changes this one time, and the folder around it.
        is_moved = has_changed and not has_other_names and around.has_other_names
        return _Found(has_changed, has_other_names, is_moved or around.is_moved)


def numbered(
    changes: Sequence[Change], roots: Mapping[str, Elsewhere], began: Mapping[str, int]
) -> list[Recorded]:
    """What is in a folder that was moved there, or was deleted with it, is a conflict."""
    items: list[Recorded] = []
    removed: list[int] = []
    last = None
    for number, change in enumerate(changes):
        root, path, kind, type_ = change[:4]
        place = (root, path.rpartition("/")[0])
        if place != last:
            here, since = roots[root], began[root]
            around = here.look(place[1])
            is_quiet = not (around.has_changed or around.is_removed or around.is_moved)
            last = place
        if is_quiet and type_ is not Type.FOLDER:
            # As most are.
            items.append(Recorded(number, change, State.PENDING, None, since))
            continue
        state, note = State.PENDING, None
        if kind is not Kind.ADDED:
            if around.is_moved or (type_ is Type.FOLDER and here.look(path).is_moved):
                state, note = State.CONFLICT, _CHANGED
        elif type_ is Type.FOLDER:
            if here.look(path).is_removed:
                removed.append(number)
        elif not is_quiet and type_ is Type.FILE and here.was_there(path, changes):
            # It looks as if the command had made it.
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
    """Those that files are in which the command really made."""
    found: set[tuple[str, str]] = set()
    for item in items:
        root, path, kind, *_ = item.change
        if kind is not Kind.ADDED or item.number in but:
            continue
        while (path := path.rpartition("/")[0]) and (root, path) not in found:
            found.add((root, path))
    return found
