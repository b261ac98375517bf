# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a sandbox while it runs: by bwrap, and by who stays in its control group."""

from __future__ import annotations

import contextlib
import json
import os

from .output import readable
from .scope import KILLS


class Status:
    """bwrap tells its first process's id, and at the end how the command ended. All of it fits into
    the pipe, so it is read when it is needed."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._has_own_pids = False
        self._said = b""
        self.begun = False
        # A pidfd of the first process, where that is not bwrap itself.
        self.first = -1
        self.exit: int | None = None
        self.error = ""
        # How many processes the kernel ended for the memory limit.
        self.kills = 0

    def listen(self, descriptor: int, *, has_own_pids: bool) -> None:
        self._descriptor = descriptor
        self._has_own_pids = has_own_pids
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Whether more can come."""
        said = b"?"
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._descriptor, 1 << 16)
            self._said += said
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._note(json.loads(line))
        return bool(said)

    async def read_all(self) -> None:
        while self.read():
            await readable(self._descriptor)

    def _note(self, status: dict[str, object]) -> None:
        code, pid, error = (status.get(key) for key in ("exit-code", "child-pid", "error"))
        if isinstance(error, str):
            self.error = error
        if isinstance(code, int):
            self.exit = code
        if isinstance(kills := status.get(KILLS), int):
            self.kills = kills
        if isinstance(pid, int) and not self.begun:
            self.begun = True
            if not self._has_own_pids:
                self._hold_first(pid, status.get("pid-namespace"))

    def _hold_first(self, pid: int, namespace: object) -> None:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            # The number may be another process's by now, if this one was quick.
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == namespace:
                self.first = pidfd
            else:
                os.close(pidfd)
