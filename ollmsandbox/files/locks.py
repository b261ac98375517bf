# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks between programs, with `flock`. The kernel frees one when its holder ends, even killed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import N_
from ..errors import OllmSandboxError
from ..paths import make_folder
from .dirfd import FOLDER

_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PAUSE = 0.02


class FileLock:
    """A lock on a file, which is created if it is missing, or on a folder that exists.

    It is held until `release`, to the end of a `with` block, or as long as the object lives.
    """

    _descriptor = -1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_folder: bool = False,
        shared: bool = False,
        timeout: float | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        """Wait for the lock, `timeout` seconds at most if one is given, and raise BlockingIOError
        after that. `on_wait` is called now and then meanwhile, and may raise."""
        self._descriptor = os.open(path, FOLDER if is_folder else _FILE, 0o600)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            if timeout is None and on_wait is None:
                fcntl.flock(self._descriptor, kind)
            else:
                self._poll(kind, timeout, on_wait)
        except BaseException:
            self.release()
            raise

    def _poll(self, kind: int, timeout: float | None, on_wait: Callable[[], None] | None) -> None:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if timeout is not None and time.monotonic() - started >= timeout:
                    raise
            if on_wait:
                on_wait()
            time.sleep(_PAUSE)

    @property
    def is_locked(self) -> bool:
        return self._descriptor >= 0

    def fstat(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def try_lock(path: str | os.PathLike[str], *, is_folder: bool = False) -> FileLock | None:
    """Return the lock, or None if another program has it, or if there is no such folder."""
    try:
        return FileLock(path, is_folder=is_folder, timeout=0)
    except (BlockingIOError, FileNotFoundError):
        return None


@contextmanager
def locked(file: Path, *, timeout: float | None = None) -> Iterator[None]:
    """Keep other programs that call this from changing a file, with a lock file beside it."""
    path = make_folder(file.parent) / f".{file.stem}.lock"
    try:
        lock = FileLock(path, timeout=timeout)
    except BlockingIOError:
        raise OllmSandboxError(
            N_("Another program has kept {file} locked for too long."), file=file
        ) from None
    except OSError as error:
        raise OllmSandboxError(
            N_("Cannot open {file}: {why}."), file=path, why=error.strerror
        ) from error
    with lock:
        yield
