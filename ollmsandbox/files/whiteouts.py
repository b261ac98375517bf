# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise how overlayfs marks deletions in a layer: whiteouts and opaque folders."""

from __future__ import annotations

import os
import stat

# The attribute of a folder that hides what is in the one below it.
OPAQUE = "user.overlay.opaque"


def is_whiteout(found: os.stat_result) -> bool:
    """Return whether an entry of an upper folder says that a name is deleted."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(folder: int) -> bool:
    """Return whether a folder of a layer hides what is in the one below it."""
    # A command cannot forge it: overlayfs stores what it sets under another name.
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False
