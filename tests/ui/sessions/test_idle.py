# SPDX-License-Identifier: GPL-3.0-or-later
"""A session that nobody looks at is closed after a while, and nothing of it is lost by that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.freed import watch_freeing
from support.person import Person
from support.sessions import resting_sessions, until

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import Notice
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.files.locks import SessionLock
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.ui.chat.entries import CallEntry, NoticeEntry
from ollmsandbox.ui.preferences.settings import Settings
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.sessions.sessions import Sessions


class _Nobody:
    async def ask(self, request: PermissionRequest) -> Answer:
        raise AssertionError(request.question)


@pytest.fixture
def sessions(person: Person, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    with resting_sessions(person, monkeypatch, _Nobody(), Settings(person.paths)) as made:
        yield made


def is_free(person: Person, session_id: str) -> bool:
    """Another program could open it."""
    try:
        SessionLock(person.paths, session_id).release()
    except OllmSandboxError:
        return False
    return True


def outputs(session: OpenSession) -> list[bytes]:
    return [entry.kept_output() for entry in session if isinstance(entry, CallEntry)]


def files(person: Person) -> list[Path]:
    return list((person.paths.cache / "output").glob("session-*/output-*"))


_COLOURED = "printf '\\033[31mred\\033[0m\\n'"
_MUCH = "yes '\\033[32mgreen' | head -n 3000"


def test_it_is_closed_and_all_is_there_when_it_is_opened_again(
    sessions: Sessions, person: Person
) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        await session.conversation.run(_COLOURED)
        session.conversation._emit(Notice("Something that no database knows."))
        await session.conversation.run(_MUCH)
        before, id_ = outputs(session), session.id
        assert b"\033[31mred" in before[0] and len(before[1]) > 20_000
        is_freed = watch_freeing(session)
        await sessions.let_go(session)
        await until(lambda: not sessions.open_ones)
        await until(lambda: is_free(person, id_))
        del session
        await until(is_freed)
        again = await sessions.open(id_)
        assert outputs(again) == before
        kinds = [type(entry) for entry in again]
        assert kinds == [CallEntry, NoticeEntry, CallEntry]
        # Looked at and left, it is so once more.
        await sessions.let_go(again)
        assert sessions.open_ones == []
        assert outputs(await sessions.open(id_)) == before
        assert files(person)
        await sessions.close_all()
        assert not files(person)

    loop.run(go())


def test_it_stays_open_as_long_as_something_goes_on(sessions: Sessions, person: Person) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        waits = "until [ -e ~/playground/go ]; do sleep 0.01; done"
        running = asyncio.ensure_future(session.conversation.run(waits))
        await until(lambda: session.is_busy)
        await sessions.let_go(session)
        await asyncio.sleep(0.1)
        assert sessions.open_ones == [session]
        person.playground.mkdir(parents=True, exist_ok=True)
        (person.playground / "go").touch()
        assert (await running).ok
        await until(lambda: not sessions.open_ones)

    loop.run(go())


def test_who_comes_back_finds_it_open(sessions: Sessions, person: Person) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        await session.conversation.run("true")
        await sessions.let_go(session)
        assert await sessions.open(session.id) is session
        await asyncio.sleep(0.1)
        assert sessions.open_ones == [session]

    loop.run(go())


def test_what_cannot_be_written_keeps_it_open(
    sessions: Sessions, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, say: with the session, what was said in it would be gone."""
    looks: list[bool] = []
    is_full = True

    async def is_written(_talk: Conversation) -> bool:
        looks.append(is_full)
        return not is_full

    monkeypatch.setattr(Conversation, "is_written", is_written)

    async def go() -> None:
        nonlocal is_full
        session = await sessions.new(str(person.project))
        await session.conversation.run("true")
        await sessions.let_go(session)
        await until(lambda: len(looks) > 2)
        assert sessions.open_ones == [session]
        is_full = False
        await until(lambda: not sessions.open_ones)

    loop.run(go())


def test_what_it_printed_goes_with_a_deleted_one(sessions: Sessions, person: Person) -> None:
    async def go() -> None:
        session = await sessions.new(str(person.project))
        await session.conversation.run(_MUCH)
        await sessions.let_go(session)
        await until(lambda: not sessions.open_ones)
        assert files(person)
        await sessions.delete(session.id)
        assert not files(person)

    loop.run(go())


def test_one_with_a_draft_is_not_taken_for_a_new_one(sessions: Sessions, person: Person) -> None:
    async def go() -> None:
        first = await sessions.new(str(person.project))
        assert await sessions.new(str(person.project)) is first
        first.draft = "typed, and not stored yet"
        second = await sessions.new(str(person.project))
        assert second is not first
        first.draft = " \n"
        assert await sessions.new(str(person.project)) is first

    loop.run(go())
