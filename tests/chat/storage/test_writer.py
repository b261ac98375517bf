# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages survive a crash in the middle of a reply, a restart and a second program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import closing

import pytest
from support.agent import opened
from support.person import ROOT, Person
from support.scripted import ScriptedModel, SlowModel, call
from support.timing import PATIENCE, wait_for

from ollmsandbox import loop
from ollmsandbox.chat.events import CallEnded, Notice, TextGrew
from ollmsandbox.chat.messages import Role
from ollmsandbox.chat.providers.base import ProviderError, ThinkingPiece
from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import INTERRUPTED, StoredMessage, StoredSession
from ollmsandbox.chat.storage.writer import WriterThread
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.errors import OllmSandboxError, Sentence
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.ordinary

_TALK = """
import asyncio, sys
sys.path[:0] = sys.argv[1:3]
from support.agent import opened
from support.person import Person
from pathlib import Path
from support.scripted import SlowModel, ScriptedModel, call
from ollmsandbox import loop

async def main():
    home = Path(sys.argv[3])
    person = Person(home, home / "project", {"HOME": str(home), "PATH": "/usr/bin:/bin"})
    if sys.argv[4] == "reply":
        model = SlowModel("The first half ", "of an answer")
    else:
        model = ScriptedModel([call(command="echo begun; sleep 1000")])
    async with opened(person, model) as scene:
        if sys.argv[4] == "own":
            await scene.conversation.run("sleep 1000")
        await scene.conversation.say("Tell me")

loop.run(main())
"""


def last_session(person: Person) -> StoredSession:
    with closing(ProjectManager(person.paths)) as manager:
        history = History(manager)
        [last] = history.sessions(limit=1)
        return history.load(last.id)


def entries(person: Person) -> int:
    try:
        return len(last_session(person).entries)
    except ValueError:  # there is no session yet
        return 0


def killed(person: Person, what: str, count: int) -> StoredSession:
    """Kill a program with a conversation that has so many messages; return what it stored."""
    arguments = [str(ROOT), str(ROOT / "tests"), str(person.home), what]
    other = subprocess.Popen([sys.executable, "-c", _TALK, *arguments], env=person.environ)
    try:
        wait_for(lambda: entries(person) >= count or other.poll() is not None)
    finally:
        other.kill()
        other.wait()
    return last_session(person)


@pytest.mark.parametrize("what", ["reply", "call"])
def test_a_killed_program_leaves_its_messages(person: Person, what: str) -> None:
    stored = killed(person, what, 2)
    assert stored.messages[0].text == "Tell me"
    if what == "reply":
        assert stored.messages[1].text == "The first half of an answer"
        assert stored.messages[1].partial
        assert stored.info.title == "Tell me"
    else:
        assert stored.messages[1].calls
        assert stored.messages[2].text == INTERRUPTED


def test_a_killed_program_leaves_the_users_own_command(person: Person) -> None:
    [entry] = killed(person, "own", 1).entries
    assert entry.record is not None
    assert entry.record.own and entry.record.is_interrupted
    assert entry.record.description == "sleep 1000"
    assert entry.message.text.endswith(INTERRUPTED)


def test_why_a_turn_failed_is_stored_but_not_sent(person: Person) -> None:
    why = Sentence("{where} is overloaded ({status}).", where=Sentence("The server"), status=503)

    async def main() -> ScriptedModel:
        model = ScriptedModel([ProviderError(why)], ["Yes."])
        async with opened(person, model) as scene:
            await scene.conversation.say("Hello?")
            await scene.conversation.retry()
        return model

    model = loop.run(main())
    assert [message.role for message in model.seen[1]] == [Role.SYSTEM, Role.USER]
    stored = last_session(person)
    notice = stored.entries[1].message
    assert (notice.role, notice.end) == (Role.NOTICE, TurnEnd.FAILED.name)
    # It can be translated when it is shown.
    assert isinstance(notice.text, Sentence)
    german = {"{where} is overloaded ({status}).": "{where} ist überlastet ({status})."}
    said = notice.text.translated(lambda text: german.get(text, text))
    assert said == "The server ist überlastet (503)."
    assert [message.role for message in stored.messages] == [Role.USER, Role.ASSISTANT]


def test_a_stored_session_continues(person: Person) -> None:
    async def first() -> str:
        model = ScriptedModel(
            [ThinkingPiece("hm"), "Let me see.", call(command="echo seen")], ["Yes."]
        )
        async with opened(person, model) as scene:
            await scene.conversation.say("What is here?")
            return scene.conversation.session_id

    async def second(session_id: str) -> ScriptedModel:
        model = ScriptedModel([call(command="echo more")], ["And that."])
        async with opened(person, model, session_id=session_id) as scene:
            assert (await scene.conversation.say("More?")).end is TurnEnd.DONE
        return model

    session_id = loop.run(first())
    model = loop.run(second(session_id))
    roles = [message.role.value for message in model.seen[0]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "seen" in model.seen[0][3].text
    stored = last_session(person)
    assert stored.info.id == session_id
    assert [entry.number for entry in stored.entries] == list(range(8))
    calls = [c.id for message in stored.messages for c in message.calls]
    assert len(set(calls)) == 2
    assert stored.entries[2].record is not None
    assert stored.entries[2].record.exit_code == 0


def test_a_command_of_the_user_is_sent_to_the_model_and_stored(person: Person) -> None:
    async def main() -> ScriptedModel:
        model = ScriptedModel()
        async with opened(person, model) as scene:
            outcome = await scene.conversation.run("echo mine > mine.txt; echo done")
            assert outcome.ok
            assert outcome.report is not None
            assert scene.listening.of(CallEnded)
            await scene.conversation.say("What did I do?")
        return model

    model = loop.run(main())
    assert [message.role for message in model.seen[0]] == [Role.SYSTEM, Role.USER]
    assert "echo mine > mine.txt" in model.seen[0][1].text
    assert model.seen[0][1].text.endswith("What did I do?")
    stored = last_session(person)
    record = stored.entries[0].record
    assert record is not None
    assert record.own
    assert record.run_id
    assert stored.info.title == "!echo mine > mine.txt; echo done"


def test_an_empty_session_leaves_nothing(person: Person) -> None:
    async def main() -> None:
        async with opened(person):
            pass

    loop.run(main())
    assert entries(person) == 0


def test_a_session_that_is_open_cannot_be_opened_again(person: Person) -> None:
    async def main() -> None:
        async with opened(person, ScriptedModel()) as scene:
            await scene.conversation.say("Hello")
            session_id = scene.conversation.session_id
            with pytest.raises(OllmSandboxError, match="another program"):
                await scene.factory.open(None, session_id=session_id, with_model=False)
            await scene.conversation.close()
            again = await scene.factory.open(None, session_id=session_id, with_model=False)
            assert [message.text for message in again.messages] == ["Hello", "Done."]
            await again.close()

    loop.run(main())


def refuse(*_: object) -> None:
    raise OllmSandboxError("The disk is full.")


def test_an_unwritable_database_is_reported(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> str:
        async with opened(person, ScriptedModel(["One."], ["Two."])) as scene:
            monkeypatch.setattr(History, "write", refuse)
            assert (await scene.conversation.say("first")).end is TurnEnd.DONE
            assert (await scene.conversation.say("second")).end is TurnEnd.DONE
            await scene.listening.until(lambda: scene.listening.of(Notice))
            monkeypatch.undo()
            [notice] = scene.listening.of(Notice)
            assert "The disk is full." in notice.text
            return scene.conversation.session_id

    async def again(session_id: str) -> None:
        """The chosen model is stored before the first message."""
        monkeypatch.setattr(History, "note_model", refuse)
        async with opened(person, session_id=session_id) as scene:
            scene.conversation.use_model(ScriptedModel(["Three."]))
            await scene.listening.until(lambda: scene.listening.of(Notice))
            assert (await scene.conversation.say("third")).end is TurnEnd.DONE
            assert not await scene.conversation.is_written()
            monkeypatch.undo()
            [notice] = scene.listening.of(Notice)
            assert "The disk is full." in notice.text

    session_id = loop.run(main())
    texts = [message.text for message in last_session(person).messages]
    assert texts == ["first", "One.", "second", "Two."]
    loop.run(again(session_id))


def test_the_rest_is_written_after_a_fault(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[str]:
        async with opened(person, ScriptedModel(["One."], ["Two."])) as scene:
            write = scene.factory.history.write

            def failing(session_id: str, entry: StoredMessage) -> None:
                if entry.message.text == "One.":
                    raise RecursionError("too deep")
                write(session_id, entry)

            monkeypatch.setattr(scene.factory.history, "write", failing)
            await scene.conversation.say("Hello")
            await scene.listening.until(lambda: scene.listening.of(Notice))
            assert "too deep" in scene.listening.of(Notice)[0].text
            await scene.conversation.say("Again")
            assert await scene.conversation.is_written()
            stored = scene.factory.history.load(scene.conversation.session_id)
            return [message.text for message in stored.messages]

    assert loop.run(main()) == ["Hello", "Again", "Two."]


def test_a_growing_answer_is_written_at_times(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    async def main() -> None:
        model = SlowModel(*["word "] * 500)
        async with opened(person, model) as scene:
            write = scene.factory.history.write

            def noting(session_id: str, entry: StoredMessage) -> None:
                written.append(entry.message.text)
                write(session_id, entry)

            monkeypatch.setattr(scene.factory.history, "write", noting)
            turn = asyncio.ensure_future(scene.conversation.say("Hello"))
            await scene.listening.until(lambda: len(scene.listening.of(TextGrew)) == 500)
            await scene.listening.until(lambda: "word " * 500 in written)
            await scene.conversation.stop()
            await turn

    loop.run(main())
    # The user's message, the answer as it grew, the answer as it ended.
    assert len(written) < 100


def test_nobody_waits_for_long_where_writing_fails() -> None:
    def fail() -> None:
        raise OllmSandboxError("The disk is full.")

    def tell(why: str) -> bool:
        told.append(why)
        return True

    told: list[str] = []
    writer = WriterThread(tell, lambda: None)
    writer.put(fail)
    # It is tried again, and that is all that is waited for.
    assert loop.run(asyncio.wait_for(writer.flushed(PATIENCE), PATIENCE / 2)) is False
    writer.close(PATIENCE)
    assert told == ["The disk is full."]
