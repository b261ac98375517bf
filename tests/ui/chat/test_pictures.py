# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import Gdk, GdkPixbuf, GLib, Gtk
from support.person import Person
from support.screen import Screen, all_of, draw_frames, texts
from support.scripted import ScriptedModel
from support.servers.http import Replay, document
from support.window import (
    buttons,
    controller_of,
    finish,
    in_project,
    open_session,
    press,
    program,
    say,
    wait_until,
    window_of,
)

from ollmsandbox.chat.providers.connections import ConnectionStore
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.tools.base import LARGEST_PICTURE, Picture
from ollmsandbox.ui.chat import controller
from ollmsandbox.ui.chat.composer import Composer
from ollmsandbox.ui.diff.images import DecodedPicture
from ollmsandbox.ui.sessions.attachment import decode_attachment
from ollmsandbox.ui.sessions.entries import CallEntry, MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window


def picture(side: int = 8, kind: str = "png") -> bytes:
    pixels = GdkPixbuf.Pixbuf.new(GdkPixbuf.Colorspace.RGB, False, 8, side, side)
    assert pixels is not None
    pixels.fill(0x336699FF)
    return bytes(pixels.save_to_bufferv(kind, [], [])[1])


Talk = tuple[Window, OpenSession, ScriptedModel]


@pytest.fixture
def talk(screen: Screen, person: Person, announced: list[str]) -> Iterator[Talk]:
    with in_project(person) as (window, session):
        model = ScriptedModel(["A blue square."], ["Still blue."], sees=True)
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        yield window, session, model


def save(folder: Path) -> str:
    file = folder / "shot.png"
    file.write_bytes(picture())
    return str(file)


def sent(model: ScriptedModel) -> tuple[Picture, ...]:
    return model.seen[-1][-1].pictures


def attach(composer: Composer, person: Person) -> None:
    """Drop a picture of the project on the composer."""
    composer.emit("dropped", [save(person.project)])
    wait_until(lambda: composer.attached)


def test_the_menu_inserts_paths_and_attaches_pictures(
    talk: Talk, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def choose(_window: Gtk.Window, _title: str, folder: str) -> list[str]:
        return [save(Path(folder))]

    monkeypatch.setattr(controller, "choose_files", choose)
    composer = talk[0].chat.composer
    composer.activate_action("composer.attach", None)
    wait_until(lambda: composer.text == "shot.png ")
    composer.activate_action("composer.attach-pictures", None)
    wait_until(lambda: composer.attached)


def menu_labels(composer: Composer) -> list[str]:
    menu = composer.attach_button.get_menu_model()
    assert menu is not None
    found = [menu.get_item_attribute_value(n, "label", None) for n in range(menu.get_n_items())]
    return [label.get_string() for label in found if label is not None]


def test_a_dropped_picture_goes_to_a_model_that_sees(talk: Talk, person: Person) -> None:
    window, session, model = talk
    composer = window.chat.composer
    attach(composer, person)
    assert composer.text == ""
    # Without a word, too.
    composer.send_button.emit("clicked")
    wait_until(lambda: model.seen and not session.is_busy)
    assert [(one.media_type, one.name) for one in sent(model)] == [("image/png", "shot.png")]
    assert not composer.attached and not composer.chips.get_visible()
    wait_until(lambda: any(one.get_visible() for one in all_of(window.chat, DecodedPicture)))
    # And once more when it is tried again.
    window.chat.emit("resend", "", ())
    wait_until(lambda: len(model.seen) == 2 and not session.is_busy)
    assert len(sent(model)) == 1


def test_a_picture_can_be_queued_and_taken_back(talk: Talk, person: Person) -> None:
    window, session, _model = talk
    end = asyncio.Event()
    model = ScriptedModel([end, "First."], ["Second."], sees=True)
    session.conversation.use_model(model)
    composer = window.chat.composer
    say(window, "first")
    wait_until(lambda: session.is_busy)
    attach(composer, person)
    say(window, "What is it?")
    assert not composer.attached
    assert texts(window.chat.queue)[1:] == ["What is it?"]
    [cross] = all_of(window.chat.queue, Gtk.Button)
    cross.emit("clicked")
    assert composer.text == "What is it?" and not session.conversation.queued
    assert composer.attached
    composer.send_button.emit("clicked")
    end.set()
    wait_until(lambda: len(model.seen) == 2 and not session.is_busy)
    assert [one.name for one in sent(model)] == ["shot.png"]


def test_a_picture_of_an_edited_message_can_be_removed(talk: Talk, person: Person) -> None:
    window, session, model = talk
    composer = window.chat.composer
    attach(composer, person)
    say(window, "What is it?")
    wait_until(lambda: model.seen and not session.is_busy)
    composer.text = "unsent"
    # The end of the turn shows it, in the next frame.
    wait_until(lambda: "Edit and Send Again" in buttons(window.chat))
    press(window.chat, "Edit and Send Again")
    assert [one.name for one in composer.attached] == ["shot.png"]
    window.chat.editing.emit("cancel")
    assert (composer.text, composer.attached) == ("unsent", ())
    press(window.chat, "Edit and Send Again")
    [remove] = all_of(composer.chips, Gtk.Button)
    remove.emit("clicked")
    composer.send_button.emit("clicked")
    wait_until(lambda: len(model.seen) == 2 and not session.is_busy)
    assert (model.seen[-1][-1].text, sent(model)) == ("What is it?", ())
    assert composer.text == "unsent"


def test_a_refused_message_and_a_command_leave_the_pictures(talk: Talk, person: Person) -> None:
    window, session, _model = talk
    composer = window.chat.composer
    attach(composer, person)
    session.conversation.use_model(None)
    say(window, "What is it?")
    wait_until(lambda: composer.text == "What is it?")
    assert [one.name for one in composer.attached] == ["shot.png"]
    say(window, "!true")
    wait_until(lambda: any(isinstance(one, CallEntry) for one in session) and not session.is_busy)
    assert composer.attached


def test_a_picture_is_pasted_and_removed_and_text_is_pasted_as_before(talk: Talk) -> None:
    window, session, _model = talk
    composer = window.chat.composer
    content = Gdk.ContentProvider.new_for_bytes("image/png", GLib.Bytes.new(picture()))
    window.get_clipboard().set_content(content)
    composer.view.emit("paste-clipboard")
    wait_until(lambda: len(composer.attached) == 1)
    assert composer.send_button.get_sensitive()
    # It belongs to its session.
    window.chat.show(None)
    assert not composer.attached
    window.chat.show(session)
    # In line with the field below.
    [chip] = all_of(composer.chips, Gtk.FlowBoxChild)
    wait_until(lambda: chip.get_mapped() and chip.get_width())
    inside = chip.get_child()
    assert inside is not None
    wait_until(lambda: inside.translate_coordinates(composer, 0, 0) == (6, 3))
    [remove] = [one for one in all_of(composer.chips, Gtk.Button) if one.get_mapped()]
    remove.emit("clicked")
    assert not composer.attached and not composer.send_button.get_sensitive()
    window.get_clipboard().set("hello")
    composer.view.emit("paste-clipboard")
    wait_until(lambda: composer.text == "hello")
    # GTK complains if a window is closed in the middle of the scrolling that follows.
    draw_frames(window, 30)


def test_a_model_that_sees_nothing_gets_the_path(talk: Talk, person: Person) -> None:
    window, session, _model = talk
    composer = window.chat.composer
    composer.emit("look-at-model")
    assert menu_labels(composer)[0] == "_Picture…"
    session.conversation.use_model(ScriptedModel())
    composer.emit("look-at-model")
    assert menu_labels(composer)[0] == "_Picture as Path (Model Cannot See It)…"
    composer.emit("dropped", [save(person.project)])
    wait_until(lambda: composer.text == "shot.png ")
    assert not composer.attached


def test_the_user_says_that_a_model_sees(screen: Screen, person: Person) -> None:
    listed = document({"data": [{"id": "m", "context_length": 9000}]})
    with Replay({"/v1/models": listed}) as server, in_project(person) as (window, session):
        store = ConnectionStore(person.paths, person.environ)
        finish(store.put(Connection("Mine", ServerKind.OPENAI, server.address)))
        controller_of(window).model_chooser.emit("chosen", "Mine", "m")
        composer = window.chat.composer
        composer.attach_button.popup()
        wait_until(lambda: len(menu_labels(composer)) == 3)
        composer.attach_button.popdown()
        assert menu_labels(composer)[::2] == ["_Picture as Path…", "Model _Sees Pictures"]
        composer.activate_action("composer.seeing", None)
        wait_until(lambda: store.find("Mine").seeing == ("m",))
        wait_until(lambda: session.conversation.model and session.conversation.model.sees_pictures)
        composer.emit("look-at-model")
        wait_until(lambda: menu_labels(composer)[0] == "_Picture…")
        attach(composer, person)
        composer.activate_action("composer.seeing", None)
        wait_until(lambda: store.find("Mine").seeing == ())


def test_a_session_keeps_the_pictures_that_were_sent(screen: Screen, person: Person) -> None:
    with in_project(person) as (_window, session):
        session.conversation.use_model(ScriptedModel(["Blue."], sees=True))
        sent = Picture("image/png", picture(), "shot.png")
        finish(session.conversation.say("What is it?", [sent]))
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.chat.session is not None)
        assert window.chat.session is not None
        said = [one for one in window.chat.session if isinstance(one, MessageEntry)]
        assert (said[0].text, said[0].pictures) == ("What is it?", (sent,))
        open_session(window, person.project)


def test_servers_get_formats_and_sizes_that_they_accept(screen: Screen, person: Person) -> None:
    found = decode_attachment(picture(kind="bmp"), "shot", person.environ)
    assert found is not None and found.media_type == "image/png"
    large = picture(2000, "bmp")
    assert len(large) > LARGEST_PICTURE
    found = decode_attachment(large, "shot", person.environ)
    assert found is not None and len(found.data) <= LARGEST_PICTURE
    assert decode_attachment(b"\x89PNG\r\n\x1a\nnot", "shot", person.environ) is None
