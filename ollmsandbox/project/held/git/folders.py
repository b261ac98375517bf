# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the folders of git's in a repository: its own, and those of worktrees and submodules.

Git may only be led to these: in any other folder, the table allows what would be a hook here.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ...roots import is_git_folder
from .view import View

# Parts of a module's name, and modules in modules: a command could make thousands of folders.
_DEEPEST = 20
_WORKTREE = re.compile(r"worktrees/([^/]+)/(.+)", re.DOTALL)


class GitFolder(NamedTuple):
    """A folder of git's: a repository, or that of a linked worktree in one."""

    # Its full path, and the path of the change in it.
    path: str
    inner: str
    is_worktree: bool = False

    @property
    def is_new(self) -> bool:
        """Return whether it is not a repository yet; links may be parts of one."""
        name = "commondir" if self.is_worktree else "HEAD"
        return not os.path.lexists(f"{self.path}/{name}")


def folder_around(place: str, inner: str, view: View) -> GitFolder | None:
    """Return the innermost folder of git's that a path in a repository is in. A module's name may
    have slashes in it."""
    is_worktree = False
    for _ in range(_DEEPEST):
        if found := _WORKTREE.fullmatch(inner):
            place, inner, is_worktree = f"{place}/worktrees/{found[1]}", found[2], True
        elif inner.startswith("modules/"):
            names = inner.split("/")
            ways = ("/".join(names[:end]) for end in range(2, min(len(names), _DEEPEST)))
            module = next((way for way in ways if _is_module(f"{place}/{way}", view)), "")
            if not module:
                return None
            place, inner, is_worktree = f"{place}/{module}", inner[len(module) + 1 :], False
        else:
            return GitFolder(place, inner, is_worktree)
    return None


def _is_module(folder: str, view: View) -> bool:
    return is_git_folder(folder) or view.exists(f"{folder}/HEAD")
