# SPDX-License-Identifier: GPL-3.0-or-later
"""Files with the complete output of commands, which exist while the session is open."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from ...files.locks import FileLock, try_lock
from ...i18n import _
from ...loop import start_daemon
from ...paths import Paths, make_folder
from ...text.ansi import harmless
from ..widgets.readable import number

_PIECE = 1 << 20


class OutputFile:
    """Writes a command's output to a file, up to a limit.

    A full disk ends the writing, not the command; `trouble` describes it.
    """

    def __init__(self, path: Path, ceiling: int = 64 << 20) -> None:
        self.path = path
        self.size = 0
        self.left_out = 0
        self.trouble = ""
        self._ceiling = ceiling
        # Output may contain secrets: only the user may read it, and no link is followed.
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
            self.trouble = _("Cannot save the output: {why}.").format(why=error.strerror)

    def close(self) -> None:
        """Note at the end of the file what is missing there."""
        if self._file.closed:
            return
        try:
            if self.left_out:
                note = _("{count} more bytes were not saved").format(count=number(self.left_out))
                self._file.write(f"\n[{note}]\n".encode())
        except OSError as error:
            self.trouble = _("Cannot save the output: {why}.").format(why=error.strerror)
        finally:
            self._file.close()

    @property
    def note(self) -> str:
        """Return a note for the user if the file is incomplete, otherwise ""."""
        if self.trouble:
            return self.trouble
        if self.left_out:
            text = _("Only the first {size} MiB of the output was saved.")
            return text.format(size=f"{self.size / (1 << 20):.0f}")
        return ""


def end_of(file: Path, size: int) -> bytes:
    """Return the last bytes of a file, or nothing if it cannot be read."""
    try:
        with file.open("rb") as read:
            read.seek(max(0, os.fstat(read.fileno()).st_size - size))
            return read.read(size)
    except OSError:
        return b""


def write_readable(source: Path, target: Path) -> None:
    """Copy output for a text editor, without control characters. Blocks.

    Each state of a progress bar becomes a line.
    """
    with source.open("rb") as read, target.open("w", encoding="utf-8", newline="\n") as write:
        rest = b""
        while piece := read.read(_PIECE):
            whole, end, rest = (rest + piece).rpartition(b"\n")
            # A line that never ends has no better place for a cut.
            if len(rest) > _PIECE:
                whole, end, rest = whole + end + rest, b"", b""
            write.write(_readable(whole + end))
        write.write(_readable(rest))


def _readable(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return harmless(text.replace("\r", "\n"))


# Seconds after which the files of a killed program are removed.
_OLD = 24 * 3600
_LOCK = ".in-use"


class OutputFiles:
    """The output files of one session, in a folder that is created when needed."""

    def __init__(self, paths: Paths) -> None:
        self._base = paths.cache / "output"
        self._folder: Path | None = None
        self._lock: FileLock | None = None
        self._count = 0

    def new(self) -> OutputFile:
        """Create a file for one command. Raise OSError if that fails."""
        if self._folder is None or not self._folder.is_dir():
            make_folder(self._base)
            # Neither the window nor the end of the program should wait for it.
            start_daemon("old output", remove_old, self._base)
            self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._base))
            self._release()
            self._lock = FileLock(self._folder / _LOCK)
        self._count += 1
        return OutputFile(self._folder / f"output-{self._count}.txt")

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
    """Remove folders that no session uses, and that have not changed for this long."""
    before = time.time() - seconds
    for folder in base.glob("session-*"):
        try:
            newest = max(file.lstat().st_mtime for file in (folder, *folder.iterdir()))
        except OSError:
            continue  # another program is removing it
        if newest < before and (lock := try_lock(folder / _LOCK)):
            with lock:
                shutil.rmtree(folder, ignore_errors=True)
