# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories deep in a project, whose config may lead git to hooks elsewhere in it. To look for
them takes a walk, so that is done only where something may be a hook."""

from __future__ import annotations

import contextlib
import os
from collections import deque

from .change import Type
from .later import spelled
from .led import HOOKS, Led

# More is not looked at: then what is named as a hook counts as one.
_MOST_FOLDERS = 10_000
_MOST_NAMES = 200_000
_MOST_FOUND = 500
# Nobody keeps work of their own in the last one.
_PASSED_BY = frozenset((".git", "node_modules"))


class Nested:
    """For one root of a project, and one look at what changed there."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._led: Led | None = None
        self._is_whole = True

    def covers(
        self, path: str, type_: Type, mode: int | None, old_type: Type | None, old_mode: int | None
    ) -> bool:
        """A hook has one of few names, and can be run; or a link leads to where it is."""
        is_link = type_ is Type.LINK
        # First: most are none, and there may be a hundred thousand.
        if not is_link and not ((mode or 0) | (old_mode or 0)) & 0o111:
            return False
        is_named = spelled(os.path.basename(path)) in HOOKS
        if not is_link and not is_named:
            return False
        if self._led is None:
            found, self._is_whole = _repositories(self._root)
            self._led = Led.by(self._root, found)
        if self._led.covers(path):
            return True
        return not self._is_whole and (is_named or (is_link and old_type is Type.FOLDER))


def _repositories(root: str) -> tuple[list[str], bool]:
    """Folders that have one, those that are less deep first; and whether these are all."""
    found: list[str] = []
    waiting = deque([root])
    folders = names = 0
    while waiting:
        folder = waiting.popleft()
        folders += 1
        # What cannot be looked into, git of the person's cannot, either.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                names += 1
                plain = entry.name.casefold()
                if plain == ".git":
                    found.append(folder)
                elif plain not in _PASSED_BY and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                if names > _MOST_NAMES:
                    return found, False
        if folders > _MOST_FOLDERS or len(found) > _MOST_FOUND:
            return found, False
    return found, True
