# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in a real sandbox that the user or a limit ends early."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.person import Person
from support.timing import given_time

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Sinks, Stop


def test_a_time_out_keeps_the_output_so_far(person: Person) -> None:
    command = "echo before; echo wrong >&2; sleep 60; echo after"
    result = given_time(lambda s: person.run(command, timeout=s), lambda r: r.stderr.text)
    assert result.timed_out
    assert (result.exit_code, result.stop) == (124, Stop.TIME)
    assert (result.stdout.text, result.stderr.text) == ("before\n", "wrong\n")


def test_a_time_out_ends_what_ignores_signals_and_hides(person: Person) -> None:
    beat = person.project / "beat"
    command = "trap '' TERM INT HUP; setsid sh -c 'while :; do date +%N >beat; done' & sleep 60"
    result = given_time(lambda s: person.run(command, timeout=s), lambda _: beat.exists())
    assert result.timed_out
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


def test_a_child_in_the_background_ends_with_the_command(person: Person) -> None:
    result = person.run("(while :; do date +%N >beat; done) & setsid sleep 100 & echo done")
    assert result.duration < 50
    assert (result.exit_code, result.stdout.text) == (0, "done\n")
    beat = person.project / "beat"
    last = beat.read_text() if beat.exists() else ""
    time.sleep(0.2)
    assert (beat.read_text() if beat.exists() else "") == last


def test_a_command_can_be_stopped(person: Person) -> None:
    bubble = person.bubble()

    async def stop_at_the_first_word(_data: bytes) -> None:
        bubble.stop()

    exec_ = bubble.exec("echo begun; sleep 60", sinks=Sinks(stdout=stop_at_the_first_word))
    result = loop.run(exec_)
    assert (result.exit_code, result.stop) == (137, Stop.PERSON)
    assert result.stdout.text == "begun\n"


def test_a_command_can_be_stopped_before_it_starts(person: Person) -> None:
    async def main() -> None:
        bubble = person.bubble()
        task = asyncio.ensure_future(bubble.exec("sleep 1000"))
        await asyncio.sleep(0)
        bubble.stop()
        assert (await task).stop is Stop.PERSON

    loop.run(main())


def test_a_task_that_is_cancelled_ends_the_command(person: Person) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()

        async def note(_data: bytes) -> None:
            begun.set()

        command = "date >beat; echo begun; while :; do date +%N >beat; done"
        bubble = person.bubble()
        task = asyncio.ensure_future(bubble.exec(command, sinks=Sinks(stdout=note)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(cancelled())
    last = (person.project / "beat").read_text()
    time.sleep(0.2)
    assert (person.project / "beat").read_text() == last


def test_a_sink_that_fails_ends_the_command_and_is_reported(person: Person) -> None:
    async def full(_data: bytes) -> None:
        raise OSError("nobody takes it")

    with pytest.raises(OSError, match="nobody takes it"):
        loop.run(person.bubble().exec("echo begun; sleep 60", sinks=Sinks(stdout=full)))


def test_a_command_whose_limits_cannot_be_looked_at_does_not_run_on(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_given: object) -> Stop:
        raise RuntimeError("no clock")

    monkeypatch.setattr("ollmsandbox.sandbox.bubble.watch_limits", broken)
    with pytest.raises(RuntimeError, match="no clock"):
        loop.run(person.bubble().exec("sleep 87654"))


def test_endless_output_is_bounded_and_ended_in_time(person: Person) -> None:
    result = given_time(
        lambda s: person.run("yes", timeout=s, capture=1000), lambda r: r.stdout.total > 1 << 20
    )
    assert result.timed_out
    assert result.truncated
    assert result.stdout.total > 1 << 20
    assert len(result.stdout.text) < 2100
    assert result.stdout.text.startswith("y\ny\n")
    assert f"{result.stdout.left_out} bytes left out" in result.stdout.text


def test_output_of_any_bytes_is_text(person: Person) -> None:
    result = person.run(r"printf 'a\377\000b\303\274\n'")
    assert result.stdout.text == "a\N{REPLACEMENT CHARACTER}\0bü\n"
