# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to leave something running when it is over, or not to be over when it should.

What it leaves behind is found on the host, by a number that nobody else has in its arguments.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from attack import IS_ROOT, python
from conftest import ROOT, Person, cli_argv, given_time

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.sandbox.plain import PlainRunner
from ollmsandbox.sandbox.result import Result, Stop

# A run that is over is over at once; this is for a machine with much to do.
SOON = 40.0
# When something is ended, in milliseconds or half ones; others as root than as an ordinary user.
MOMENTS = range(0 if IS_ROOT else 1, 40, 2)


@dataclass(frozen=True)
class Mark:
    """A time to sleep that is nobody else's, by which a process is found."""

    seconds: str = field(default_factory=lambda: f"{random.randrange(9**5, 9**6)}.{os.getpid():07}")

    def processes(self) -> list[int]:
        """Those that live; the dead have no arguments."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_in(name)]

    def _is_in(self, pid: str) -> bool:
        try:
            # A first thread may be gone without the others.
            threads = [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
            found = [Path(thread, "cmdline").read_bytes() for thread in threads[:2]]
        except OSError:
            return False
        return any(self.seconds.encode() in arguments for arguments in found)

    def sleeps(self) -> bool:
        """Whether a `sleep` of this time runs: then the command got that far."""
        words = [b"sleep", self.seconds.encode(), b""]
        for pid in self.processes():
            try:
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") == words:
                    return True
            except OSError:
                continue
        return False

    def put_into(self, command: str) -> str:
        return command.replace("SECONDS", self.seconds)

    def gone(self) -> bool:
        return within(SOON, lambda: not self.processes())

    def kill(self) -> None:
        # Some may start others meanwhile.
        end = time.monotonic() + SOON
        while (left := self.processes()) and time.monotonic() < end:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@pytest.fixture
def mark() -> Iterator[Mark]:
    made = Mark()
    yield made
    made.kill()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


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
_CHAIN = """
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
libc.syscall({exit}, 0)  # of the first thread alone
"""
_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
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
    "a chain of children": python(_CHAIN),
    "a process without its first thread": python(_THREAD.format(exit=_EXIT)),
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


async def _yes(_question: str) -> bool:
    return True


def plain(person: Person, timeout: float = 60) -> PlainRunner:
    return PlainRunner(person.project, ask=_yes, timeout=timeout, environ=person.environ)


# --- what a command leaves behind ----------------------------------------------------------------


@pytest.mark.parametrize("way", sorted(LEAVING))
def test_nothing_is_left_of(person: Person, mark: Mark, way: str) -> None:
    result = person.run(mark.put_into(LEAVING[way] + "\necho left"))
    assert mark.processes() == []
    assert (result.exit_code, result.stop) == (0, None)
    assert result.stdout.text == "left\n"
    assert result.duration < SOON


@pytest.mark.parametrize("way", sorted(LEAVING))
def test_nothing_is_left_without_a_sandbox_of(person: Person, mark: Mark, way: str) -> None:
    result = loop.run(plain(person).exec(mark.put_into(LEAVING[way] + "\necho left")))
    assert mark.processes() == []
    assert (result.exit_code, result.stop) == (0, None)
    assert result.stdout.text == "left\n"
    assert result.duration < SOON


@pytest.mark.parametrize("way", sorted(set(LEAVING) - {"a chain of children"}))
def test_without_anybody_to_end_it_stays(person: Person, mark: Mark, way: str) -> None:
    # So the two above are the program's doing. A chain could not be caught again.
    subprocess.run(
        ["/bin/sh", "-c", mark.put_into(LEAVING[way] + "\necho left")],
        cwd=person.project,
        env=person.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    assert within(SOON, lambda: bool(mark.processes()))


def test_the_next_run_finds_nothing_of_the_one_before(person: Person, mark: Mark) -> None:
    person.run(f"setsid -f sleep {mark.seconds}; sleep {mark.seconds} & touch /tmp/left")
    result = person.run("ls /tmp/left; echo /proc/[0-9]*")
    assert result.stdout.text == "/proc/1 /proc/2\n"


# --- a command that does not want to be over -----------------------------------------------------


@pytest.mark.parametrize("way", sorted(STUBBORN_INSIDE))
def test_the_time_limit_ends(person: Person, mark: Mark, way: str) -> None:
    command = "echo so far; echo errors >&2; " + mark.put_into(STUBBORN_INSIDE[way])
    result = given_time(lambda s: person.run(command, timeout=s), lambda r: r.stderr.text)
    assert mark.processes() == []
    assert result.timed_out
    assert result.exit_code == 124
    assert result.stdout.text == "so far\n"
    assert result.stderr.text.startswith("errors\n")
    assert 0.25 < result.duration < SOON


@pytest.mark.parametrize("way", sorted(STUBBORN))
def test_the_time_limit_ends_without_a_sandbox(person: Person, mark: Mark, way: str) -> None:
    command = "echo so far; " + mark.put_into(STUBBORN[way])
    result = given_time(
        lambda s: loop.run(plain(person, timeout=s).exec(command)), lambda r: r.stdout.text
    )
    assert mark.processes() == []
    assert result.timed_out
    assert result.exit_code == 124
    assert result.stdout.text == "so far\n"
    assert 0.25 < result.duration < SOON


def test_the_command_line_tells_of_the_time_limit(person: Person, mark: Mark) -> None:
    command = f"echo so far; sleep {mark.seconds}"
    done = person.cli("run", "--timeout", "0.6", "-c", command)
    assert mark.gone()
    assert done.returncode == 124
    assert done.stdout == "so far\n"
    assert (
        done.stderr == "ollmsandbox: The command was ended. It took longer than the time limit.\n"
    )


def test_a_command_that_closes_its_streams_is_waited_for(person: Person) -> None:
    result = person.run("exec <&- >&- 2>&-; sleep 0.3; : >done; exit 7")
    assert result.exit_code == 7
    assert (person.project / "done").exists()


def test_a_command_that_kills_all_it_can_ends_only_itself(person: Person, mark: Mark) -> None:
    outside = subprocess.Popen(["sleep", mark.seconds])
    try:
        result = person.run("sleep 50 & kill -9 -1; kill -9 0; kill -9 $$")
        assert result.exit_code == 137
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


# --- a person who has had enough -----------------------------------------------------------------


async def _over(task: asyncio.Future[Result], mark: Mark) -> bool:
    """Whether a run ends by itself; if not, it is made to, so that the test does end."""
    done, _ = await asyncio.wait({task}, timeout=SOON)
    if not done:
        mark.kill()
        await asyncio.wait({task}, timeout=SOON)
    return bool(done)


@pytest.mark.parametrize("act", ["stop", "cancel", "cancel twice"])
@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
@pytest.mark.parametrize("way", ["waiting", "ignored signals", "busy", "a daemon and its parent"])
def test_a_person_ends(person: Person, mark: Mark, way: str, sandbox: bool, act: str) -> None:
    command = "echo so far; " + mark.put_into(STUBBORN[way])
    runner = person.bubble() if sandbox else plain(person)

    async def main() -> Result | None:
        task = asyncio.ensure_future(runner.exec(command))
        await asyncio.to_thread(within, SOON, mark.sleeps)
        if act == "stop":
            runner.stop()
        else:
            task.cancel()
        if act == "cancel twice":
            await asyncio.sleep(0)
            task.cancel()
        assert await _over(task, mark)
        return None if task.cancelled() else task.result()

    result = loop.run(main())
    assert mark.gone() if act == "cancel twice" else mark.processes() == []
    if act != "stop":
        assert result is None
    else:
        assert result is not None
        assert (result.stop, result.exit_code) == (Stop.PERSON, 137)
        assert result.stdout.text == "so far\n"


@pytest.mark.parametrize("act", ["stop", "cancel", "time"])
def test_a_run_can_be_ended_at_every_moment_of_its_beginning(
    person: Person, mark: Mark, act: str
) -> None:
    # A sandbox takes some ten milliseconds to build: what is killed then must not go on without
    # us, nor leave a half-built one behind that holds the output.
    async def one(pause: float) -> None:
        bubble = person.bubble(timeout=pause if act == "time" else 60)
        task = asyncio.ensure_future(bubble.exec(f"sleep {mark.seconds}; true"))
        if act != "time":
            await asyncio.sleep(pause)
            for _ in range(100):
                # There is nothing to stop before there is a process.
                if act == "stop" and not task.done():
                    bubble.stop()
                    await asyncio.sleep(0.001)
            if act == "cancel":
                task.cancel()
        assert await _over(task, mark), f"after {pause} s"
        assert mark.processes() == [], f"after {pause} s"
        if not task.cancelled() and task.exception() is not None:
            assert isinstance(task.exception(), OllmSandboxError)

    async def main() -> None:
        # What is made once for all runs is made.
        await person.bubble().exec("true")
        for number in MOMENTS:
            await one(number * 0.001)

    loop.run(main())


@pytest.mark.parametrize("act", ["stop", "cancel", "time"])
def test_a_run_without_a_sandbox_can_be_ended_at_every_moment_of_its_beginning(
    person: Person, mark: Mark, act: str
) -> None:
    async def one(pause: float) -> None:
        runner = plain(person, timeout=pause if act == "time" else 60)
        task = asyncio.ensure_future(runner.exec(f"sleep {mark.seconds}; true"))
        if act != "time":
            await asyncio.sleep(pause)
            runner.stop() if act == "stop" else task.cancel()
        assert await _over(task, mark), f"after {pause} s"
        assert mark.processes() == [], f"after {pause} s"

    async def main() -> None:
        for number in MOMENTS[::2]:
            await one(number * 0.001)

    loop.run(main())


# --- a program that is ended itself --------------------------------------------------------------


@contextmanager
def _command_line(person: Person, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        cli_argv("run", *arguments),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _is_bwrap(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"


def _below(pid: int, depth: int) -> list[int]:
    """Children, or their children."""
    found = [pid]
    for _ in range(depth):
        files = [Path(f"/proc/{one}/task/{one}/children") for one in found]
        found = [
            int(child) for file in files if file.exists() for child in file.read_text().split()
        ]
    return found


@pytest.mark.parametrize("way", ["waiting", "ignored signals", "a daemon and its parent"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_command_line_ends_the_command(
    person: Person, mark: Mark, number: signal.Signals, way: str
) -> None:
    with _command_line(person, "-c", mark.put_into(STUBBORN[way])) as process:
        assert within(SOON, mark.sleeps)
        process.send_signal(number)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert process.wait(SOON) == expected
        assert mark.gone()


@pytest.mark.parametrize("who", ["the starter", "bwrap"])
def test_a_helper_that_is_killed_takes_the_command_with_it(
    person: Person, mark: Mark, who: str
) -> None:
    with _command_line(person, "-c", mark.put_into(STUBBORN["ignored signals"])) as p:
        assert within(SOON, mark.sleeps)
        # The starter has another child, which waits to become bwrap the next time.
        found = _below(p.pid, 1) if who == "the starter" else filter(_is_bwrap, _below(p.pid, 2))
        (helper,) = found
        os.kill(helper, signal.SIGKILL)
        assert p.wait(SOON) not in (0, None)
        assert mark.gone()


def test_a_command_line_that_is_killed_at_any_moment_leaves_nothing(
    person: Person, mark: Mark
) -> None:
    # The kernel ends a child with its parent if the child has asked for it in time.
    person.cli("run", "--", "true")
    for number in MOMENTS[::3]:
        with _command_line(person, "-c", f"sleep {mark.seconds}; true") as process:
            # Us, the starter, and what becomes bwrap.
            assert within(SOON, lambda: bool(_below(process.pid, 2)))
            time.sleep(number * 0.0005)
            process.kill()
            process.wait()
            assert mark.gone(), f"{number}: {mark.processes()}"


def test_a_starter_that_is_killed_at_any_moment_leaves_nothing_and_is_replaced(
    person: Person, mark: Mark
) -> None:
    async def one(pause: float) -> None:
        task = asyncio.ensure_future(person.bubble().exec(f"sleep {mark.seconds}; true"))
        await asyncio.sleep(pause)
        _kill_starters()
        assert await _over(task, mark), f"after {pause} s"
        assert mark.gone(), f"after {pause} s"
        # The first one after it may find it gone.
        results = await asyncio.gather(*[_echo(person) for _ in range(2)])
        assert "fine\n" in results

    async def main() -> None:
        for number in MOMENTS[:8]:
            await one(number * 0.001)

    loop.run(main())


def _kill_starters() -> None:
    for pid in _below(os.getpid(), 1):
        if b"starter.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


async def _echo(person: Person) -> str:
    try:
        return (await person.bubble().exec("echo fine")).stdout.text
    except OllmSandboxError as error:
        return str(error)


_PLAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox import loop
from ollmsandbox.sandbox.plain import PlainRunner
async def yes(question): return True
loop.run(PlainRunner(sys.argv[2], ask=yes).exec(sys.argv[3]))
"""


@pytest.mark.parametrize("way", ["waiting", "ignored signals", "a daemon and its parent"])
def test_a_program_without_sandbox_that_is_killed_takes_the_command_with_it(
    person: Person, mark: Mark, way: str
) -> None:
    command = mark.put_into(STUBBORN[way])
    argv = [sys.executable, "-I", "-c", _PLAIN, str(ROOT), str(person.project), command]
    process = subprocess.Popen(argv, env=person.environ, cwd=person.project)
    try:
        assert within(SOON, mark.sleeps)
    finally:
        process.kill()
        process.wait()
    assert mark.gone()


def test_a_command_without_sandbox_cannot_stop_who_watches_it(person: Person, mark: Mark) -> None:
    # It has no wall, but the time limit is kept.
    async def main() -> Result:
        command = f"sleep {mark.seconds} & kill -STOP $PPID; sleep {mark.seconds}"
        task = asyncio.ensure_future(plain(person, timeout=0.6).exec(command))
        assert await _over(task, mark)
        return task.result()

    assert loop.run(main()).timed_out
    assert mark.gone()


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.01])
def test_stopping_again_and_again_spares_nothing(person: Person, mark: Mark, pause: float) -> None:
    # Each time who watches the command is told so, while it is ending what is hard to end.
    command = f"{mark.put_into(python(_CHAIN))}; sleep {mark.seconds}"

    async def main() -> Result:
        runner = plain(person)
        task = asyncio.ensure_future(runner.exec(command))
        await asyncio.to_thread(within, SOON, mark.sleeps)
        end = time.monotonic() + SOON
        while not task.done() and time.monotonic() < end:
            runner.stop()
            await asyncio.sleep(pause)
        assert await _over(task, mark)
        return task.result()

    assert loop.run(main()).stop is Stop.PERSON
    assert mark.gone()


@pytest.mark.parametrize("pause", ["0.001", "0.003", "0.01", "0.03"])
def test_a_stop_when_the_command_is_over_already_spares_nothing(
    person: Person, mark: Mark, pause: str
) -> None:
    # It comes while who watches the command is ending what that left behind.
    chain = mark.put_into(python(_CHAIN))
    many = f"for i in 1 2 3 4 5 6 7 8 9; do sleep {mark.seconds} & done"
    loop.run(plain(person).exec(f"{many}; {chain}; (sleep {pause}; kill -TERM $PPID) & exit 0"))
    assert mark.gone()
