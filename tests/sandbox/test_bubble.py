# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in a real sandbox: its input, output, network and exit status. Commands that are too
long, and output without end: escape/test_07_endless_output.py; how the user or a limit ends one:
escape/test_06_end_a_run.py and test_06_outlive_the_run.py."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bubble import by, each_way
from support.person import Person
from support.timing import wait_for

from ollmsandbox import loop
from ollmsandbox.errors import ProjectError, SandboxError
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.overlay import Overlay
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Result, Sinks, Stop
from ollmsandbox.sandbox.spec import RunSpec

# --- how a command ends --------------------------------------------------------------------------


def test_the_exit_code_is_the_commands(person: Person) -> None:
    for code in (0, 1, 125, 255):
        result = person.run(f"exit {code}")
        assert (result.exit_code, result.stop, result.timed_out) == (code, None, False)
    # Not bash, which ignores SIGQUIT.
    for number in (2, 3, 9, 15):
        result = person.run(["sh", "-c", f"kill -{number} $$"])
        assert (result.exit_code, result.signal, result.stop) == (128 + number, number, None)


def test_a_command_that_is_no_program_ends_with_127_or_126(person: Person) -> None:
    for command in ("no-such-command-here", ["no-such-command-here"], ["./missing"]):
        result = person.run(command)
        assert result.exit_code == 127
        assert "not found" in result.stderr.text
    (person.project / "text").write_text("hello")
    for command in ("./text", ["./text"], ["/etc"]):
        result = person.run(command)
        assert result.exit_code == 126
        assert "ermission denied" in result.stderr.text


def test_shell_text_goes_through_the_shell_and_words_do_not(person: Person) -> None:
    assert person.run("echo $((1 + 1)) | tr 2 3").stdout.text == "3\n"
    words = ["printf", "[%s]", "$(touch ran)", "a  b", "", "*", "-n", "'\"`", "new\nline", "ü"]
    assert person.run(words).stdout.text == "".join(f"[{word}]" for word in words[2:])
    assert not (person.project / "ran").exists()


def test_a_command_may_begin_with_a_dash(person: Person) -> None:
    program = person.project / "-c"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert person.run(["./-c"]).stdout.text == "ran\n"
    assert person.run(["-c", "touch", "ran"]).exit_code == 127
    assert not (person.project / "ran").exists()


# --- input ---------------------------------------------------------------------------------------


def test_a_command_has_no_input_and_nothing_else_that_is_open(person: Person) -> None:
    with tempfile.TemporaryFile() as secret:
        os.set_inheritable(secret.fileno(), True)
        result = person.run("cat; readlink /proc/self/fd/0; ls /proc/self/fd")
    # The last is the folder that ls reads.
    assert result.stdout.text.split() == ["/dev/null", "0", "1", "2", "3"]


def test_given_input_is_read(person: Person) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"given\n")
    os.close(writer)
    try:
        result = loop.run(person.bubble().exec("echo two >&2; cat; echo four >&2", stdin=reader))
    finally:
        os.close(reader)
    # Output and errors are kept apart.
    assert (result.stdout.text, result.stderr.text) == ("given\n", "two\nfour\n")
    assert not result.truncated


# --- side by side --------------------------------------------------------------------------------


async def five(person: Person) -> list[Result]:
    # None is over before all have begun.
    person.share_playground()
    waiting = "until test $(ls ~/playground | wc -l) -ge 5; do sleep 0.02; done"
    command = f"echo $1 >/tmp/mine; touch $1 ~/playground/$1; {waiting}; cat /tmp/mine"
    return await asyncio.gather(
        *(person.bubble().exec(["sh", "-c", command, "sh", str(n)]) for n in range(5))
    )


def test_commands_run_side_by_side_in_one_loop_after_another(person: Person) -> None:
    for _ in range(2):
        shutil.rmtree(person.playground, ignore_errors=True)
        results = loop.run(five(person))
        assert [result.stdout.text for result in results] == [f"{n}\n" for n in range(5)]
        assert sorted(os.listdir(person.project)) == list("01234")
        assert sorted(os.listdir(person.playground)) == list("01234")


def test_no_descriptor_and_no_process_is_left(person: Person) -> None:
    person.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        person.run("sleep 100 & echo $!")
    with pytest.raises(SandboxError):
        person.run("true", capabilities=by(person, OverlayMethod.NONE)._replace(bwrap="/bin/false"))
    assert len(os.listdir("/proc/self/fd")) == before


# --- network -------------------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[int]:
    """Says hello on the loopback interface; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    with listening.accept()[0] as talk:
                        talk.sendall(b"hello\n")
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def call(port: int) -> list[str]:
    return ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"]


@each_way
def test_the_network_is_off_unless_it_is_allowed(person: Person, way: OverlayMethod) -> None:
    found = by(person, way)
    with server() as port:
        result = person.run(call(port), capabilities=found)
        assert result.exit_code != 0
        assert result.stdout.text == ""
        allowed = person.run(call(port), network=True, capabilities=found)
        assert (allowed.exit_code, allowed.stdout.text) == (0, "hello\n")
        assert subprocess.run(call(port), stdout=subprocess.PIPE, check=True).stdout == b"hello\n"


def test_names_are_resolved_as_outside_when_the_network_is_on(person: Person) -> None:
    result = person.run("cat /etc/resolv.conf; getent hosts localhost", network=True)
    assert Path("/etc/resolv.conf").read_text() in result.stdout.text
    assert "localhost" in result.stdout.text


def test_a_command_can_talk_to_itself_without_the_network(person: Person) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 8080));"
        "c = socket.create_connection(s.getsockname()); s.accept()[0].send(b'me');"
        "print(c.recv(2).decode())"
    )
    assert person.run(["/usr/bin/python3", "-c", program]).stdout.text == "me\n"


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_project_that_goes_away_is_an_error_and_nothing_runs(person: Person) -> None:
    bubble = person.bubble()
    shutil.rmtree(person.project)
    with pytest.raises((SandboxError, ProjectError)):
        loop.run(bubble.exec("touch ~/playground/ran"))
    assert not (person.playground / "ran").exists()


def test_a_bwrap_that_is_gone_is_an_error_with_its_reason(person: Person) -> None:
    found = person.capabilities()._replace(bwrap=f"{person.home}/gone")
    with pytest.raises(SandboxError) as caught:
        person.run("touch ran", capabilities=found)
    assert "the command did not run" in str(caught.value)
    assert f"{person.home}/gone: No such file or directory." in str(caught.value)
    assert not (person.project / "ran").exists()


def test_the_duration_is_the_commands(person: Person) -> None:
    before = time.monotonic()
    assert 0.2 < person.run("sleep 0.3").duration < time.monotonic() - before


def test_a_command_can_be_stopped_before_it_starts(person: Person) -> None:
    async def main() -> None:
        bubble = person.bubble()
        task = asyncio.ensure_future(bubble.exec("sleep 1000"))
        await asyncio.sleep(0)
        bubble.stop()
        assert (await task).stop is Stop.PERSON

    loop.run(main())


def test_a_sink_that_fails_ends_the_command_and_is_reported(person: Person) -> None:
    def full(_data: bytes) -> None:
        raise OSError("nobody takes it")

    with pytest.raises(OSError, match="nobody takes it"):
        loop.run(person.bubble().exec("echo begun; sleep 60", sinks=Sinks(stdout=full)))


def test_a_command_that_cannot_be_followed_is_killed_before_its_changes_are_settled(
    person: Person,
) -> None:
    seconds = "87653"

    def started(_pid: int) -> None:
        wait_for(lambda: (person.playground / "begun").exists())
        raise RuntimeError("no card")

    person.share_playground()
    command = f"touch ~/playground/begun; exec sleep {seconds}"
    with pytest.raises(RuntimeError, match="no card"):
        person.bubble().run(command, sinks=Sinks(started=started))
    assert subprocess.run(["pgrep", "-f", f"sleep {seconds}"], check=False).returncode == 1


def test_a_flood_of_output_and_two_cancellations_end(person: Person) -> None:
    """A reader that waits for the loop must not wait for ever."""

    async def main() -> None:
        flowing = asyncio.Event()

        @loop.on_this_loop
        async def shown(_data: bytes) -> None:
            flowing.set()
            await asyncio.sleep(0)

        sinks = Sinks(shown, shown)
        task = asyncio.ensure_future(person.bubble().exec("yes & yes >&2", sinks=sinks))
        await flowing.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(5):
        loop.run(main())
    wait_for(lambda: "command" not in {thread.name for thread in threading.enumerate()})


def test_a_command_that_is_stopped_tells_why_its_changes_are_not_settled(person: Person) -> None:
    class Full(Recorder):
        def settle(self, overlay: Overlay) -> None:
            raise SandboxError("The disk is full.")

    async def main() -> None:
        started = asyncio.Event()
        this = asyncio.get_running_loop()
        bubble = person.bubble(keeper=Full(RunSpec(str(person.project)), person.paths))

        def noticed(_data: bytes) -> None:
            this.call_soon_threadsafe(started.set)

        command = bubble.exec("touch new; echo; sleep 1000", sinks=Sinks(noticed))
        task = asyncio.ensure_future(command)
        await started.wait()
        task.cancel()
        with pytest.raises(SandboxError, match="The disk is full"):
            await task

    loop.run(main())


def test_a_command_whose_limits_cannot_be_looked_at_does_not_run_on(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object) -> Stop:
        raise RuntimeError("no clock")

    monkeypatch.setattr("ollmsandbox.sandbox.bubble.watch_limits", broken)
    with pytest.raises(RuntimeError, match="no clock"):
        loop.run(person.bubble().exec("sleep 87654"))
