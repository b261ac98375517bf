# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that are closed even to their owner, and open while they are looked into. Each is noted
before that, so that a kill leaves none of them open for ever."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path

from ..errors import ProjectError
from ..files import trees

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Openings:
    """While one layer is looked at: of folders in it, and of what it covers in the project."""

    def __init__(self, layer: str) -> None:
        self._note = note_of(layer)
        self._is_noted = False

    def open(self, name: str, around: int, opened: list[trees.Opened]) -> int:
        wanted = os.R_OK | os.X_OK
        if not os.access(name, wanted, dir_fd=around, effective_ids=True, follow_symlinks=False):
            # Where there is no room for a note it is looked into all the same.
            with contextlib.suppress(OSError):
                mode = stat.S_IMODE(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)
                self.remember(f"{os.readlink(f'/proc/self/fd/{around}')}/{name}", mode)
        return trees.open_folder(name, around, opened)

    def remember(self, path: str, mode: int) -> None:
        """A folder by its full path, links resolved, and the mode that it shall have."""
        descriptor = os.open(self._note, _FLAGS, 0o600)
        self._is_noted = True
        try:
            os.write(descriptor, f"{json.dumps([path, mode])}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def end(self) -> None:
        """All are closed again."""
        if self._is_noted:
            self._note.unlink(missing_ok=True)


def note_of(layer: str) -> Path:
    return Path(f"{layer}.opened.modes")


def close_left(layer: str) -> None:
    """After a kill. What somebody gave another mode since keeps that."""
    note = note_of(layer)
    try:
        lines = note.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return
    # The inner ones first, while those around them are open.
    for line in reversed(lines):
        # A line that was cut off is of a folder that was not opened yet. One that cannot be reached
        # is closed already, with those around it, or gone.
        with contextlib.suppress(ValueError, OSError, ProjectError):
            path, mode = json.loads(line)
            _close(path, mode)
    note.unlink()


def _close(path: str, mode: int) -> None:
    folder, name = os.path.split(path)
    around = trees.open_root(folder)
    try:
        found = os.stat(name, dir_fd=around, follow_symlinks=False)
        if stat.S_IMODE(found.st_mode) == mode | stat.S_IRWXU:
            trees.set_mode(name, around, mode)
    finally:
        os.close(around)
