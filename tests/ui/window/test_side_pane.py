# SPDX-License-Identifier: GPL-3.0-or-later
"""The side pane can be hidden and made narrower, and the changes use its room."""

from __future__ import annotations

import pytest
from support.person import Person
from support.screen import Screen, draw_frames
from support.window import in_project, wait_until

from ollmsandbox.ui.badge import badge
from ollmsandbox.ui.window.window import Window

pytestmark = pytest.mark.anybody


def _resize(window: Window, width: int) -> None:
    window.set_default_size(width, 700)
    # The frame of the window comes with it.
    wait_until(lambda: abs(window.get_width() - width) < 60)
    draw_frames(window)


def test_the_changes_get_the_room_of_a_hidden_side_pane(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        window.flap.set_reveal_flap(True)
        wait_until(lambda: window.flap.get_reveal_progress() == 1)
        side, before = window.side_pane.get_width(), window.changes_pane.get_width()
        window.activate_action("win.toggle-side-pane", None)
        wait_until(lambda: window.changes_pane.get_width() == before + side)
        assert not window.side_pane.get_mapped() and not window.side_button.get_active()
        window.activate_action("win.toggle-side-pane", None)
        wait_until(lambda: window.changes_pane.get_width() == before)
        assert window.side_pane.get_mapped()


def test_it_stays_hidden_and_as_narrow_as_it_was(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        window.side_pane.resize(210)
        window.side_pane.emit("resized", 210)
        wait_until(lambda: window.side_pane.get_width() == 210)
        window.activate_action("win.toggle-side-pane", None)
        assert window._settings.number("side-width") == 210
        assert not window._settings.boolean("show-side-pane")
        # The way to it shows it again.
        window.activate_action("win.back", None)
        assert window._settings.boolean("show-side-pane")
        wait_until(lambda: window.side_pane.get_width() == 210)


def test_hiding_it_leaves_the_keyboard_with_the_composer(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        wait_until(lambda: window.sidebar.search.get_mapped())
        window.sidebar.search.grab_focus()
        window.activate_action("win.toggle-side-pane", None)
        wait_until(lambda: window.chat.composer.view.has_focus())


def test_hidden_it_is_a_page_of_its_own_where_there_is_no_room(
    screen: Screen, person: Person
) -> None:
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        window.activate_action("win.toggle-side-pane", None)
        _resize(window, 360)
        assert window.side_button.get_mapped()
        window.activate_action("win.toggle-side-pane", None)
        wait_until(lambda: window.leaflet.get_folded() and window.sidebar.get_mapped())
        window.activate_action("win.toggle-side-pane", None)
        wait_until(lambda: window.chat.get_mapped())


@pytest.mark.parametrize(
    "text", ["In Sandbox, ohne Netzwerk", "Dans un bac à sable, sans réseau, et davantage encore"]
)
def test_a_long_text_of_the_badge_leaves_the_window_narrow(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(badge, "_", lambda _text: text)
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        wait_until(lambda: window.badge.state is badge.SandboxState.SANDBOXED)
        _resize(window, 360)
        # Its tooltip has the text then.
        assert not window.badge.label.get_visible() and window.badge.get_has_tooltip()
        assert window.badge.label.get_label() == text
