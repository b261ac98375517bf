# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, all_of, one_of, texts
from support.servers.http import Replay, Reply
from support.window import dialog, finish, press, running_loop, says, wait_until

from ollmsandbox.chat.providers.base import Effort, Price
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.permission.request import Answer
from ollmsandbox.permission.rules import Key, Rule, Target
from ollmsandbox.project.settings import KEEP_CACHES_DAYS, KEEP_DAYS
from ollmsandbox.ui.permission.asker import WindowAsker
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.settings import LIMITS, Settings


@dataclass
class Room:
    factory: SessionFactory
    settings: Settings
    window: Adw.Window
    person: Person

    def preferences(self) -> Preferences:
        made = Preferences(self.window, self.factory, self.settings)
        made.present()
        for row in all_of(made, Adw.ExpanderRow):
            row.set_expanded(row.get_title() == "Advanced")
        return made


@pytest.fixture
def room(screen: Screen, person: Person) -> Iterator[Room]:
    with running_loop():
        factory = SessionFactory(person.paths, person.environ, WindowAsker())
        window = Adw.Window()
        window.present()
        yield Room(factory, Settings(person.paths), window, person)
        window.destroy()
        wait_until(lambda: len(asyncio.all_tasks()) == 1)
        factory.close()


@pytest.mark.usefixtures("without_bus")
def test_without_a_bus_preferences_are_stored_in_a_file(person: Person) -> None:
    settings = Settings(person.paths)
    heard: list[str] = []
    settings.connect("changed", lambda _settings, key: heard.append(key))
    settings.set("apply-mode", "review")
    settings.set("time-limit", 30)
    settings.set("time-limit", 30)
    assert heard == ["apply-mode", "time-limit"]
    file = person.paths.config / "preferences.json"
    assert json.loads(file.read_text()) == {"apply-mode": "review", "time-limit": 30}
    again = Settings(person.paths)
    assert (again.get_string("apply-mode"), again.get_int("time-limit")) == ("review", 30)
    file.write_text("not json")
    assert Settings(person.paths).get_string("apply-mode") == "auto"


@pytest.mark.usefixtures("without_bus")
def test_a_full_disk_leaves_the_old_preferences(person: Person) -> None:
    Settings(person.paths).set("time-limit", 30)
    # In a process of its own: no file may become larger than this, and no signal ends it.
    program = (
        "import resource, signal\n"
        "from ollmsandbox.paths import Paths\n"
        "from ollmsandbox.ui.settings import Settings\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))\n"
        f"settings = Settings(Paths.from_environ({dict(person.environ)!r}))\n"
        "settings.set('memory-limit', 100)\n"
        "assert settings.get_int('memory-limit') == 100\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    again = Settings(person.paths)
    assert (again.get_int("time-limit"), again.get_int("memory-limit")) == (30, 0)


@pytest.mark.usefixtures("without_bus")
def test_an_unsaved_setting_counts_until_the_end_and_is_reported_once(person: Person) -> None:
    file = person.paths.config / "preferences.json"
    # Nobody can write there, not even root.
    file.mkdir(parents=True)
    settings = Settings(person.paths)
    heard: list[str] = []
    troubles: list[str] = []
    settings.connect("changed", lambda _settings, key: heard.append(key))
    settings.connect("trouble", lambda _settings, text: troubles.append(text))
    settings.set("last-session", "one")
    settings.set("time-limit", 30)
    assert (settings.get_string("last-session"), settings.get_int("time-limit")) == ("one", 30)
    assert heard == ["last-session", "time-limit"]
    assert len(troubles) == 1
    assert str(file) in troubles[0]
    file.rmdir()
    settings.set("time-limit", 31)
    again = Settings(person.paths)
    assert (again.get_string("last-session"), again.get_int("time-limit")) == ("one", 31)


@pytest.mark.usefixtures("without_bus")
def test_a_value_that_the_schema_would_refuse_is_not_taken_from_a_file(person: Person) -> None:
    written = {
        "apply-mode": "bogus",
        "window-width": 3,
        "window-height": 500,
        "time-limit": -1,
        "memory-limit": 10_000_000,
        "notifications": False,
        "send-with-enter": 0,
        "last-session": "\ud800",
        "profile": ["standard"],
        "process-limit": 1 << 40,
        "unknown": True,
    }
    person.paths.config.mkdir(parents=True)
    (person.paths.config / "preferences.json").write_text(json.dumps(written))
    settings = Settings(person.paths)
    assert settings.get_int("window-width") == 1100
    for key in ("time-limit", "memory-limit", "process-limit"):
        assert settings.get_int(key) == 0
    for key, default in (("apply-mode", "auto"), ("last-session", ""), ("profile", "standard")):
        assert settings.get_string(key) == default
    assert settings.get_boolean("send-with-enter")
    assert settings.get_int("window-height") == 500
    assert not settings.get_boolean("notifications")


def test_a_switch_changes_its_setting(room: Room) -> None:
    general = room.preferences().general
    row = next(r for r in all_of(general, Adw.ActionRow) if "Send With Enter" in texts(r))
    (switch,) = all_of(row, Gtk.Switch)
    before = room.settings.get_boolean("send-with-enter")
    switch.set_active(not before)
    assert room.settings.get_boolean("send-with-enter") is not before


def test_the_limits_are_those_of_the_profile(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    listening: list[object] = []
    monkeypatch.setattr(Settings, "connect", lambda *given: listening.append(given))
    preferences = room.preferences()
    preferences.set_visible_page(preferences.safety)
    assert says(preferences.safety, "Default: 600")
    row = next(r for r in all_of(preferences.safety, Adw.ActionRow) if "Time (Seconds)" in texts(r))
    (seconds,) = all_of(row, Gtk.SpinButton)
    seconds.set_value(90)
    assert not says(preferences.safety, "Default: 600")
    seconds.set_value(0)
    row = next(r for r in all_of(preferences.safety, Adw.ComboRow) if "Profile" in texts(r))
    row.set_selected(1)
    assert room.settings.get_string("profile") == "strict"
    assert says(preferences.safety, "Default: 300")
    # The settings outlive the page, and would call it for ever.
    assert listening == []


def test_a_remembered_answer_is_forgotten(room: Room) -> None:
    rule = Rule(Key("web_fetch", "", Target("example.org")), Answer.ALLOW_ALWAYS)
    room.factory.rules.add(rule)
    preferences = room.preferences()
    preferences.set_visible_page(preferences.safety)
    wait_until(lambda: says(preferences.safety, "example.org"))
    press(preferences.safety, "Remove Answer")
    wait_until(lambda: says(preferences.safety, "No saved answers"))
    assert not room.factory.rules.rules()


def test_the_playground_and_caches_are_measured_limited_and_cleared(room: Room) -> None:
    room.person.run("head -c 100000 /dev/zero | tee ~/.m2/file ~/playground/file")
    preferences = room.preferences()
    storage = preferences.storage
    preferences.set_visible_page(storage)
    wait_until(lambda: len([text for text in texts(storage) if "in 1 file" in text]) == 2)
    wait_until(lambda: says(storage, "Keep Unused Caches (Days)"))
    days = spin(storage, "Keep Unused Caches (Days)")
    assert days.get_value_as_int() == 90
    days.set_value(7)
    wait_until(lambda: KEEP_CACHES_DAYS.read(room.factory.manager) == 7)
    playground, caches = (b for b in all_of(storage, Gtk.Button) if "Clear…" in texts(b))
    for clear in (playground, caches):
        assert clear.get_sensitive()
        clear.emit("clicked")
        asked = dialog()
        assert "Clear" in texts(asked)
        asked.response("confirm")
        # What has nothing in it cannot be cleared; the keyboard goes on from there.
        wait_until(lambda clear=clear: not clear.get_sensitive())  # type: ignore[misc]
    assert list(room.person.playground.iterdir()) == []
    assert room.person.run("ls ~/.m2/").stdout.text == ""


def test_a_connection_is_tried_and_saved(room: Room) -> None:
    models = Reply([b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}'])
    with Replay({"/v1/models": models}) as server:
        new = Connection("", ServerKind.OPENAI, "")
        dialog = ConnectionDialog(room.window, room.factory.connections, new)
        dialog.present()
        dialog.name.set_text("mine")
        dialog.address.set_text("http://127.0.0.1:9")
        press(dialog, "Check")
        wait_until(lambda: dialog.result.has_css_class("error"))
        dialog.address.set_text(server.address)
        dialog.key.set_text("sk-wrong")
        for changed in (dialog.address, dialog.key):
            press(dialog, "Check")
            wait_until(lambda: says(dialog, "Connected: 1 model"))
            assert dialog.result.has_css_class("success")
            # It counts for this address and this key only.
            changed.set_text("sk-secret")
            assert says(dialog, "Lists the models of the server")
            assert not dialog.result.has_css_class("success")
            dialog.address.set_text(server.address)
        saved: list[Connection] = []
        dialog.connect("saved", lambda _dialog, connection: saved.append(connection))
        press(dialog, "Save")
        wait_until(lambda: saved)
        assert room.factory.connections.find("mine").address == saved[0].address
        assert {seen.headers.get("authorization") for seen in server.seen} == {"Bearer sk-wrong"}
        for file in room.person.paths.config.rglob("connections.yaml"):
            assert "sk-secret" not in file.read_text()


def test_connections_are_listed_and_removed(room: Room) -> None:
    connection = Connection("Ollama", ServerKind.OLLAMA, "http://127.0.0.1:9")
    finish(room.factory.connections.put(connection))
    preferences = room.preferences()
    preferences.show_connections()
    wait_until(lambda: says(preferences.connections, "Ollama · http://127.0.0.1:9"))
    press(preferences.connections, "Remove Ollama")
    dialog().response("confirm")
    wait_until(lambda: says(preferences.connections, "No connections yet"))


def spin(page: Adw.PreferencesPage, title: str) -> Gtk.SpinButton:
    row = next(row for row in all_of(page, Adw.ActionRow) if title in texts(row))
    (found,) = all_of(row, Gtk.SpinButton)
    return found


def type_into(preferences: Preferences, button: Gtk.SpinButton, text: str) -> None:
    """Type text and leave the field without Enter."""
    button.grab_focus()
    button.set_text(text)
    focus = preferences.get_focus()
    assert focus is not None and focus.is_ancestor(button)


def test_typed_values_are_saved_when_the_window_is_closed(room: Room) -> None:
    preferences = room.preferences()
    preferences.set_visible_page(preferences.safety)
    wait_until(preferences.get_mapped)
    type_into(preferences, spin(preferences.safety, "Memory (MiB)"), "512")
    assert room.settings.get_int("memory-limit") == 0
    preferences.close()
    wait_until(lambda: not preferences.get_mapped())
    assert room.settings.get_int("memory-limit") == 512
    preferences = room.preferences()
    storage = preferences.storage
    preferences.set_visible_page(storage)
    wait_until(lambda: says(storage, "Keep Earlier Versions (Days)") and preferences.get_mapped())
    days = spin(storage, "Keep Earlier Versions (Days)")
    assert days.get_value_as_int() == 30
    type_into(preferences, days, "41")
    preferences.close()
    wait_until(lambda: KEEP_DAYS.read(room.factory.manager) == 41)


def test_limits_and_masks_of_an_unreadable_profile_are_not_shown(room: Room) -> None:
    folder = room.person.paths.profiles
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.yaml").write_text("limits: [broken\n")
    preferences = room.preferences()
    safety = preferences.safety
    preferences.set_visible_page(safety)
    assert says(safety, "Default: ") and not says(safety, "cannot be read")
    masks = all_of(safety, Adw.ExpanderRow)[0]
    masks.set_expanded(True)
    wait_until(lambda: says(masks, ".ssh"))
    # Rows for hundreds of paths would stop the window for a second.
    assert len(all_of(masks, Gtk.ListBoxRow)) < 5
    row = next(row for row in all_of(safety, Adw.ComboRow) if "Profile" in texts(row))
    names = row.get_model()
    assert isinstance(names, Gtk.StringList)
    row.set_selected([names.get_string(n) for n in range(names.get_n_items())].index("mine"))
    assert texts(safety).count("The profile cannot be read") == len(LIMITS)
    assert not says(safety, "Default: ")
    assert not says(masks, ".ssh")
    # Not even an empty row.
    assert not one_of(masks, Gtk.TextView).is_visible()


def test_the_settings_of_a_connection_are_shown_and_saved(room: Room) -> None:
    before = Connection("mine", ServerKind.OPENAI, "http://a.b/v1", room=16384, temperature=0.5)
    dialog = ConnectionDialog(room.window, room.factory.connections, before, is_new=True)
    dialog.present()
    assert (dialog.context.get_text(), dialog.temperature.get_text()) == ("16384", "0.5")
    dialog.context.set_text("131072")
    dialog.answer.set_text("4096")
    dialog.effort.set_selected(5)
    dialog.temperature.set_text("warm")
    press(dialog, "Save")
    wait_until(lambda: says(dialog, "Enter a number: Temperature"))
    dialog.temperature.set_text("0,2")
    dialog.input_price.set_text("2.5")
    dialog.output_price.set_text("10")
    dialog.idle_timeout.set_text("60")
    dialog.headers.get_buffer().set_text("X-Title: OLLM\nX-Team: 7\n")
    saved: list[Connection] = []
    dialog.connect("saved", lambda _dialog, connection: saved.append(connection))
    press(dialog, "Save")
    wait_until(lambda: saved)
    found = room.factory.connections.find("mine")
    assert found == replace(
        before,
        room=131072,
        answer=4096,
        effort=Effort.HIGH,
        temperature=0.2,
        price=Price(2.5, 10.0),
        idle=60.0,
        headers=(("X-Title", "OLLM"), ("X-Team", "7")),
    )
    again = ConnectionDialog(room.window, room.factory.connections, found)
    assert again._entered() == found
    # An impossible value is refused before it could spoil the file.
    again.present()
    again.context.set_text("3")
    press(again, "Save")
    wait_until(lambda: again.result.has_css_class("error"))
    assert room.factory.connections.find("mine") == found
    again.close()
