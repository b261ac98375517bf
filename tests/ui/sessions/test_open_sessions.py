# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.person import Person
from support.scripted import ScriptedModel

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.chat.storage.history import new_session_id
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage, StoredSession, repair
from ollmsandbox.engine.session_lock import SessionLock
from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.ui.models.choice import ModelChoice
from ollmsandbox.ui.sessions.entries import CallEntry, entries_of
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.settings import Settings


class _Nobody:
    async def ask(self, request: PermissionRequest) -> Answer:
        raise AssertionError(request.question)


@dataclass
class House:
    person: Person
    factory: SessionFactory
    sessions: Sessions

    def stored(self) -> str:
        """A session in which something was said."""
        id_, history = new_session_id(), self.factory.history
        history.create(SessionInfo(id_, "A talk", "", "model", "server", 1.0, 1.0))
        history.write(id_, StoredMessage(0, Message(Role.USER, "Hello", at=1.0)))
        return id_

    def is_free(self, session_id: str) -> bool:
        """Another program could open it."""
        try:
            SessionLock(self.person.paths, session_id).release()
        except OllmSandboxError:
            return False
        return True

    async def titles(self) -> list[str]:
        return [item.title for found in await self.sessions.listing() for item in found.sessions]


@pytest.fixture
def house(person: Person) -> Iterator[House]:
    factory = SessionFactory(person.paths, person.environ, _Nobody())
    made = House(
        person, factory, Sessions(factory, ModelChoice(factory.connections), Settings(person.paths))
    )
    yield made
    loop.run(made.sessions.close_all())
    factory.close()


def test_a_session_whose_end_cannot_be_stored_can_be_deleted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise OllmSandboxError("The disk is full.")

    async def talk() -> None:
        session = await house.sessions.open(house.stored())
        session.conversation.use_model(ScriptedModel())
        with monkeypatch.context() as full:
            full.setattr("ollmsandbox.chat.storage.history.History.write", fail)
            await session.conversation.say("Hello")
            await house.sessions.delete(session.id)
        assert await house.titles() == []

    loop.run(talk())


def test_a_session_that_is_closed_and_reopened_at_once_opens(house: House) -> None:
    async def go() -> None:
        await house.sessions.open(id_)
        closing = asyncio.ensure_future(house.sessions.close(id_))
        await asyncio.sleep(0)
        again = await house.sessions.open(id_)
        assert house.sessions.open_ones == [again]
        await closing
        await house.sessions.close_all()

    id_ = house.stored()
    loop.run(go())


def test_a_session_deleted_while_it_opens_is_not_open(house: House) -> None:
    async def delete() -> None:
        opening = asyncio.ensure_future(house.sessions.open(id_))
        await asyncio.sleep(0)
        await house.sessions.delete(id_)
        await opening
        assert house.sessions.open_ones == []
        assert await house.titles() == []

    id_ = house.stored()
    loop.run(delete())
    assert house.is_free(id_)


def test_a_session_that_cannot_be_closed_keeps_no_other_open(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close() -> None:
        first = await house.sessions.open(house.stored())
        second = await house.sessions.open(id_)
        monkeypatch.setattr(first, "close", fail)
        with pytest.raises(OllmSandboxError, match="full"):
            await house.sessions.close_all()
        assert house.sessions.open_ones == []
        assert second.id == id_
        await first.conversation.close()

    async def fail() -> None:
        raise OllmSandboxError("The disk is full.")

    id_ = house.stored()
    loop.run(close())
    assert house.is_free(id_)


def test_a_draft_is_kept_in_a_session_without_messages(house: House) -> None:
    async def type_() -> str:
        session = await house.sessions.new(str(house.person.project))
        await house.sessions.keep_draft(session, "Mend the\nparser")
        await house.sessions.close(session.id)
        return session.id

    async def go_on(session_id: str) -> None:
        assert await house.titles() == ["Mend the"]
        session = await house.sessions.open(session_id)
        assert session.draft == "Mend the\nparser"
        assert session.project == str(house.person.project)
        session.conversation.use_model(ScriptedModel())
        await session.conversation.say("Write a parser")
        await house.sessions.keep_draft(session, "")
        await house.sessions.close(session_id)
        # Its name is of what was said.
        assert await house.titles() == ["Write a parser"]

    loop.run(go_on(loop.run(type_())))


def test_an_emptied_draft_is_removed(house: House) -> None:
    async def type_() -> None:
        session = await house.sessions.new(None)
        for text in ("Hm", "", " \n"):
            house.sessions.keep_draft(session, text)
        await house.sessions.close(session.id)
        assert await house.titles() == []

    loop.run(type_())


def test_a_draft_being_saved_does_not_restore_a_deleted_session(house: House) -> None:
    async def delete() -> None:
        session = await house.sessions.new(None)
        house.sessions.keep_draft(session, "Hm")
        await house.sessions.delete(session.id)
        assert await house.titles() == []
        await house.sessions.undelete(session.id)
        assert await house.titles() == ["Hm"]

    loop.run(delete())


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("run_command", {"command": "make"}, "make"),
        ("read_file", {"path": "a.txt"}, "a.txt"),
        ("web_fetch", {"url": "https://example.org"}, "https://example.org"),
        ("run_command", "no JSON", "run_command"),
    ],
)
def test_a_call_that_was_cut_off_is_shown_with_what_it_was_about(
    name: str, arguments: dict[str, object] | str, shown: str
) -> None:
    wish = Message(Role.ASSISTANT, "", calls=(ToolCall("1", name, arguments),), at=1.0)
    info = SessionInfo("id", "A talk", "", "model", "server", 1.0, 1.0)
    (entry,) = entries_of(StoredSession(info, tuple(repair([StoredMessage(0, wish)]))))
    assert isinstance(entry, CallEntry)
    assert entry.description == shown


def test_a_session_with_a_draft_does_not_count_as_new(house: House) -> None:
    async def go() -> None:
        project = str(house.person.project)
        first = await house.sessions.new(project)
        assert await house.sessions.new(project) is first
        first.draft = "typed, and not stored yet"
        second = await house.sessions.new(project)
        assert second is not first
        first.draft = " \n"
        assert await house.sessions.new(project) is first
        await house.sessions.close_all()

    loop.run(go())


def test_a_link_inside_a_project_does_not_open(house: House) -> None:
    target, link = house.person.home / "bin", house.person.project / "sub"
    target.mkdir()
    link.symlink_to(target)

    async def go() -> None:
        await house.sessions.new(str(house.person.project))
        with pytest.raises(ProjectError, match=str(target)):
            await house.sessions.new(str(link))
        assert (await house.sessions.new(str(target))).project == str(target)
        await house.sessions.close_all()

    loop.run(go())


def test_what_cannot_be_a_project_does_not_become_one(house: House) -> None:
    home, project = house.person.home, house.person.project
    file, closed = project / "a.txt", home / "closed"
    file.write_text("x")
    closed.mkdir(mode=0)

    async def go() -> None:
        for folder in (file, closed, Path("/"), home, home.parent):
            with pytest.raises(ProjectError):
                await house.sessions.new(str(folder))
        assert await house.sessions.listing() == []

    loop.run(go())
    closed.chmod(0o700)
