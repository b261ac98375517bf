# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a session that is open."""

from __future__ import annotations

from .. import N_
from ..errors import OllmSandboxError
from ..files.locks import try_lock
from ..paths import Paths, make_folder


class SessionLock:
    """Keeps a session open in one program at a time."""

    def __init__(self, paths: Paths, session_id: str) -> None:
        self._file = make_folder(paths.cache / "open-sessions") / session_id
        while (lock := try_lock(self._file)) is not None:
            # The previous holder may have removed the file between our two steps.
            if lock.fstat().st_nlink:
                self._lock = lock
                return
            lock.release()
        raise OllmSandboxError(
            N_("This session is open in another program."),
            N_("Close it there, or start a new session."),
        )

    def release(self) -> None:
        if self._lock.is_locked:
            self._file.unlink(missing_ok=True)
            self._lock.release()
