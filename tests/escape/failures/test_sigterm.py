# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGTERM after the command has ended and before its changes are settled: nothing is lost, and the
next start settles them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.cli_inline import cli_here
from support.cli_server import Started
from support.escape.paused import states
from support.person import Person, cli_argv
from support.timing import PATIENCE, until, wait_for

from ollmsandbox import loop
from ollmsandbox.project.jobs import project_lock
from ollmsandbox.project.recover import recover

pytestmark = pytest.mark.anybody


@pytest.fixture(autouse=True)
def _earlier_run(person: Person) -> None:
    """The first command of a project waits for the lock before it starts."""
    person.run("echo earlier >earlier")


def test_a_program_waiting_for_the_lock_can_be_ended(person: Person) -> None:
    (person.project / "file").write_text("old\n")
    mark = person.playground / "over"
    with project_lock(person.paths, str(person.project)):
        # Another program holds the project's lock.
        process = person.start("run", "-c", "echo new >file; touch ~/playground/over")
        try:
            wait_for(mark.exists)
            process.terminate()
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
            _, said = process.communicate()
        finally:
            process.end()
    assert b"Nothing was applied. " in said
    assert b"apply or discard" in said
    assert (person.project / "file").read_text() == "old\n"
    assert "interrupted" in person.cli("run", "-c", "true").stderr
    assert states(json.loads(cli_here(person, "changes", "--json").stdout)) == {"file": "pending"}
    assert not list(person.paths.cache.glob("overlay-*"))
    assert cli_here(person, "apply", "--all").returncode == 0
    assert (person.project / "file").read_text() == "new\n"


@contextlib.contextmanager
def nobody_reads(*, has_gone: bool) -> Iterator[int]:
    """An output that takes nothing more."""
    ours, theirs = os.pipe()
    try:
        if has_gone:
            os.close(ours)
        else:
            os.set_blocking(theirs, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(theirs, bytes(4096)):
                    pass
            os.set_blocking(theirs, True)
        yield theirs
    finally:
        os.close(theirs)
        if not has_gone:
            os.close(ours)


def test_its_last_message_is_true_and_need_not_be_read(person: Person) -> None:
    processes: list[Started] = []
    with contextlib.ExitStack() as ends:
        heard, said = os.pipe()
        ends.callback(os.close, heard)
        ends.callback(os.close, said)
        gone = ends.enter_context(nobody_reads(has_gone=True))
        full = ends.enter_context(nobody_reads(has_gone=False))
        ends.enter_context(project_lock(person.paths, str(person.project)))
        for mode, stderr in (("never", said), ("auto", gone), ("review", full)):
            mark = person.playground / f"over-{len(processes)}"
            command = f"echo new >file; touch ~/playground/{mark.name}"
            words = ("run", "--apply", mode, "-c", command)
            process = person.start(*words, stdout=subprocess.DEVNULL, stderr=stderr)
            ends.callback(process.end)
            processes.append(process)
            wait_for(mark.exists)
        for process in processes:
            process.terminate()
        assert [process.wait(PATIENCE) for process in processes] == [128 + signal.SIGTERM] * 3
        text = os.read(heard, 4096)
    assert b"are dropped" in text
    assert b"kept" not in text
    recover(person.paths)
    # Of those that were not to be dropped, and the earlier one.
    assert len(json.loads(cli_here(person, "history", "--json").stdout)) == 3


def test_a_signal_while_only_cleaning_up_is_left_prints_nothing(
    person: Person,
) -> None:
    mark = person.playground / "over"
    slow = f"""
import time
from pathlib import Path
from ollmsandbox.sandbox.overlay import Overlay

def cleanup(overlay):
    overlay.set_aside()
    Path({str(mark)!r}).touch()
    time.sleep(600)

Overlay.cleanup = cleanup
"""
    main = cli_argv("run", "-c", "mkdir -p ~/playground; echo new >file")
    main[3] = f"import sys; sys.path.insert(0, sys.argv[1])\n{slow}\n{main[3]}"
    process = subprocess.Popen(
        main,
        cwd=person.project,
        env=person.environ,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: mark.exists() or process.poll() is not None)
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, said) == (128 + signal.SIGTERM, b"")
    assert (person.project / "file").read_text() == "new\n"
    assert not recover(person.paths).finished


def test_a_terminated_window_closes_at_once_and_loses_nothing(person: Person) -> None:
    """Its tasks are cancelled, and its main loop ends."""
    (person.project / "file").write_text("old\n")
    bubble = person.bubble()
    own = loop.new_loop()

    async def end_meanwhile() -> None:
        task = asyncio.create_task(bubble.exec("echo new >file"))
        await until(lambda: bubble.is_settling)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with project_lock(person.paths, str(person.project)):
        asyncio.set_event_loop(own)
        own.run_until_complete(end_meanwhile())
        loop.end(own)
        assert (person.project / "file").read_text() == "old\n"
    # The thread goes on, and the program waits for it at its end.
    wait_for(lambda: not list(person.paths.cache.glob("overlay-*")))
    assert (person.project / "file").read_text() == "new\n"
