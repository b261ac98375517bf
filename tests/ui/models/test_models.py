# SPDX-License-Identifier: GPL-3.0-or-later
"""Which model and which key a session uses after its connection was changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, texts
from support.servers.http import Replay, Reply, delta, document, sse
from support.servers.http import finish as finished
from support.window import finish, press, running_loop, says, toplevels, wait_until

from ollmsandbox.chat.providers.connections import ConnectionStore
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.providers.keys import KeyStorage
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.ui.chat.model_controller import ModelController
from ollmsandbox.ui.chat.view import ChatView
from ollmsandbox.ui.models.choice import ModelChoice
from ollmsandbox.ui.models.chooser import ModelChooser
from ollmsandbox.ui.permission.asker import WindowAsker
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.connections import ConnectionsPage
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.settings import Settings
from ollmsandbox.ui.widgets.tasks import Tasks

TALK = {
    "/v1/chat/completions": sse(delta(content="ok"), finished()),
    "/v1/models": document({"data": [{"id": "small"}, {"id": "big"}]}),
}


@dataclass
class Room:
    factory: SessionFactory
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = Settings(self.factory.paths)
        self.store: ConnectionStore = self.factory.connections
        choice = ModelChoice(self.store)
        self.chooser = ModelChooser()
        self.sessions = Sessions(self.factory, choice, settings)
        self.tasks = Tasks(self.told.append)
        self.chat = ChatView(settings)
        self.control = ModelController(self.chooser, choice, self.chat, self.sessions, self.tasks)
        self.window = Adw.Window()
        self.window.present()

    def put(self, connection: Connection, key: str | None = None) -> None:
        finish(self.store.put(connection, key=key))

    def session(self, connection: str) -> OpenSession:
        session = finish(self.sessions.new(None))
        self.sessions.use_model(session, connection, "small")
        self.control.show_session(session)
        return session

    def look_again(self) -> None:
        self.control.reload()
        wait_until(lambda: self.tasks.is_idle)

    def dialog(self, connection: Connection, *, is_new: bool = False) -> ConnectionDialog:
        made = ConnectionDialog(self.window, self.store, connection, is_new=is_new)
        made.present()
        wait_until(made.get_mapped)
        return made

    def page(self) -> ConnectionsPage:
        made = ConnectionsPage(self.store, self.tasks)
        self.window.set_content(made)
        return made


@pytest.fixture
def room(screen: Screen, person: Person) -> Iterator[Room]:
    with running_loop():
        factory = SessionFactory(person.paths, person.environ, WindowAsker())
        made = Room(factory)
        yield made
        made.window.destroy()
        finish(made.sessions.close_all())
        wait_until(lambda: len(asyncio.all_tasks()) == 1)
        factory.close()


def test_a_replaced_key_is_used(room: Room) -> None:
    with Replay(TALK) as server:
        mine = Connection("mine", ServerKind.OPENAI, server.address)
        room.put(mine, "sk-old")
        session = room.session("mine")
        finish(session.conversation.say("Hello"))
        room.put(room.store.find("mine"), "sk-new")
        room.look_again()
        finish(session.conversation.say("Hello again"))
        keys = [seen.headers.get("authorization") for seen in server.seen if "chat" in seen.path]
    assert keys == ["Bearer sk-old", "Bearer sk-new"]


def test_open_sessions_talk_to_the_new_address(room: Room) -> None:
    with Replay(TALK) as old, Replay(TALK) as new:
        mine = Connection("mine", ServerKind.OPENAI, old.address)
        room.put(mine)
        session = room.session("mine")
        # Another one is shown.
        room.control.show_session(None)
        room.put(replace(mine, address=new.address))
        room.look_again()
        finish(session.conversation.say("Hello"))
        assert not [seen for seen in old.seen if "chat" in seen.path]
        assert [seen for seen in new.seen if "chat" in seen.path]


def test_models_of_a_removed_connection_are_removed(room: Room) -> None:
    for name in ("mine", "other"):
        room.put(Connection(name, ServerKind.OPENAI, "http://127.0.0.1:9/v1", "small"))
    session = room.session("mine")
    assert _has_model(session)
    finish(room.store.remove("mine"))
    room.look_again()
    # No other model gets a message.
    assert not _has_model(session)
    assert says(room.chat, "Choose or connect a model")


def test_a_chosen_model_that_cannot_be_saved_is_used(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def use(*_args: object) -> None:
        threads.append(threading.current_thread())
        raise OllmSandboxError("The file cannot be written.")

    room.put(Connection("mine", ServerKind.OPENAI, "http://127.0.0.1:9/v1"))
    session = room.session("mine")
    monkeypatch.setattr(ConnectionStore, "use", use)
    room.chooser.emit("chosen", "mine", "big")
    assert session.model_name == "big"
    wait_until(lambda: room.told)
    assert room.told == ["The file cannot be written."]
    # The disk may be slow.
    assert threads != [threading.current_thread()]


def test_the_last_chosen_model_is_saved(room: Room) -> None:
    room.put(Connection("mine", ServerKind.OPENAI, "http://127.0.0.1:9/v1"))
    room.session("mine")
    for number in range(8):
        room.chooser.emit("chosen", "mine", f"model {number}")
    wait_until(lambda: room.tasks.is_idle)
    assert room.store.find("mine").model == "model 7"


def test_a_new_connection_is_named_after_its_server_unless_the_user_names_it(room: Room) -> None:
    room.put(Connection("Mine", ServerKind.OPENAI, "http://127.0.0.1:9/v1"), "sk-secret")
    dialog = room.dialog(Connection("", ServerKind.OLLAMA, ""), is_new=True)
    dialog.kind.set_selected(1)
    assert dialog.name.get_text() == "llama.cpp"
    dialog.address.set_text("https://me@models.example:8443/v1")
    assert dialog.name.get_text() == "models.example:8443"
    dialog.name.set_text("Mine")
    dialog.address.set_text("https://other.example/v1")
    assert dialog.name.get_text() == "Mine"
    press(dialog, "Save")
    wait_until(lambda: says(dialog, "already exists"))
    assert dialog.save_button.get_sensitive()
    assert room.store.find("Mine").address == "http://127.0.0.1:9/v1"
    dialog.close()


def test_a_connection_with_a_new_name_is_tried_and_saved_with_its_key(room: Room) -> None:
    with Replay(TALK) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address), "sk-secret")
        dialog = room.dialog(room.store.find("mine"))
        dialog.name.set_text("ours")
        press(dialog, "Check")
        wait_until(lambda: says(dialog, "Connected: 2 models"))
        press(dialog, "Save")
        wait_until(lambda: not dialog.get_mapped())
        assert [one.name for one in room.store.all()] == ["ours"]
        finish(room.store.server(room.store.find("ours")).models())
        assert {seen.headers.get("authorization") for seen in server.seen} == {"Bearer sk-secret"}


def test_sessions_follow_a_connection_to_its_new_name(room: Room, person: Person) -> None:
    with Replay(TALK) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address))
        session = room.session("mine")
        finish(session.conversation.say("Hello"))
        preferences = Preferences(room.window, room.factory, Settings(person.paths))
        preferences.connections.connect("renamed", room.control.follow_rename)
        preferences.connections.connect("changed", room.control.reload)
        preferences.show_connections()
        preferences.present()
        wait_until(lambda: says(preferences, "mine"))
        press(preferences.connections, "Edit mine")
        wait_until(lambda: toplevels(ConnectionDialog))
        [dialog] = toplevels(ConnectionDialog)
        dialog.name.set_text("ours")
        press(dialog, "Save")
        wait_until(lambda: session.connection == "ours")
        wait_until(lambda: preferences.is_idle and room.tasks.is_idle)
        preferences.close()
        assert _has_model(session)
        finish(room.sessions.close_all())
        assert room.factory.history.load(session.id).info.connection == "ours"


def test_the_model_for_new_sessions_is_chosen_in_the_preferences(room: Room) -> None:
    page = room.page()
    wait_until(lambda: room.tasks.is_idle)
    # There is no connection yet.
    assert not page.model_row.get_visible()
    with Replay(TALK) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address))
        page = room.page()
        row = page.model_row
        wait_until(lambda: row.get_sensitive() and "small" in texts(row))
        changed: list[object] = []
        page.connect("changed", changed.append)
        row.set_selected(1)
        wait_until(lambda: changed)
        assert room.store.find("mine").model == "big"
        wait_until(lambda: says(page, " · big"))
        wait_until(lambda: room.tasks.is_idle)


def _has_model(session: OpenSession) -> bool:
    return session.conversation.model is not None


def test_the_list_opens_at_the_model_in_use(room: Room) -> None:
    with Replay(TALK) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address, "small"))
        room.session("mine")
        room.look_again()
    room.window.set_content(room.chooser)
    # The name of the only connection says nothing.
    assert "small" in texts(room.chooser)
    room.chooser.popup()
    wait_until(lambda: isinstance(room.window.get_focus(), Gtk.ListBoxRow))
    focus = room.window.get_focus()
    assert focus is not None and texts(focus) == ["small"]
    room.chooser.popdown()
    wait_until(lambda: not focus.get_mapped())


def test_a_key_that_was_refused_in_a_turn_is_looked_for_in_the_next_one(room: Room) -> None:
    path = "/v1/chat/completions"
    refused = Reply([b'{"error": {"message": "no"}}'], status=401)
    with Replay({**TALK, path: [TALK[path], refused, TALK[path]]}) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address), "sk-old")
        session = room.session("mine")
        finish(session.conversation.say("Hello"))
        # Another program stores it: nothing here hears of that.
        other = ConnectionStore(room.factory.paths, room.factory.environ)
        finish(other.put(room.store.find("mine"), key="sk-new"))
        for _ in range(3):
            finish(session.conversation.say("Hello"))
        sent = [seen.headers["authorization"] for seen in server.seen if seen.path == path]
    assert sent == ["Bearer sk-old", "Bearer sk-old", "Bearer sk-new", "Bearer sk-new"]


def test_the_mark_of_a_model_follows_what_its_server_did_last(room: Room) -> None:
    with Replay(TALK) as server:
        room.put(Connection("mine", ServerKind.OPENAI, server.address, "small"))
        session = room.session("mine")
        room.look_again()
        assert "connected" in (room.chooser.get_tooltip_text() or "")
    # It is gone now, and a turn is the first to notice.
    finish(session.conversation.say("Hello"))
    wait_until(lambda: "not reachable" in (room.chooser.get_tooltip_text() or ""))
    assert not says(room.chooser, "No model chosen")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (KeyStorage.KEYRING, "API key in your keyring"),
        (KeyStorage.FILE, "API key in a file that only you can read"),
    ],
)
def test_a_connection_says_where_its_key_is(room: Room, place: KeyStorage, words: str) -> None:
    mine = Connection("mine", ServerKind.OPENAI, "http://127.0.0.1:9/v1", key=place)
    row = room.page()._row(mine, None)
    assert says(row, words)
    shown = room.dialog(mine).key.get_title()
    assert shown.startswith("API Key (Stored in ")
    assert ("Keyring" in shown) is (place is KeyStorage.KEYRING)
