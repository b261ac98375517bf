# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the project that an answer names. Nothing is fetched from the network."""

from __future__ import annotations

import os

from ...files.overlayfs import find_in_layers, read_seen
from ..diff.images import MOST_BYTES, DecodedPicture


def read_from_project(project: str, path: str) -> bytes | None:
    """Return the content of a file of the project; None if there is none at this path, or if it
    leaves the project, also through a link that a command made."""
    inner = os.path.relpath(os.path.join(project, path), project)
    if inner.split("/")[0] in ("..", ".", "") or "\0" in inner:
        return None
    try:
        seen = find_in_layers([project], inner)
        return read_seen(seen, MOST_BYTES) if seen is not None and seen.is_file else None
    except OSError:
        return None


class ProjectPicture(DecodedPicture):
    def __init__(self, project: str, path: str, name: str) -> None:
        super().__init__(lambda: read_from_project(project, path), name)
