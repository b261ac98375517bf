# SPDX-License-Identifier: GPL-3.0-or-later
"""All that commands printed, in files that last as long as the session is open.

All of a command's output in a file, up to a ceiling: what the view does not keep can be read
there.

All that commands printed, in files that last as long as the session is open.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from gettext import gettext as _
from pathlib import Path

from ...files.locks import FileLock
from ...paths import Paths, make_folder
from ...text.ansi import harmless

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


# What a program that was killed left behind.
_OLD = 24 * 3600
_LOCK = ".in-use"


class OutputFiles:
    """Of one session. Nothing is made before a command prints much."""

    def __init__(self, paths: Paths) -> None:
        self._base = paths.cache / "output"
        self._folder: Path | None = None
        self._lock: FileLock | None = None
        self._count = 0

    def new(self) -> TerminalStore:
        """Raises OSError."""
        if self._folder is None or not self._folder.is_dir():
            make_folder(self._base)
            # The window does not wait for it, nor does the program's end: there is a next time.
            threading.Thread(target=remove_old, args=(self._base,), daemon=True).start()
            self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._base))
            self._release()
            self._lock = FileLock(self._folder / _LOCK)
        self._count += 1
        return TerminalStore(self._folder / f"output-{self._count}.txt")

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # then it is removed as an old one
            self._folder = None
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def remove_old(base: Path, seconds: float = _OLD) -> None:
    """Folders in which nothing was written for so long, and that are of no session."""
    before = time.time() - seconds
    for folder in base.glob("session-*"):
        try:
            newest = max(file.lstat().st_mtime for file in (folder, *folder.iterdir()))
        except OSError:
            continue  # somebody else removes it just now
        if newest < before and not _is_used(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_used(folder: Path) -> bool:
    try:
        FileLock(folder / _LOCK, timeout=0).release()
    except BlockingIOError:
        return True
    except OSError:
        return False  # its program was killed before it locked the folder
    return False
