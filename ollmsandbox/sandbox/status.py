# SPDX-License-Identifier: GPL-3.0-or-later
"""Read bwrap's status reports about a running sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

from .limits import KILLS
from .output import wait_readable

# Seconds between two looks whether another thread has read the report that this one waits for.
_PAUSE = 0.05


class BwrapStatus:
    """Reads the reports of bwrap, the starter's child and the memory witness from a pipe: the id of
    the first process, errors, the exit code. All of it fits into the pipe, so it is read only when
    needed, by any thread."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._hold_first = False
        self._unread = b""
        self.begun = False
        # Whether more can come.
        self._is_open = True
        self._reading = threading.RLock()
        # The command's first process as bwrap numbers it, and its network namespace.
        self.child = self.network = 0
        # A pidfd of the first process, if that was asked for and the process was found.
        self.first = -1
        self.exit: int | None = None
        self.error = ""
        # How many processes the kernel ended for the memory limit.
        self.kills = 0
        # How many were still running when the command had ended.
        self.left_running = 0

    def listen(self, descriptor: int, *, hold_first: bool = False) -> None:
        """Set the pipe, and whether to open a pidfd of the first process."""
        self._descriptor = descriptor
        self._hold_first = hold_first
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Take in what was reported by now; return whether more can come."""
        with self._reading:
            if self._descriptor < 0:
                return False
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._descriptor, 1 << 16)
                self._unread += data
                self._is_open = bool(data)
            *lines, self._unread = self._unread.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._note(json.loads(line))
            return self._is_open

    def wait_for_start(self, ended: int, seconds: float) -> None:
        """Wait until bwrap has reported the command's first process, or an end, or until the
        descriptor `ended` is readable; for `seconds` at most."""
        end = time.monotonic() + seconds
        while self.read() and not self.begun and time.monotonic() < end:
            if wait_readable(ended, seconds=0):
                self.read()
                return
            wait_readable(self._descriptor, ended, seconds=_PAUSE)

    def read_all(self, seconds: float) -> None:
        """Read until nothing more can come, for `seconds` at most."""
        end = time.monotonic() + seconds
        while self.read() and (left := end - time.monotonic()) > 0:
            wait_readable(self._descriptor, seconds=left)

    def close(self) -> None:
        """Read no more: the number of the pipe may soon be that of another file."""
        with self._reading:
            self._descriptor = -1

    def _note(self, status: dict[str, object]) -> None:
        code, pid, error = (status.get(key) for key in ("exit-code", "child-pid", "error"))
        if isinstance(error, str):
            self.error = error
        if isinstance(code, int):
            self.exit = code
        if isinstance(kills := status.get(KILLS), int):
            self.kills = kills
        if isinstance(left := status.get("left-running"), int):
            self.left_running = left
        if isinstance(pid, int) and not self.begun:
            self.begun = True
            network = status.get("net-namespace")
            self.child, self.network = pid, network if isinstance(network, int) else 0
            if self._hold_first:
                self._open_first(pid, status.get("pid-namespace"))

    def _open_first(self, pid: int, namespace: object) -> None:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            # If this process was quick, another one may have its number by now.
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == namespace:
                self.first = pidfd
            else:
                os.close(pidfd)
