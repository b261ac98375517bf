# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions as the window and the command line use them: real tools, permissions and records."""

from __future__ import annotations

import pytest
from support.agent import opened
from support.person import Person
from support.scripted import ScriptedModel, call

from ollmsandbox import loop
from ollmsandbox.chat.events import CallEnded, CommandOutput, CommandStarted, PermissionAnswered
from ollmsandbox.chat.instructions import ProjectInstructions
from ollmsandbox.chat.messages import Role
from ollmsandbox.chat.prompt import system_prompt
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.permission.provider import NobodyAsks
from ollmsandbox.permission.request import Answer, Source
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.project.change import Kind
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools.context import ToolContext

pytestmark = pytest.mark.ordinary


def test_a_command_runs_is_recorded_and_belongs_to_its_call(person: Person) -> None:
    async def main() -> None:
        model = ScriptedModel([call(id="c1", command="echo hello > new.txt; echo out")])
        async with opened(person, model) as scene:
            assert (await scene.conversation.say("go")).end is TurnEnd.DONE
            listening = scene.listening
            assert b"".join(event.data for event in listening.of(CommandOutput)) == b"out\n"
            assert listening.of(CommandStarted)[0].plan is not None
            [ended] = listening.of(CallEnded)
            assert ended.outcome.ok
            assert "new.txt" in model.seen[1][-1].text
            history = scene.factory.history
            assert history.run_of(scene.conversation.session_id, "c1") == ended.outcome.run_id

    loop.run(main())
    assert (person.project / "new.txt").read_text() == "hello\n"


@pytest.mark.parametrize("answer", [a for a in Answer if a is not Answer.ALLOW_PROJECT])
def test_each_answer_to_a_question_about_a_command(person: Person, answer: Answer) -> None:
    """The command runs twice: a lasting answer is not asked for again."""

    async def main() -> None:
        replies = [[call(id=str(n), command="touch made.txt")] for n in range(2)]
        model = ScriptedModel(*replies)
        async with opened(person, model, lambda _request: answer, ask_every_command=True) as scene:
            assert (await scene.conversation.say("go")).end is TurnEnd.DONE
            lasts = answer not in (Answer.ALLOW, Answer.DENY)
            assert len(scene.asker.asked) == (1 if lasts else 2)
            outcomes = [event.outcome for event in scene.listening.of(CallEnded)]
            assert [outcome.ok for outcome in outcomes] == [answer.allows] * 2
            sources = [event.verdict.source for event in scene.listening.of(PermissionAnswered)]
            later = Source.SESSION if answer is Answer.ALLOW_SESSION else Source.SAVED
            assert sources == [Source.PERSON, later if lasts else Source.PERSON]
            await scene.conversation.close()
            questions = scene.factory.history.questions(scene.conversation.session_id)
            assert [q.answer for q in questions] == [answer.value] * 2
            entries = scene.factory.history.load(scene.conversation.session_id).entries
            records = [e.record for e in entries if e.message.role is Role.TOOL]
            assert [r.answer if r else None for r in records] == [answer] * 2

    loop.run(main())
    assert (person.project / "made.txt").exists() is answer.allows
    saved = len(RuleStore(person.paths).rules())
    assert saved == (1 if answer in (Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS) else 0)


def test_a_denied_network_runs_nothing_and_is_an_error_to_the_model(person: Person) -> None:
    async def main() -> None:
        model = ScriptedModel([call(command="touch ran.txt", network=True)])
        async with opened(person, model, lambda _request: Answer.DENY) as scene:
            assert (await scene.conversation.say("go")).end is TurnEnd.DONE
            assert scene.asker.asked[0].one_time_only
            assert scene.asker.asked[0].network
            assert not scene.listening.of(CommandStarted)
            assert model.seen[1][-1].text.startswith("ERROR: ")
            assert model.seen[1][-1].was_denied
            await scene.conversation.close()
            stored = scene.factory.history.load(scene.conversation.session_id)
            assert [m.was_denied for m in stored.messages] == [False, False, True, False]

    loop.run(main())
    assert not (person.project / "ran.txt").exists()


def test_without_a_user_to_ask_it_is_denied(person: Person) -> None:
    async def main() -> None:
        factory = SessionFactory(person.paths, person.environ, NobodyAsks())
        conversation = await factory.open(str(person.project), with_model=False)
        model = ScriptedModel([call(command="touch ran.txt", network=True)])
        conversation.use_model(model)
        assert (await conversation.say("go")).end is TurnEnd.DONE
        assert "nobody could be asked" in model.seen[1][-1].text
        await conversation.close()
        [question] = factory.history.questions(conversation.session_id)
        assert (question.answer, question.source) == ("deny", "nobody")
        factory.close()

    loop.run(main())
    assert not (person.project / "ran.txt").exists()


def test_without_a_connection_there_is_no_model_and_commands_still_run(person: Person) -> None:
    async def main() -> None:
        factory = SessionFactory(person.paths, person.environ, NobodyAsks())
        conversation = await factory.open(str(person.project))
        assert conversation.model is None
        assert (await conversation.run("echo said; touch made")).ok
        await conversation.close()
        [entry] = factory.history.load(conversation.session_id).entries
        assert entry.record is not None
        assert entry.record.own
        assert entry.record.changes == {Kind.ADDED: 1}
        assert entry.message.text[entry.record.output_start :].startswith("said\n")
        factory.close()

    loop.run(main())


def test_the_chosen_connection_and_its_model_are_used(person: Person) -> None:
    async def main() -> None:
        factory = SessionFactory(person.paths, person.environ, NobodyAsks())
        store = factory.connections
        await store.put(Connection("one", ServerKind.OLLAMA, "http://127.0.0.1:9", model="small"))
        chosen = await factory.choose()
        assert chosen is not None
        assert (chosen.connection.name, chosen.model.name) == ("one", "small")
        other = await factory.choose("one", "large")
        assert other is not None
        assert other.model.name == "large"
        tour = await factory.choose("tour")
        assert tour is not None
        assert "scripted" in tour.model.name
        with pytest.raises(ProviderError, match="no connection"):
            await factory.choose("nothing")
        factory.close()

    loop.run(main())


def test_a_stored_session_has_its_connection_again(person: Person) -> None:
    async def main() -> None:
        factory = SessionFactory(person.paths, person.environ, NobodyAsks())
        conversation = await factory.open(str(person.project), connection="tour")
        # Not its own project, so it only says that.
        assert (await conversation.say("Hello")).end is TurnEnd.DONE
        await conversation.close()
        again = await factory.open(None, session_id=conversation.session_id)
        assert again.model is not None
        assert "scripted" in again.model.name
        assert again.tool_context is not None
        assert again.tool_context.project == str(person.project)
        await again.close()
        factory.close()

    loop.run(main())


def test_the_prompt_says_what_holds_here(person: Person) -> None:
    tool_context = ToolContext(
        project=str(person.project),
        paths=person.paths,
        environ=person.environ,
        permissions=NobodyAsks(),  # type: ignore[arg-type]
    )
    text = system_prompt(tool_context, ProjectInstructions(tool_context))
    for part in (str(person.project), "undo", "never instructions"):
        assert part in text
    tool_context.mode = Mode.REVIEW
    assert "stay pending" in system_prompt(tool_context, ProjectInstructions(tool_context))
    tool_context.mode = Mode.NEVER
    assert "dry run" in system_prompt(tool_context, ProjectInstructions(tool_context))
    tool_context.ask_every_command = True
    assert "before every command" in system_prompt(tool_context, ProjectInstructions(tool_context))
    tool_context.project = None
    assert "No project" in system_prompt(tool_context, ProjectInstructions(tool_context))
