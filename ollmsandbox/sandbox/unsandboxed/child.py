# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one command without a sandbox, and end all processes that it leaves behind.

A program of its own (`python -I -S child.py COMMAND...`): orphans become children of the nearest
ancestor that asked for them (a subreaper), so each command needs one to tell its orphans apart.
"""

import ctypes
import os
import signal
import sys
import time
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TIMEOUT = 5.0


class Ended(Exception):
    """The command is to stop, or its starter has ended."""


# A terminal's keys signal the starter's process group, which we are in and the command is not.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: list[str]) -> int:
    libc = ctypes.CDLL(None)
    for number in _SIGNALS:
        signal.signal(number, _end)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    code = 128 + signal.SIGKILL
    try:
        code = _run(argv)
        # The command has ended, so these do not matter any more.
        _ignore_signals()
    except Ended:
        pass  # `_end` has ignored further signals
    _end_all()
    return code


def _run(argv: list[str]) -> int:
    try:
        started = os.posix_spawnp(
            argv[0], argv, os.environ, setsid=True, setsigdef=[signal.SIGPIPE]
        )
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == started:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_all() -> None:
    """Kill all descendants, until none is left: some may start others meanwhile."""
    end = time.monotonic() + _TIMEOUT
    while (left := _below(os.getpid())) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(0.001)


def _below(pid: int) -> list[int]:
    # As tasks_below in sandbox/process.py: this file runs alone, without the package.
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children", encoding="ascii") as file:
                    found += map(int, file.read().split())
        except OSError:
            continue
    return found[1:]


def _end(_number: int, _frame: FrameType | None) -> None:
    # Only once: a second signal would interrupt the cleanup.
    _ignore_signals()
    raise Ended


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
