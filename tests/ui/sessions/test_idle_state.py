# SPDX-License-Identifier: GPL-3.0-or-later
"""What a session had that no database knows is there when it is opened again: answers that hold for
it, and what stands on its cards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.person import Person
from support.sessions import resting_sessions, until

from ollmsandbox import loop
from ollmsandbox.chat.events import Notice
from ollmsandbox.chat.messages import Role, ToolCall
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.rule_store import RuleStore
from ollmsandbox.permission.rules import Rule
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.tools.base import Stream
from ollmsandbox.ui.chat import tool_text
from ollmsandbox.ui.chat.entries import CallEntry, Entry, MessageEntry, NoticeEntry
from ollmsandbox.ui.preferences.settings import Settings
from ollmsandbox.ui.sessions.open_session import OpenSession, Remains
from ollmsandbox.ui.sessions.sessions import Sessions


class Somebody:
    """Gives the same answer each time."""

    def __init__(self) -> None:
        self.answer = Answer.ALLOW_SESSION
        self.asked = 0

    async def ask(self, _request: PermissionRequest) -> Answer:
        self.asked += 1
        return self.answer


@pytest.fixture
def somebody() -> Somebody:
    return Somebody()


@pytest.fixture
def sessions(
    person: Person, monkeypatch: pytest.MonkeyPatch, somebody: Somebody
) -> Iterator[Sessions]:
    settings = Settings(person.paths)
    monkeypatch.setattr(settings, "boolean", lambda key: key == "ask-every-command")
    with resting_sessions(person, monkeypatch, somebody, settings) as made:
        yield made


async def rested(sessions: Sessions, session: OpenSession) -> OpenSession:
    """Left for a while, and opened again."""
    await sessions.let_go(session)
    await until(lambda: not sessions.open_ones)
    return await sessions.open(session.id)


def test_an_answer_for_the_session_holds_when_it_is_opened_again(
    sessions: Sessions, person: Person, somebody: Somebody
) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        assert (await session.conversation.run("true")).ok
        for _time in range(2):
            session = await rested(sessions, session)
            assert (await session.conversation.run("true")).ok
        # Looked at and left, it is so once more.
        session = await rested(sessions, session)
        session = await rested(sessions, session)
        assert (await session.conversation.run("true")).ok
        assert somebody.asked == 1
        await sessions.close(session.id)
        session = await sessions.open(session.id)
        await session.conversation.run("true")
        assert somebody.asked == 2

    loop.run(go())


def test_a_no_that_could_not_be_saved_holds_as_well(
    sessions: Sessions, person: Person, somebody: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_store: RuleStore, _rule: Rule) -> None:
        raise OllmSandboxError("The disk is full.")

    monkeypatch.setattr(RuleStore, "add", full)
    somebody.answer = Answer.DENY_ALWAYS

    async def go() -> None:
        session = await sessions.new(str(person.project))
        assert not (await session.conversation.run("true")).ok
        session = await rested(sessions, session)
        somebody.answer = Answer.ALLOW
        assert not (await session.conversation.run("true")).ok
        assert somebody.asked == 1

    loop.run(go())


def facts(entry: CallEntry) -> list[object]:
    """All that its card shows."""
    report = entry.report
    return [
        tool_text.title(entry),
        tool_text.status(entry),
        tool_text.seconds(entry),
        tool_text.printed_nothing(entry),
        tool_text.changed(report, entry.states) if report is not None else "",
        [tool_text.change_line(item) for item in report.changes] if report is not None else [],
        [(asked.request.question, asked.verdict, asked.is_over) for asked in entry.asked],
        entry.kept_output(),
    ]


def test_its_cards_say_what_they_said(sessions: Sessions, person: Person) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        await session.conversation.run("echo x > new; echo y > new2")
        tool_context = session.conversation.tool_context
        assert tool_context is not None
        tool_context.own_limits = Limits(time=0.2)
        await session.conversation.run("sleep 600")
        tool_context.own_limits = Limits()
        await session.conversation.run("yes coloured | head -n 3000")
        before = [facts(entry) for entry in session if isinstance(entry, CallEntry)]
        assert "2 files changed" in before[0] and before[0][3]
        assert "It took longer than the time limit" in before[1]
        session = await rested(sessions, session)
        assert [facts(entry) for entry in session if isinstance(entry, CallEntry)] == before

    loop.run(go())


def test_a_message_that_another_program_added_takes_no_sentence_away(
    sessions: Sessions, person: Person
) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        await session.conversation.run("true")
        session.conversation._emit(Notice("No database knows this."))
        await sessions.let_go(session)
        await until(lambda: not sessions.open_ones and not sessions._closing)
        other = await sessions._desk.open(None, session_id=session.id, with_model=False)
        await other.run("echo of another program")
        await other.close()
        again = await sessions.open(session.id)
        assert [type(entry) for entry in again] == [CallEntry, NoticeEntry, CallEntry]

    loop.run(go())


def test_one_that_was_taken_out_takes_only_what_stood_behind_it(sessions: Sessions) -> None:
    entries: list[Entry] = [
        MessageEntry(Role.USER),
        NoticeEntry("first"),
        MessageEntry(Role.USER),
        NoticeEntry("second"),
    ]
    remains = Remains.of(entries, None, {})
    assert remains.added_to([entries[0]]) == entries[:2]


def test_it_is_found_without_a_look_at_each_row_of_the_list(
    sessions: Sessions, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That took longer than a picture may, in a session of thousands; as did to join its output."""
    calls = [CallEntry(ToolCall(str(n), "run_command", {}), "x", own=bool(n % 2)) for n in range(9)]

    async def go() -> None:
        session = await sessions.new(str(person.project))
        session.show_stored(calls)
        assert list(session) == list(session.entries)
        calls[3].add_output(Stream.STDOUT, b"x" * 10_000)
        session.entries = None  # type: ignore[assignment]
        monkeypatch.setattr(CallEntry, "kept_output", None)
        assert session.remains().own_calls == {1: calls[3]}

    loop.run(go())
