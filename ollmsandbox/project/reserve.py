# SPDX-License-Identifier: GPL-3.0-or-later
"""Room that is set aside for a disk that is full to its last byte: without some, the database
cannot even be read, and nothing can be undone to make room."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_NAME = "reserve"
_SIZE = 256 << 10
# Where there is less than that, others need it more.
_PLENTY = 64 << 20


def keep(folder: Path) -> None:
    """Set it aside, if there is plenty."""
    file = folder / _NAME
    # Without it, things are as they would be without this file.
    with contextlib.suppress(OSError):
        if file.exists() or _free(folder) < _PLENTY:
            return
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
        except OSError:
            file.unlink()
        finally:
            os.close(descriptor)


def give(folder: Path) -> bool:
    """Use it, if the disk is full. Whether there is some room now."""
    try:
        if _free(folder) >= _SIZE:
            return False
        os.unlink(folder / _NAME)
    except OSError:
        return False
    return True


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
