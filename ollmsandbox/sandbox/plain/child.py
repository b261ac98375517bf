# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one command without a sandbox and ends all that it leaves behind.

Run by itself (`python -I -S supervisor.py COMMAND...`): orphans of a command become children of
the nearest ancestor that asked for them, and only a process of the command's own can tell them
from those of the next command.
"""

import ctypes
import os
import signal
import sys
import time
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PATIENCE = 5.0


class Ended(Exception):
    """Somebody wants the command to stop, or who started it is gone."""


# The keys of a terminal reach us with the program that started us; the command does not hear them.
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
        # From here on there is no need to be told.
        _ignore_signals()
    except Ended:
        pass  # they were ignored before it was raised
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
    """Some may start others while they are looked for, so until none is left."""
    end = time.monotonic() + _PATIENCE
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
    # Once: a second one would interrupt the ending itself.
    _ignore_signals()
    raise Ended


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
