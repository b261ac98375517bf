# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the whole program in the test's process: window, event loop and user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

from gi.repository import Adw, GLib, Gtk
from support.person import Person
from support.screen import all_of, texts
from support.timing import PATIENCE

from ollmsandbox.chat.providers.tour.model import TourModel, TourServer
from ollmsandbox.loop import end, new_loop
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.settings import SCHEMA
from ollmsandbox.ui.widgets.toasts import when_shown
from ollmsandbox.ui.window.controller import WindowController
from ollmsandbox.ui.window.window import Window

T = TypeVar("T")
W = TypeVar("W", bound=Gtk.Window)
_numbers = count(1)
# GLib complains of one that is freed without having run a loop of its own.
_kept: list[Application] = []


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop that runs inside `wait_until` and `finish`: PyGObject keeps asyncio from
    running while a program iterates the main context itself."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        end(loop)


def finish(work: Coroutine[object, object, T]) -> T:
    return asyncio.get_event_loop().run_until_complete(work)


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    async def wait() -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s"
            await asyncio.sleep(0.01)

    finish(wait())


@contextmanager
def program(person: Person) -> Iterator[Application]:
    """Start the program as from the desktop, with its window open, and close it at the end."""
    # An id stays taken as long as the process lives.
    with running_loop(), _quick_tour():
        application = Application(person.environ, f"{SCHEMA}.Test{next(_numbers)}")
        _kept.append(application)
        application.register(None)
        # A scripted model has no reply to spare.
        application.settings.set("name-sessions", value=False)
        application.activate()
        window = window_of(application)
        wait_until(lambda: window.is_ready)
        try:
            yield application
        finally:
            if application.window is not None:
                application.controller.close_at_once()
                wait_until(lambda: application.window is None)


@contextmanager
def in_project(person: Person) -> Iterator[tuple[Window, OpenSession]]:
    """Run the program with a session in the user's project."""
    with program(person) as application:
        window = window_of(application)
        yield window, open_session(window, person.project)


def open_session(window: Window, project: Path) -> OpenSession:
    controller_of(window).open_project(str(project))
    wait_until(lambda: window.chat.session is not None)
    return session_of(window)


def in_sidebar(window: Window, action: str, session_id: str) -> None:
    """Do something with a session in the sidebar."""
    window.sidebar.activate_action(f"sidebar.{action}", GLib.Variant.new_string(session_id))


def session_of(window: Window) -> OpenSession:
    assert window.chat.session is not None
    return window.chat.session


def say(window: Window, text: str) -> None:
    """Send a message, or a command after an exclamation mark."""
    window.chat.composer.text = text
    window.chat.composer.send_button.emit("clicked")


@contextmanager
def _quick_tour() -> Iterator[None]:
    """Remove the delays and stops of the tour's scripted model, which are for users."""
    before = TourServer.delay, TourModel.stops
    TourServer.delay, TourModel.stops = 0.0, ()
    try:
        yield
    finally:
        TourServer.delay, TourModel.stops = before


def window_of(application: Application) -> Window:
    assert application.window is not None
    return application.window


def controller_of(window: Window) -> WindowController:
    application = window.get_application()
    assert isinstance(application, Application)
    return application.controller


def button(widget: Gtk.Widget, label: str) -> Gtk.Button:
    """Return the sensitive button with this label."""
    found = [
        one
        for one in all_of(widget, Gtk.Button)
        if one.get_mapped() and (label in texts(one) or one.get_tooltip_text() == label)
    ]
    assert len(found) == 1, f"{len(found)} buttons {label!r}: {buttons(widget)}"
    return found[0]


def press(widget: Gtk.Widget, label: str) -> None:
    pressed = button(widget, label)
    assert pressed.get_sensitive(), f"{label} cannot be pressed"
    pressed.emit("clicked")


def press_in_toast(window: Window, label: str) -> None:
    """Press a button of a toast that has appeared completely, as a user would."""
    shown: list[bool] = []
    when_shown(window.toasts, lambda: shown.append(True))
    wait_until(lambda: shown)
    press(window.toasts, label)


def buttons(widget: Gtk.Widget) -> list[str]:
    return [
        (texts(one) or [one.get_tooltip_text() or ""])[0]
        for one in all_of(widget, Gtk.Button)
        if one.get_mapped()
    ]


def cards(window: Window) -> list[ToolCard]:
    return all_of(window.chat, ToolCard)


def card_that(window: Window, condition: Callable[[ToolCard], object]) -> ToolCard:
    """Wait for a card that meets the condition."""
    wait_until(lambda: any(condition(card) for card in cards(window)))
    return next(card for card in cards(window) if condition(card))


def toplevels(kind: type[W]) -> list[W]:
    """Return the windows of a kind that are on the screen."""
    found = [one for one in Gtk.Window.list_toplevels() if isinstance(one, kind)]
    return [one for one in found if one.get_mapped()]


def dialogs() -> list[Adw.MessageDialog]:
    return toplevels(Adw.MessageDialog)


def dialog() -> Adw.MessageDialog:
    """Wait for a question to the user."""
    wait_until(dialogs)
    return dialogs()[0]


def allow_once(window: Window) -> ToolCard:
    """Wait for a question until it can be answered, and allow it: a click that comes too early is
    ignored."""
    card = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
    question = card.question
    assert question is not None
    wait_until(lambda: button(question, "Allow Once").get_sensitive() and question.is_at_rest)
    press(question, "Allow Once")
    return card


def says(widget: Gtk.Widget, part: str) -> bool:
    return any(part in text for text in texts(widget))
