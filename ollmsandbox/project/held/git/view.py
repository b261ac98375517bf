# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads files as a command left them in the project and in its other roots, by full path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....files.dirfd import open_regular_file
from ....files.overlayfs import find_in_layers, read_merged
from ....paths import is_inside

_MOST = 16 << 20


@dataclass(frozen=True)
class View:
    """The folders that a command could change, as it left them."""

    # The roots with their layers, the top one first.
    roots: Mapping[str, Sequence[str]]
    # Folders that are never the user's: those of this program, with the playground in them.
    own: Sequence[str] = ()

    def split(self, path: str) -> tuple[str, str] | None:
        """Return the root that a path is in, and the path in it."""
        for root in self.roots:
            if is_inside(path, root):
                return root, path[len(root.rstrip("/")) + 1 :]
        return None

    def read(self, path: str, most: int = _MOST) -> bytes | None:
        """Return a file as the command left it; None if it cannot be read, is too large, or if a
        link is on the way."""
        found = self.split(path)
        return read_merged(self.roots[found[0]], found[1], most=most) if found else None

    def exists(self, path: str) -> bool:
        """Return whether something is there now, or will be."""
        found = self.split(path)
        try:
            if found is None:
                return os.path.lexists(path)
            return find_in_layers(self.roots[found[0]], found[1]) is not None
        except OSError:
            return True  # it cannot be told


def read_disk(path: str, most: int = _MOST) -> bytes | None:
    """Return a file as it is on disk, b"" if there is none, None if it cannot be read."""
    try:
        with open_regular_file(path) as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    return data if len(data) <= most else None
