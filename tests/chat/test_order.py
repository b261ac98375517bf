# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of one session: those that can write run in the order in which they were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from support.agent import opened
from support.person import Person
from support.scripted import FOREVER, FakeTool, ScriptedModel, call
from support.turn import begun

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import CallBegan, CallEnded, CallQueued, CommandStarted
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.tools.base import Watcher

pytestmark = pytest.mark.ordinary


def test_commands_that_write_one_file_run_in_order(person: Person) -> None:
    (person.project / "list").write_text("")

    async def main() -> None:
        # The first is slower: both at once would be a conflict, or in the wrong order.
        calls = [
            call(id="1", command="sleep 0.3; echo first >> list"),
            call(id="2", command="echo second >> list"),
            call("edit_file", "3", path="list", old_text="second\n", new_text="second\nthird\n"),
            call(id="4", command="echo fourth >> list"),
        ]
        async with opened(person, ScriptedModel(calls)) as scene:
            assert (await scene.conversation.say("go")).end is TurnEnd.DONE
            for ended in scene.listening.of(CallEnded):
                # Each has its own changes.
                assert ended.outcome.ok and ended.outcome.report is not None
                assert [item.change.path for item in ended.outcome.report.changes] == ["list"]

    loop.run(main())
    assert (person.project / "list").read_text() == "first\nsecond\nthird\nfourth\n"


def test_a_call_that_waits_for_its_turn_is_known_before_it_begins(person: Person) -> None:
    person.share_playground()
    go = "until [ -e ~/playground/go ]; do sleep 0.05; done"

    async def main() -> None:
        calls = [call(id="1", command=go), call(id="2", command="echo 2")]
        async with opened(person, ScriptedModel(calls)) as scene:
            turn = asyncio.ensure_future(scene.conversation.say("go"))
            await scene.listening.until(lambda: scene.listening.of(CommandStarted))
            queued = scene.listening.of(CallQueued)
            assert [(one.call.id, one.description) for one in queued] == [
                ("1", go),
                ("2", "echo 2"),
            ]
            assert [began.call.id for began in scene.listening.of(CallBegan)] == ["1"]
            (person.playground / "go").touch()
            assert (await turn).end is TurnEnd.DONE
            assert [began.call.id for began in scene.listening.of(CallBegan)] == ["1", "2"]

    loop.run(main())


def test_no_command_of_the_user_overlaps_a_turn() -> None:
    async def forever(_arguments: Mapping[str, object], _watcher: Watcher) -> None:
        await asyncio.sleep(FOREVER)

    async def main() -> None:
        tool = FakeTool("run_command", forever)
        conversation = Conversation(model=ScriptedModel([call()]), tools=[tool])
        turn, _ = await begun(conversation, lambda _: tool.running)
        with pytest.raises(OllmSandboxError, match="still working"):
            await conversation.run("true")
        await conversation.stop()
        await turn
        assert tool.most_at_once == 1

    loop.run(main())


def test_a_command_of_the_user_waits_until_a_stopped_one_has_ended() -> None:
    settled = asyncio.Event()

    async def settle_slowly(arguments: Mapping[str, object], _watcher: Watcher) -> str:
        if arguments["command"] == "slow":
            try:
                await asyncio.sleep(FOREVER)
            finally:
                await settled.wait()
        return "done"

    async def main() -> None:
        tool = FakeTool("run_command", settle_slowly)
        conversation = Conversation(model=ScriptedModel([call(command="slow")]), tools=[tool])
        turn, listening = await begun(conversation, lambda _: tool.running)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        own = asyncio.ensure_future(conversation.run("true"))
        await listening.until(lambda: listening.of(CallQueued))
        assert listening.of(CallQueued)[0].own
        settled.set()
        assert (await own).ok
        assert tool.most_at_once == 1

    loop.run(main())
