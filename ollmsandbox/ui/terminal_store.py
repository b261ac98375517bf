# SPDX-License-Identifier: GPL-3.0-or-later
"""All of a command's output in a file, up to a ceiling: what the view does not keep can be read
there."""

from __future__ import annotations

import os
from gettext import gettext as _
from pathlib import Path

from ..sandbox.output import harmless

CEILING = 64 << 20
_PIECE = 1 << 20


class TerminalStore:
    """Writes as it comes, on the thread that calls. A disk that is full ends the writing, not the
    command: `trouble` says it."""

    def __init__(self, path: Path, ceiling: int = CEILING) -> None:
        self.path = path
        self.size = 0
        self.left_out = 0
        self.trouble = ""
        self._ceiling = ceiling
        # Output may hold secrets: for the person alone, and never through somebody else's link.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)

    def write(self, data: bytes) -> None:
        room = 0 if self.trouble else self._ceiling - self.size
        kept = memoryview(data)[: max(room, 0)]
        self.left_out += len(data) - len(kept)
        try:
            while kept:
                written = self._file.write(kept) or 0
                self.size += written
                kept = kept[written:]
        except OSError as error:
            self.left_out += len(kept)
            self.trouble = _("The output could not be kept: {why}.").format(why=error.strerror)

    def close(self) -> None:
        """Says at the end of the file what is missing there."""
        if self._file.closed:
            return
        try:
            if self.left_out:
                note = _("{count} more bytes were not kept").format(count=f"{self.left_out:,}")
                self._file.write(f"\n[{note}]\n".encode())
        except OSError as error:
            self.trouble = _("The output could not be kept: {why}.").format(why=error.strerror)
        finally:
            self._file.close()

    @property
    def note(self) -> str:
        """For the person, where the file does not hold everything; "" otherwise."""
        if self.trouble:
            return self.trouble
        if self.left_out:
            text = _("Only the first {size} MB of the output are kept.")
            return text.format(size=f"{self.size / (1 << 20):.0f}")
        return ""


def end_of(file: Path, size: int) -> bytes:
    """Empty if it cannot be read: what is stored is shown instead."""
    try:
        with file.open("rb") as read:
            read.seek(max(0, os.fstat(read.fileno()).st_size - size))
            return read.read(size)
    except OSError:
        return b""


def write_readable(source: Path, target: Path) -> None:
    """A copy for a text editor: no colours, no control characters, and what a progress bar wrote
    over itself line by line. Blocks: for a thread."""
    with source.open("rb") as read, target.open("w", encoding="utf-8", newline="\n") as write:
        rest = b""
        while piece := read.read(_PIECE):
            whole, end, rest = (rest + piece).rpartition(b"\n")
            # A line that never ends has no better place to be cut.
            if len(rest) > _PIECE:
                whole, end, rest = whole + end + rest, b"", b""
            write.write(_readable(whole + end))
        write.write(_readable(rest))


def _readable(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return harmless(text.replace("\r", "\n"))
