# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop works in every state: the next message can be sent at once, and nothing keeps running."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod

import pytest
from support.agent import Scene, opened, with_words
from support.person import Person
from support.scripted import ScriptedModel, SlowModel, call
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.chat.calls import stopped_outcome
from ollmsandbox.chat.conversation import TurnLimits
from ollmsandbox.chat.events import (
    CallEnded,
    CallSettled,
    CommandOutput,
    ConversationState,
    FilesChanged,
    PermissionAsked,
    StateChanged,
    TextGrew,
)
from ollmsandbox.chat.messages import Role
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.database.connection import Database
from ollmsandbox.project.change import Kind
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.tools.base import Outcome

pytestmark = pytest.mark.ordinary

STOPPED = stopped_outcome(Stop.PERSON).text
OUT_OF_TIME = stopped_outcome(Stop.TIME).text

# Seconds: at the first of them by which something had begun it is seen how it ends.
LIMITS = (0.5, 5.0, 30.0)


async def stop_when(scene: Scene, is_time: Callable[[], object], text: str = "go") -> None:
    """Begin a turn and stop it as soon as the condition is true."""
    turn = asyncio.ensure_future(scene.conversation.say(text))
    await scene.listening.until(is_time)
    await asyncio.wait_for(scene.conversation.stop(), PATIENCE)
    assert turn.done()
    assert turn.result().end is TurnEnd.STOPPED
    assert scene.conversation.state is ConversationState.IDLE


async def assert_goes_on(scene: Scene) -> None:
    model = ScriptedModel(["Here I am."])
    scene.conversation.use_model(model)
    assert (await scene.conversation.say("Still there?")).end is TurnEnd.DONE
    asked = {c.id for m in model.seen[0] for c in m.calls}
    assert asked == {m.call_id for m in model.seen[0] if m.role is Role.TOOL}


def others() -> set[str]:
    """Threads that a turn has no right to leave behind."""
    pools = ("asyncio_", "session writer", "MainThread", "gdbus", "gmain")
    return {t.name for t in threading.enumerate() if not t.name.startswith(pools)}


def test_before_the_first_word(person: Person) -> None:
    async def main() -> None:
        model = SlowModel()
        async with opened(person, model) as scene:
            await stop_when(scene, lambda: model.open)
            assert model.open == 0
            assert [m.role for m in scene.conversation.messages] == [Role.USER]
            await assert_goes_on(scene)

    before = others()
    loop.run(main())
    assert others() <= before


def test_while_it_streams(person: Person) -> None:
    async def main() -> None:
        model = SlowModel("Well, ", "let me ")
        async with opened(person, model) as scene:
            await stop_when(scene, lambda: len(scene.listening.of(TextGrew)) == 2)
            assert model.open == 0
            assert scene.conversation.messages[-1].text == "Well, let me "
            assert scene.conversation.messages[-1].partial
            await assert_goes_on(scene)

    loop.run(main())


def test_while_it_asks(person: Person) -> None:
    async def main() -> None:
        mark = f"touch {uuid.uuid4().hex}"
        model = ScriptedModel([call(command=mark, network=True)])
        async with opened(person, model) as scene:
            await stop_when(
                scene, lambda: scene.listening.of(PermissionAsked) and scene.asker.asked
            )
            assert not with_words(mark)
            assert not list(person.project.iterdir())
            await assert_goes_on(scene)
            await scene.conversation.close()
            questions = scene.factory.history.questions(scene.conversation.session_id)
            assert [(q.answer, q.source) for q in questions] == [("deny", "nobody")]
            assert questions[0].subject == mark
            stored = scene.factory.history.load(scene.conversation.session_id)
            assert [m.text for m in stored.messages if m.role is Role.TOOL] == [STOPPED]

    loop.run(main())


def test_while_a_command_runs(person: Person) -> None:
    seconds = f"98{uuid.uuid4().int % 10**9}"

    async def main() -> None:
        # With children, one of which has left its session.
        command = (
            f"echo kept > kept.txt; setsid sleep {seconds} & sleep {seconds} & echo ready; wait"
        )
        model = ScriptedModel([call(command=command)])
        async with opened(person, model) as scene:

            def is_running() -> object:
                said = b"".join(event.data for event in scene.listening.of(CommandOutput))
                return b"ready" in said and len(with_words("sleep", seconds)) >= 2

            await stop_when(scene, is_running)
            # Killed: what is not gone at once is about to.
            await scene.listening.until(lambda: not with_words("sleep", seconds))
            answer = scene.conversation.messages[-1]
            assert answer.role is Role.TOOL
            assert answer.text.startswith(f"ready\n{STOPPED}")
            await assert_goes_on(scene)
            await scene.conversation.close()
            # What it had written stays in the project, and can be undone.
            assert (person.project / "kept.txt").read_text() == "kept\n"
            stored = scene.factory.history.load(scene.conversation.session_id)
            [record] = [e.record for e in stored.entries if e.message.role is Role.TOOL]
            assert record is not None
            assert record.stop is Stop.PERSON
            assert record.changes == {Kind.ADDED: 1}
            changes = scene.factory.history.changes(record.run_id)
            assert [item.change.path for item in changes] == ["kept.txt"]

    loop.run(main())


def test_what_a_command_of_the_model_printed_is_kept_whatever_it_was(person: Person) -> None:
    async def main() -> None:
        # It has no terminal, so this is what is in a file, for example.
        model = ScriptedModel([call(command="printf '\\033[?1049hbegin\\n'; echo end; sleep 97")])
        async with opened(person, model) as scene:

            def has_printed() -> object:
                return b"end" in b"".join(event.data for event in scene.listening.of(CommandOutput))

            await stop_when(scene, has_printed)
            assert scene.conversation.messages[-1].text.startswith(f"begin\nend\n{STOPPED}")

    loop.run(main())


def test_stopping_one_command_lets_the_turn_continue(person: Person) -> None:
    seconds = f"94{uuid.uuid4().int % 10**9}"

    async def main() -> None:
        calls = [
            call(id="1", command=f"echo a > a.txt; echo ready; sleep {seconds}"),
            call(id="2", command="echo b > b.txt"),
        ]
        async with opened(person, model := ScriptedModel(calls)) as scene:
            turn = asyncio.ensure_future(scene.conversation.say("go"))
            await scene.listening.until(lambda: scene.listening.of(CommandOutput))
            # Not twice, nor one that is unknown.
            for call_id in ("1", "1", "9"):
                scene.conversation.stop_call(call_id)
            await scene.listening.until(lambda: scene.listening.of(CallEnded))
            assert scene.conversation.state is ConversationState.RUNNING
            await scene.listening.until(lambda: not with_words("sleep", seconds))
            assert (await turn).end is TurnEnd.DONE
            answers = [m.text for m in model.seen[1] if m.role is Role.TOOL]
            assert STOPPED in answers[0]
            assert "a.txt" in answers[0]
            assert STOPPED not in answers[1]
            assert len(scene.listening.of(CallEnded)) == 2
            assert {file.name for file in person.project.iterdir()} == {"a.txt", "b.txt"}

    loop.run(main())


def test_the_turn_while_one_command_is_being_stopped(person: Person) -> None:
    async def main() -> None:
        calls = [call(id="1", command="echo a > a.txt; echo ready; sleep 95431")]
        async with opened(person, ScriptedModel(calls)) as scene:
            turn = asyncio.ensure_future(scene.conversation.say("go"))
            await scene.listening.until(lambda: scene.listening.of(CommandOutput))
            scene.conversation.stop_call("1")
            await scene.conversation.stop()
            assert (await turn).end is TurnEnd.STOPPED
            assert len(scene.listening.of(CallEnded)) == 1
            await assert_goes_on(scene)
            await scene.conversation.close()
            assert (person.project / "a.txt").exists()

    loop.run(main())


def test_a_command_of_the_user(person: Person) -> None:
    seconds = f"96{uuid.uuid4().int % 10**9}"

    async def main() -> Outcome:
        async with opened(person) as scene:
            run = asyncio.ensure_future(
                scene.conversation.run(f"echo a > a.txt; echo ready; sleep {seconds}")
            )
            await scene.listening.until(lambda: scene.listening.of(CommandOutput))
            await scene.conversation.stop()
            outcome = await run
            await assert_goes_on(scene)
            return outcome

    outcome = loop.run(main())
    assert outcome.text.startswith(f"ready\n{STOPPED}")
    assert not outcome.ok
    assert not with_words("sleep", seconds)
    assert (person.project / "a.txt").exists()


def test_stop_when_nothing_runs(person: Person) -> None:
    async def main() -> None:
        async with opened(person) as scene:
            await scene.conversation.stop()
            assert not scene.listening.of(StateChanged)
            await assert_goes_on(scene)

    loop.run(main())


@pytest.fixture
def endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stop that waits for a locked database get stuck instead of giving up."""
    monkeypatch.setattr(Database, "__init__", partialmethod(Database.__init__, patience=1000))


@contextmanager
def locked(person: Person) -> Iterator[None]:
    """Lock the database as another program does."""
    connection = sqlite3.connect(person.paths.database, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def test_a_locked_database_delays_no_stop(person: Person, endless_patience: None) -> None:
    async def main() -> list[str]:
        async with opened(person, ScriptedModel(["One."])) as scene:
            await scene.conversation.say("first")
            await asyncio.to_thread(scene.factory.history.sessions)
            with locked(person):
                scene.conversation.use_model(SlowModel("Well, "))
                await stop_when(scene, lambda: len(scene.listening.of(TextGrew)) == 2, "second")
                await assert_goes_on(scene)
            await scene.conversation.close()
            stored = scene.factory.history.load(scene.conversation.session_id)
            return [message.text for message in stored.messages]

    assert loop.run(main()) == [
        *("first", "One.", "second", "Well, "),
        *("Still there?", "Here I am."),
    ]


def test_a_locked_database_and_a_running_command(person: Person, endless_patience: None) -> None:
    async def main() -> None:
        model = ScriptedModel([call(command="echo a > a.txt; echo ready; sleep 1000")])
        async with opened(person, model) as scene:
            await asyncio.to_thread(scene.factory.history.sessions)
            with locked(person):
                await stop_when(
                    scene,
                    lambda: scene.listening.of(CommandOutput) and scene.listening.of(FilesChanged),
                )
                assert scene.conversation.messages[-1].text.startswith(f"ready\n{STOPPED}")
            # Only now can the change be recorded; the stop did not wait for it.
            await scene.listening.until(lambda: scene.listening.of(CallSettled))
            [settled] = scene.listening.of(CallSettled)
            assert [item.change.path for item in settled.report.changes] == ["a.txt"]
            assert (person.project / "a.txt").exists()

    loop.run(main())


def test_again_and_again(person: Person) -> None:
    async def main() -> None:
        async with opened(person) as scene:
            for _ in range(3):
                scene.listening.heard.clear()
                scene.conversation.use_model(ScriptedModel([call(command="echo a; sleep 1000")]))
                await stop_when(scene, lambda: scene.listening.of(CommandOutput))
            await assert_goes_on(scene)

    loop.run(main())


def test_the_time_limit_ends_a_reply_and_keeps_the_text_so_far(person: Person) -> None:
    async def main() -> None:
        for seconds in LIMITS:
            model = SlowModel("Well, ")
            async with opened(person, model, limits=TurnLimits(seconds=seconds)) as scene:
                ended = await scene.conversation.say("go")
                assert ended.end is TurnEnd.TIME
                if scene.listening.of(TextGrew):
                    assert scene.conversation.messages[-1].text == "Well, "
                    return
        raise AssertionError("there was not even time for a word")

    loop.run(main())


def test_the_time_limit_of_a_turn_ends_its_command(person: Person) -> None:
    async def main() -> None:
        for seconds in LIMITS:
            model = ScriptedModel([call(command="echo begun; touch new; sleep 600")])
            async with opened(person, model, limits=TurnLimits(seconds=seconds)) as scene:
                ended = await scene.conversation.say("go")
                assert ended.end is TurnEnd.TIME
                if not scene.listening.of(CommandOutput):
                    continue
                told = scene.conversation.messages[-1]
                assert told.role is Role.TOOL
                assert told.text.startswith(f"begun\n{OUT_OF_TIME}")
                assert STOPPED not in told.text
                await assert_goes_on(scene)
                return
        raise AssertionError("there was not even time for a command")

    loop.run(main())
