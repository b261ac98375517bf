# SPDX-License-Identifier: GPL-3.0-or-later
"""Find processes by a unique number in their arguments, and commands that leave such processes
behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.escape.attack import IS_ROOT, python
from support.person import Person
from support.timing import PATIENCE
from support.tools import Asking

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import UnsandboxedRunner

# When something is ended, in milliseconds or half ones; others as root than as an ordinary user.
MOMENTS = range(0 if IS_ROOT else 1, 40, 2)


@dataclass(frozen=True)
class Mark:
    """A unique time to sleep, by which a process is found."""

    seconds: str = field(default_factory=lambda: f"{random.randrange(9**5, 9**6)}.{os.getpid():07}")

    def processes(self) -> list[int]:
        """Return the processes that are alive; dead ones have no arguments."""
        mine = self.seconds.encode()
        return [pid for pid, words in _all_arguments() if mine in words]

    def sleeps(self) -> bool:
        """Return whether a `sleep` of this time runs, which shows how far the command got."""
        mine = b"sleep\0%b\0" % self.seconds.encode()
        return any(words == mine for _, words in _all_arguments())

    def put_into(self, command: str) -> str:
        return command.replace("SECONDS", self.seconds)

    def gone(self) -> bool:
        return within(lambda: not self.processes())

    def kill(self) -> None:
        # Some may start others meanwhile.
        end = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < end:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def children_of(pid: int) -> list[int]:
    """Return the children of a process, whichever of its threads has started them."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            found += map(int, file.read_text().split())
    return found


def _all_arguments() -> Iterator[tuple[int, bytes]]:
    """Yield the arguments of all processes of the machine."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            words = _read(f"/proc/{name}/cmdline")
            if not words:
                # Its first thread may be gone without the others.
                threads = os.listdir(f"/proc/{name}/task")
                words = _read(f"/proc/{name}/task/{threads[-1]}/cmdline") if threads[1:] else b""
        except OSError:
            continue
        yield int(name), words


def _read(file: str) -> bytes:
    # Plainly: this is done for each process, again and again.
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 18)
    finally:
        os.close(descriptor)


def within(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it came true."""
    end = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        if condition():
            return True
        if began > end:
            return False
        # To look takes as much of the machine as what is waited for.
        time.sleep(0.005 + 2 * (time.monotonic() - began))


# A command that is over at once and leaves something behind; SECONDS is the number it is found by.
_DAEMON = """
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
{streams}
os.execv("/usr/bin/sleep", ["sleep", "SECONDS"])
"""
CHAIN = """
# SECONDS
if os.fork():
    os._exit(0)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
_DEAF = """
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
os.execv("/usr/bin/sleep", ["sleep", "SECONDS"])
"""
_THREAD = """
# SECONDS
import threading
if os.fork():
    os._exit(0)
threading.Thread(target=time.sleep, args=(20,)).start()
call('exit', 0)  # of the first thread alone
"""
LEAVING: dict[str, str] = {
    "a background child": "sleep SECONDS &",
    "a child that holds no stream": "sleep SECONDS <&- >&- 2>&- &",
    "a child that holds the output": "sleep SECONDS 2>/dev/null &",
    "a child that holds the errors": "sleep SECONDS >/dev/null &",
    "nohup": "nohup sleep SECONDS >/dev/null 2>&1 &",
    "setsid": "setsid -f sleep SECONDS",
    "a daemon": python(_DAEMON.format(streams="os.closerange(0, 256)")),
    "a daemon that holds the output": python(_DAEMON.format(streams="")),
    "ignored signals": "trap '' TERM INT HUP QUIT; sleep SECONDS &",
    "all signals blocked": f"{python(_DEAF)} &",
    "a stopped child": "sleep SECONDS & kill -STOP $!",
    "a child stopped by another": "sleep SECONDS & (kill -STOP $!; sleep SECONDS) &",
    "a shell that starts it anew": "(while :; do sleep SECONDS; done) &",
    "a chain of children": python(CHAIN),
    "a process without its first thread": python(_THREAD),
    "a pipeline": "sleep SECONDS | sleep SECONDS | sleep SECONDS &",
    "many": "i=0; while [ $i -lt 50 ]; do sleep SECONDS & i=$((i+1)); done",
}
# One that is not over by itself.
STUBBORN: dict[str, str] = {
    "waiting": "sleep SECONDS",
    "ignored signals": "trap '' TERM INT HUP QUIT PIPE; sleep SECONDS; sleep SECONDS",
    "stopping itself": "sleep SECONDS & kill -STOP $$",
    "closed streams": "exec <&- >&- 2>&-; sleep SECONDS",
    "a daemon and its parent": "setsid -f sleep SECONDS; sleep SECONDS",
    "busy": "sleep SECONDS & while :; do :; done",
}
# Without a wall these would reach everybody.
STUBBORN_INSIDE: dict[str, str] = {
    **STUBBORN,
    "signals to everybody": "sleep SECONDS & trap '' TERM; kill -TERM -1; sleep SECONDS",
    "signals to the first process": "kill -STOP 1; kill -9 1; kill -INT 1; sleep SECONDS",
}


def unsandboxed(person: Person, timeout: float = PATIENCE) -> Asking:
    """Return what runs a command without a sandbox, to which the user agrees."""
    person._copy_probe()
    spec = RunSpec(str(person.project), timeout=timeout)
    return Asking(UnsandboxedRunner(spec, environ=person.environ))


def turns(run: Callable[[], Coroutine[object, object, Result]]) -> int:
    """Return how many times a window could have responded during a run; 1 if the run blocked it
    throughout. A busy machine may leave it few turns."""

    async def main() -> int:
        task = asyncio.ensure_future(run())
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        await task
        return turns

    return loop.run(main())
