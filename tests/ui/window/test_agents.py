# SPDX-License-Identifier: GPL-3.0-or-later
"""Another agent's session in the window: live, with its questions, and undone there."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from gi.repository import Gio, GLib
from support.person import Person
from support.screen import Screen
from support.servers.mcp_client import RawClient, raw_client
from support.window import (
    allow_once,
    card_that,
    cards,
    controller_of,
    finish,
    press,
    program,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.permission.bus import INTERFACE, NAMES, PATH
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.window import agents
from ollmsandbox.ui.window.window import Window


@contextmanager
def with_agent(person: Person, *options: str) -> Iterator[tuple[Application, Window, RawClient]]:
    """Run the window, and an agent that is connected to a server."""
    address = person.environ["DBUS_SESSION_BUS_ADDRESS"] = os.environ["DBUS_SESSION_BUS_ADDRESS"]
    assert address
    with program(person) as application:
        bus = application.get_dbus_connection()
        assert bus is not None
        named: list[bool] = []
        owning = Gio.bus_own_name_on_connection(
            bus, NAMES[0], Gio.BusNameOwnerFlags.NONE, lambda *_: named.append(True), None
        )
        wait_until(lambda: named)
        try:
            with raw_client(person, *options) as client:
                finish(asyncio.to_thread(client.initialize))
                yield application, window_of(application), client
        finally:
            Gio.bus_unown_name(owning)


def call(client: RawClient, number: int, command: str, **more: object) -> asyncio.Task[Any]:
    """Begin to run a command for the agent."""
    params = {"name": "run_command", "arguments": {"command": command, **more}}
    work = asyncio.to_thread(client.ask, number, "tools/call", **params)
    return asyncio.get_event_loop().create_task(work)


def structured(answer: dict[str, Any]) -> dict[str, Any]:
    found = answer["result"]["structuredContent"]
    assert isinstance(found, dict)
    return found


def show_session(window: Window) -> None:
    wait_until(lambda: controller_of(window).sessions.open_ones)
    (session,) = controller_of(window).sessions.open_ones
    controller_of(window).tasks.start(controller_of(window).side.open_session(session.id))
    wait_until(lambda: window.chat.session is session)


def test_a_running_command_is_shown_and_can_be_stopped(screen: Screen, person: Person) -> None:
    with with_agent(person) as (_application, window, client):
        running = call(client, 1, "echo kept >file; echo live words; sleep 1000")
        wait_until(lambda: says(window.sidebar, "raw: echo kept"))
        show_session(window)
        card = card_that(window, lambda card: card.entry.stage is Stage.RUNNING)
        wait_until(lambda: b"live words" in card.entry.kept_output())
        session = session_of(window)
        wait_until(lambda: session.is_busy)
        assert says(window.chat, "raw leads this session. Talk to it where you started it.")
        window.chat.emit("stop-call", card.entry)
        found = structured(finish(_result(running)))
        assert found["stopped"] == "Stopped" and found["changes"][0]["path"] == "file"
        ended = card_that(window, lambda card: card.entry.stage is Stage.DONE)
        assert ended.entry.run_id == found["run_id"]
        wait_until(lambda: not session.is_busy)
        # It is reviewed and undone as any other.
        window.changes.act_on_runs("undo", (found["run_id"],))
        wait_until(lambda: not (person.project / "file").exists())


async def _result(running: asyncio.Task[Any]) -> Any:
    return await running


def test_a_question_names_the_agent_and_the_project_and_both_answers_arrive(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_agent(person) as (application, window, client):
        told: list[str] = []
        withdrawn: list[str] = []
        monkeypatch.setattr(application, "send_notification", lambda id_, _text: told.append(id_))
        monkeypatch.setattr(application, "withdraw_notification", withdrawn.append)
        running = call(client, 1, "echo ran", network=True, hosts=["example.org"])
        wait_until(lambda: told)
        show_session(window)
        card = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        question = card.question
        assert question is not None
        for text in ("raw", "~/project", "example.org", "echo ran"):
            assert says(question, text), text
        allow_once(window)
        found = structured(finish(_result(running)))
        assert found["exit_status"] == 0 and "ran" in found["output"]
        assert withdrawn == told
        card_that(window, lambda card: card.entry.stage is Stage.DONE)
        running = call(client, 2, "echo ran", network=True)
        card = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        question = card.question
        assert question is not None
        wait_until(lambda: question.is_at_rest)
        press(question, "Deny")
        found = structured(finish(_result(running)))
        assert found["exit_status"] is None and "denied by the user" in found["output"]


def test_a_question_is_withdrawn_with_its_call_or_agent(screen: Screen, person: Person) -> None:
    with with_agent(person) as (application, window, client):
        application.settings.set("notifications", value=False)
        params = {"name": "run_command", "arguments": {"command": "x", "network": True}}
        client.send(id=1, method="tools/call", params=params)
        wait_until(lambda: application.asker.waiting)
        client.send(method="notifications/cancelled", params={"requestId": 1})
        wait_until(lambda: not application.asker.waiting)
        client.send(id=2, method="tools/call", params=params)
        wait_until(lambda: application.asker.waiting)
        show_session(window)
        client.process.kill()
        wait_until(lambda: not application.asker.waiting)
        # The session stays, as any other that was interrupted.
        wait_until(lambda: window.chat.session and not window.chat.session.leader)
        wait_until(lambda: len(cards(window)) == 2)


def test_an_agent_that_came_first_is_shown_later(screen: Screen, person: Person) -> None:
    person.environ["DBUS_SESSION_BUS_ADDRESS"] = os.environ["DBUS_SESSION_BUS_ADDRESS"]
    with raw_client(person) as client:
        client.initialize()
        params = {"name": "run_command", "arguments": {"command": "echo first"}}
        client.ask(1, "tools/call", **params)
        with program(person) as application:
            bus, window = application.get_dbus_connection(), window_of(application)
            assert bus is not None
            owning = Gio.bus_own_name_on_connection(
                bus, NAMES[0], Gio.BusNameOwnerFlags.NONE, None, None
            )
            try:
                show_session(window)
                wait_until(lambda: len(cards(window)) == 1)
                assert session_of(window).leader == "raw"
                assert not window.chat.composer.get_visible()
            finally:
                Gio.bus_unown_name(owning)


def test_an_agent_that_reconnects_cannot_ask_for_ever(screen: Screen, person: Person) -> None:
    """Each connection is another server, which knows nothing of the others."""
    with with_agent(person) as (application, _window, _client):
        application.settings.set("notifications", value=False)
        asked = 0
        for name in range(4):
            with raw_client(person) as client:
                finish(asyncio.to_thread(client.initialize))
                for number in range(3):
                    running = call(client, number, f"echo {name} {number}", network=True)
                    wait_until(lambda: application.asker.waiting or running.done())  # noqa: B023
                    if not running.done():
                        asked += 1
                        (request,) = application.asker.waiting
                        application.asker.answer(request.id, Answer.DENY)
                    found = structured(finish(_result(running)))
                    assert found["exit_status"] is None
        assert asked == 5


def test_what_the_window_refuses_to_ask_is_not_asked_through_the_client(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_MOST_SESSIONS", 0)
    with with_agent(person) as (application, _window, _client), raw_client(person) as client:
        finish(asyncio.to_thread(client.initialize, elicitation={}))
        arguments = {"command": "echo ran", "network": True}
        client.send(
            id=1, method="tools/call", params={"name": "run_command", "arguments": arguments}
        )
        answer = finish(asyncio.to_thread(client.receive))
        assert "method" not in answer, answer
        assert structured(answer)["exit_status"] is None
        assert not application.asker.waiting


def test_other_programs_can_neither_speak_for_an_agent_nor_take_a_session_over(
    screen: Screen, person: Person
) -> None:
    with with_agent(person) as (_application, window, client):
        running = call(client, 1, "sleep 1000")
        wait_until(lambda: controller_of(window).sessions.open_ones)
        (session,) = controller_of(window).sessions.open_ones
        other = Gio.DBusConnection.new_for_address_sync(
            os.environ["DBUS_SESSION_BUS_ADDRESS"],
            Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
            | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION,
            None,
            None,
        )

        async def refused(method: str, *given: str) -> bool:
            def send() -> None:
                other.call_sync(
                    NAMES[0], PATH, INTERFACE, method,
                    GLib.Variant(f"({'s' * len(given)})", given), None,
                    Gio.DBusCallFlags.NONE, -1, None,
                )  # fmt: skip

            try:
                await asyncio.to_thread(send)
            except GLib.Error:
                return True
            return False

        project = str(person.project)
        assert finish(refused("Tell", session.id, '{"event": "result", "call_id": "x"}'))
        assert finish(refused("Ask", session.id, "{}"))
        assert finish(refused("Withdraw", session.id, "x"))
        assert finish(refused("Follow", session.id, "me", project))
        # Nobody leads that one.
        assert finish(refused("Follow", "20260101-000000-00000000", "me", project))
        assert session.leader == "raw"
        controller_of(window).tasks.start(session.conversation.stop())
        finish(_result(running))


def test_a_command_in_the_sandbox_cannot_reach_the_bus(screen: Screen, person: Person) -> None:
    with with_agent(person) as (_application, _window, client):
        address = os.environ["DBUS_SESSION_BUS_ADDRESS"]
        place = address.partition("path=")[2].partition(",")[0]
        # Outside it is there.
        with socket.socket(socket.AF_UNIX) as outside:
            outside.connect(place)
        # Python 3.13 prints the line in which an error occurred.
        told = "print('rea' 'ched')"
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({place!r}); {told}"
        found = structured(finish(_result(call(client, 1, f'python3 -c "{code}"; env'))))
        assert "reached" not in found["output"] and "Error" in found["output"]
        assert "DBUS_SESSION" not in found["output"]
