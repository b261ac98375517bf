# SPDX-License-Identifier: GPL-3.0-or-later
"""A session is open in one program at a time.

Files that several programs write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .. import N_
from ..errors import OllmSandboxError
from ..paths import Paths, make_folder


class OpenLock:
    """Held as long as the session is open. Ends with the program, however that ends."""

    def __init__(self, paths: Paths, session_id: str) -> None:
        self._file = make_folder(paths.cache / "open-sessions") / session_id
        self._descriptor = self._take()

    def _take(self) -> int:
        while True:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise OllmSandboxError(
                    N_("This session is open in another program."),
                    N_("Close it there first, or begin a new session."),
                ) from None
            # Who had it before may have removed the file between the two steps.
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """No other program changes it meanwhile, if it asks in this way."""
    lock = make_folder(file.parent) / f".{file.stem}.lock"
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(open(lock, "w")), fcntl.LOCK_EX)
        except OSError as error:
            raise OllmSandboxError(
                N_("{file} cannot be opened: {why}."), file=lock, why=error.strerror
            ) from error
        yield
