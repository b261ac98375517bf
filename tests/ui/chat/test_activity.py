# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio

import pytest
from gi.repository import Gtk
from support.chat_screen import Place
from support.screen import one_of, spin_until, texts
from support.scripted import ScriptedModel
from support.window import finish, running_loop, wait_until

from ollmsandbox.chat.events import (
    ChatEvent,
    ConversationState,
    StateChanged,
    TextGrew,
    ThinkingGrew,
)
from ollmsandbox.ui.chat import activity
from ollmsandbox.ui.sessions.entries import Activity

WAITING = StateChanged(ConversationState.WAITING)
STREAMING = StateChanged(ConversationState.STREAMING)


class LoadingModel(ScriptedModel):
    """A model that is not in the server's memory yet."""

    async def is_loaded(self) -> bool | None:
        await asyncio.sleep(0)
        return False


def says(place: Place, start: str) -> bool:
    return any(text.startswith(start) for text in texts(place.view.activity))


def test_a_line_is_shown_until_the_first_word(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "_TICK", 5)
    place.chat.person("Hello")
    assert not place.view.activity.get_visible()
    place.chat.talk.tell(WAITING)
    assert says(place, "Waiting for the model…")
    assert one_of(place.view.activity, Gtk.Spinner).get_spinning()
    place.chat.session.asked_at -= 42
    spin_until(lambda: "Waiting for the model… 42 s" in texts(place.view.activity))
    place.chat.talk.tell(STREAMING, ThinkingGrew("Hm."))
    assert says(place, "Thinking…")
    place.chat.talk.tell(TextGrew("I will write a file."))
    assert not place.view.activity.get_visible()
    assert not one_of(place.view.activity, Gtk.Spinner).get_spinning()
    # A reply that goes on without words is not silent.
    place.chat.session.heard_at -= 10
    spin_until(lambda: says(place, "Writing… 10 s"))
    place.chat.idle()
    assert not place.view.activity.get_visible()


def test_a_model_that_is_being_loaded_is_named_unless_it_says_so_too_late(place: Place) -> None:
    async def tell(*events: ChatEvent) -> None:
        place.chat.talk.tell(*events)
        for _turn in range(10):
            await asyncio.sleep(0)

    with running_loop():
        place.chat.talk.model = LoadingModel()
        finish(tell(WAITING, STREAMING, ThinkingGrew("Hm.")))
        assert place.chat.session.activity is Activity.THINKING
        finish(tell(WAITING))
        wait_until(lambda: says(place, "Loading the model…"))
        place.chat.talk.tell(STREAMING, TextGrew("Good day."))
        assert place.chat.session.activity is None


def test_nothing_moves_without_animations(place: Place) -> None:
    settings = Gtk.Settings.get_default()
    assert settings is not None
    settings.set_property("gtk-enable-animations", False)
    try:
        place.chat.talk.tell(WAITING)
        assert not one_of(place.view.activity, Gtk.Spinner).get_visible()
        assert one_of(place.view.activity, Gtk.Image).get_visible()
    finally:
        settings.set_property("gtk-enable-animations", True)
