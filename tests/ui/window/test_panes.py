# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from gi.repository import Gdk, Gtk
from support.person import Person
from support.screen import Screen, children, draw_frames
from support.window import controller_of, finish, in_project, wait_until

from ollmsandbox.ui.badge import badge
from ollmsandbox.ui.window.window import Window


@pytest.fixture
def window(screen: Screen, person: Person) -> Iterator[Window]:
    with in_project(person) as (window, _session):
        window.set_default_size(1100, 750)
        window.changes_pane.resize(420)
        window.flap.set_reveal_flap(True)
        wait_until(lambda: window.flap.get_reveal_progress() == 1)
        wait_until(lambda: window.changes_pane.get_width() == 420)
        yield window


def _press(widget: Gtk.Widget, key: int) -> None:
    """Press a key, as far as a test can without a keyboard."""
    controllers = widget.observe_controllers()
    for number in range(controllers.get_n_items()):
        controller = controllers.get_item(number)
        if isinstance(controller, Gtk.EventControllerKey):
            controller.emit("key-pressed", key, 0, Gdk.ModifierType(0))


def test_the_width_is_changed_at_the_edge_and_kept(window: Window) -> None:
    width = window.changes_pane.get_width()
    _press(window.changes_edge, Gdk.KEY_Right)
    wait_until(lambda: window.changes_pane.get_width() < width)
    assert window._settings.get_int("changes-width") == window.changes_pane.get_width()
    # Never wider than the chat allows.
    for _time in range(40):
        _press(window.changes_edge, Gdk.KEY_Left)
        draw_frames(window, 1)
    assert not window.flap.get_folded()
    assert window.chat.get_width() >= 320


def test_a_wide_pane_does_not_keep_the_window_wide(window: Window) -> None:
    window.changes_pane.resize(500)
    wait_until(lambda: window.changes_pane.get_width() > 400)
    window.set_default_size(960, 700)
    wait_until(lambda: window.get_width() < 970)
    draw_frames(window)
    assert not window.flap.get_folded()
    window.set_default_size(360, 700)
    wait_until(lambda: window.get_width() < 370)
    draw_frames(window)
    assert window.flap.get_folded()
    assert not window.changes_edge.get_visible()


def _is_about(window: Window, width: int) -> bool:
    return abs(window.get_width() - width) < 20


def test_without_animations_the_sidebar_keeps_its_width(window: Window) -> None:
    settings = Gtk.Settings.get_default()
    assert settings is not None
    # A decoration layout with a button, which moves to the sidebar of a narrow window.
    before = settings.props.gtk_enable_animations, settings.props.gtk_decoration_layout
    settings.props.gtk_enable_animations, settings.props.gtk_decoration_layout = False, ":close"
    try:
        window.activate_action("win.toggle-changes", None)
        wait_until(lambda: not window.flap.get_reveal_progress())
        draw_frames(window)
        width = window.side_pane.get_width()
        for wanted in (360, 1100):
            window.set_default_size(wanted, 750)
            wait_until(partial(_is_about, window, wanted))
            draw_frames(window)
        assert window.side_pane.get_width() == width
    finally:
        settings.props.gtk_enable_animations, settings.props.gtk_decoration_layout = before


def test_the_changes_open_at_once_and_fill_the_window_until_hidden(window: Window) -> None:
    window.fill_button.set_active(True)
    wait_until(lambda: window.changes_pane.get_width() >= window.get_width() - 10)
    assert not window.side_pane.get_visible()
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: window.chat.get_mapped() and window.side_pane.get_mapped())
    assert not window.fill_button.get_active()
    seen: list[float] = []
    progress = window.flap.get_reveal_progress
    wait_until(lambda: not progress())
    draw_frames(window)
    window.flap.connect("notify::reveal-progress", lambda *_: seen.append(progress()))
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: progress() == 1)
    assert set(seen) <= {0, 1}


def test_neither_words_nor_opening_the_changes_restyle_the_chat(window: Window) -> None:
    # The leaflet's shadows, whose styles it sets at each layout, must not precede its pages.
    first = next(children(window.leaflet))
    assert first in (window.flap, window.side_pane)

    def styles() -> list[list[str]]:
        """The style classes of all that the messages are in, and of what precedes it."""
        found, widget = [], window.chat.column._box.get_parent()
        while widget is not None:
            found.append(widget.get_css_classes())
            if (before := widget.get_prev_sibling()) is not None:
                found.append(before.get_css_classes())
            widget = widget.get_parent()
        return found

    assert window.flap.get_reveal_flap() and window.chat.session is not None
    finish(window.chat.session.conversation.run("true"))
    wait_until(window.chat.column.get_mapped)
    draw_frames(window)
    beside = styles()
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: not window.flap.get_reveal_progress())
    draw_frames(window)
    assert styles() == beside


def test_in_a_narrow_window_the_keyboard_follows_the_changes(window: Window) -> None:
    def focus_is_in(place: Gtk.Widget | None) -> bool:
        focus = window.get_focus()
        return focus is not None and place is not None and focus.is_ancestor(place)

    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: not window.flap.get_reveal_progress())
    window.set_default_size(360, 700)
    wait_until(lambda: window.get_width() < 370)
    window.chat.focus_composer()
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: focus_is_in(window.flap.get_flap()))
    # Closed and opened again before it has been hidden.
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: focus_is_in(window.chat))
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: focus_is_in(window.flap.get_flap()))
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: not window.flap.get_reveal_progress())
    # From the header bar, too.
    window.changes_button.grab_focus()
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: focus_is_in(window.flap.get_flap()))


def test_changes_that_are_swiped_away_leave_the_keyboard_to_the_composer(window: Window) -> None:
    window.set_default_size(360, 700)
    wait_until(lambda: window.flap.get_folded())
    window.changes.focus()
    wait_until(lambda: isinstance(window.get_focus(), Gtk.Text))
    controller_of(window).tell("A text that stays for some seconds")
    # What a finger does.
    window.flap.set_reveal_flap(False)
    wait_until(lambda: not window.flap.get_reveal_progress())
    draw_frames(window)
    assert window.get_focus() == window.chat.composer.view


def test_the_changes_get_the_room_of_a_hidden_side_pane(window: Window) -> None:
    side, before = window.side_pane.get_width(), window.changes_pane.get_width()
    wait_until(lambda: window.sidebar.search.get_mapped())
    window.sidebar.search.grab_focus()
    window.activate_action("win.toggle-side-pane", None)
    wait_until(lambda: window.changes_pane.get_width() == before + side)
    assert not window.side_pane.get_mapped() and not window.side_button.get_active()
    # The keyboard is left with the composer.
    wait_until(lambda: window.chat.composer.view.has_focus())
    window.activate_action("win.toggle-side-pane", None)
    wait_until(lambda: window.changes_pane.get_width() == before)
    assert window.side_pane.get_mapped()


def test_the_side_pane_stays_hidden_and_as_narrow_as_it_was(window: Window) -> None:
    window.side_pane.resize(210)
    window.side_pane.emit("resized", 210)
    wait_until(lambda: window.side_pane.get_width() == 210)
    window.activate_action("win.toggle-side-pane", None)
    assert window._settings.get_int("side-width") == 210
    assert not window._settings.get_boolean("show-side-pane")
    # The way to it shows it again.
    window.activate_action("win.back", None)
    assert window._settings.get_boolean("show-side-pane")
    wait_until(lambda: window.side_pane.get_width() == 210)


def test_a_hidden_side_pane_is_a_page_of_its_own_where_there_is_no_room(window: Window) -> None:
    window.activate_action("win.toggle-changes", None)
    wait_until(lambda: not window.flap.get_reveal_progress())
    window.activate_action("win.toggle-side-pane", None)
    _resize(window, 360)
    assert window.side_button.get_mapped()
    window.activate_action("win.toggle-side-pane", None)
    wait_until(lambda: window.leaflet.get_folded() and window.sidebar.get_mapped())
    window.activate_action("win.toggle-side-pane", None)
    wait_until(lambda: window.chat.get_mapped())


def test_a_long_text_of_the_badge_leaves_the_window_narrow(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Dans un bac à sable, sans réseau, et davantage encore"
    monkeypatch.setattr(badge, "_", lambda _text: text)
    with in_project(person) as (window, _session):
        _resize(window, 1100)
        wait_until(lambda: window.badge.state is badge.SandboxState.SANDBOXED)
        _resize(window, 360)
        # Its tooltip has the text then.
        assert not window.badge.label.get_visible() and window.badge.get_has_tooltip()
        assert window.badge.label.get_label() == text


def _resize(window: Window, width: int) -> None:
    window.set_default_size(width, 700)
    # The frame of the window comes with it.
    wait_until(lambda: abs(window.get_width() - width) < 60)
    draw_frames(window)
