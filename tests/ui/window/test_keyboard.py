# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio

import pytest
from gi.repository import Gtk
from support.chat import press_shortcut
from support.person import Person
from support.screen import Screen, all_of, spin_until, texts
from support.scripted import ScriptedModel, call
from support.window import (
    button,
    buttons,
    card_that,
    controller_of,
    finish,
    in_project,
    in_sidebar,
    press,
    press_in_toast,
    program,
    says,
    session_of,
    toplevels,
    wait_until,
    window_of,
)

from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.changes.rows import FileRow, RunRow
from ollmsandbox.ui.diff.view import DiffView
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.sidebar import controller
from ollmsandbox.ui.sidebar.rows import SessionRow
from ollmsandbox.ui.widgets.actions import Action
from ollmsandbox.ui.widgets.focus import FocusKeeper
from ollmsandbox.ui.window.window import Window

FORWARD, BACKWARD = Gtk.DirectionType.TAB_FORWARD, Gtk.DirectionType.TAB_BACKWARD
_LONG = "echo 'It is so long that the card shows it once more, below its head.'; exit 3"


@pytest.fixture(autouse=True)
def time_to_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the toast for as long as the test takes."""
    monkeypatch.setattr(controller, "_TIME_TO_UNDO", 0)


def test_the_tab_key_goes_through_the_window_and_back_again(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        press(window.welcome, "Take the Tour")
        asks = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        assert asks.question is not None
        asks.question.button_for(Answer.DENY).emit("clicked")
        session = session_of(window)
        wait_until(lambda: not session.is_busy)
        finish(session.conversation.run(_LONG))
        wait_until(lambda: not window.pages.get_transition_running())
        column = window.chat.column
        wait_until(lambda: column.is_settled and says(column, "Reasoning"))
        there = _round(window, FORWARD)
        assert "Reasoning" in there
        # One stop in each row: the output is below the name of its command, by an arrow key.
        assert "Output of the command" not in there
        assert set(_round(window, BACKWARD)) >= {"Reasoning", "Message", "New Session"}


def test_what_is_opened_with_the_keyboard_has_it(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        window.chat.focus_composer()
        window.activate_action("win.toggle-changes", None)
        wait_until(lambda: _focus(window).is_ancestor(window.changes_pane))
        wait_until(lambda: window.flap.get_reveal_progress() == 1)
        wait_until(lambda: window.changes.lists.get_visible_child_name() == "empty")
        window.chat.focus_composer()
        stops = set()
        for _step in range(40):
            assert window.child_focus(FORWARD)
            stops.add(_focus(window))
        # An empty page is none.
        assert not [one for one in stops if isinstance(one, Gtk.ScrolledWindow)]
        assert window.fill_button in stops
        window.fill_button.grab_focus()
        window.activate_action("win.toggle-changes", None)
        wait_until(lambda: _focus(window) is window.chat.composer.view)
        # Also a question, by the row of its session.
        command = call(id="1", command="true", network=True)
        session.conversation.use_model(ScriptedModel([command], ["Done."]))
        asking = asyncio.ensure_future(session.conversation.say("go"))
        card = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        assert card.question is not None
        deny = card.question.button_for(Answer.DENY)
        wait_until(lambda: _focus(window) is deny)
        window.sidebar.search.grab_focus()
        controller_of(window).show_session(session.id)
        wait_until(lambda: _focus(window) is deny)
        deny.emit("clicked")
        wait_until(asking.done)


def test_an_insensitive_widget_passes_the_focus_on(screen: Screen) -> None:
    box = Gtk.Box()
    before, pressed, beside = (Gtk.Button(label=name) for name in ("before", "pressed", "beside"))
    for one in (before, pressed, beside):
        box.append(one)
    window = screen.show(box)
    keeper = FocusKeeper(window)
    pressed.grab_focus()
    pressed.set_sensitive(False)
    spin_until(beside.has_focus)
    beside.set_sensitive(False)
    spin_until(before.has_focus)
    assert keeper is not None


def test_the_keyboard_stays_at_its_row_and_goes_back_by_steps(
    screen: Screen, person: Person
) -> None:
    with in_project(person) as (window, session):

        def run(command: str) -> None:
            before = len(all_of(window.changes, RunRow))
            finish(session.conversation.run(command))
            wait_until(lambda: len(all_of(window.changes, RunRow)) > before)

        finish(session.conversation.run("echo 1 > a"))
        card = card_that(window, lambda card: card.entry.stage is Stage.DONE)
        card.show_button.emit("clicked")
        # It goes where one is led to.
        wait_until(lambda: _has_focus(window, RunRow, "pan-down-symbolic"))
        wait_until(lambda: len(all_of(window.changes, FileRow)) == 1)
        _press_tab(window)
        assert texts(_focus(window)) == ["Undo"]
        # Commands that end do not move it.
        run("echo 2 > b")
        wait_until(lambda: _focused_texts(window) == ["Undo"])
        assert _focus(window).get_ancestor(RunRow) is all_of(window.changes, RunRow)[1]
        file = all_of(window.changes, FileRow)[-1].get_parent()
        assert file is not None and file.grab_focus()
        run("echo 3 > c")
        wait_until(lambda: _focused_texts(window)[:1] == ["a"])
        # To the file, and back to it.
        window.changes.list_view.emit("activate", len(window.changes.items) - 1)
        wait_until(lambda: window.changes.page is not None)
        window.activate_action("win.back", None)
        wait_until(lambda: window.changes.page is None)
        wait_until(lambda: _focused_texts(window)[:1] == ["a"])
        window.activate_action("win.toggle-changes", None)
        assert _focus(window) is window.chat.composer.view
        window.activate_action("win.back", None)
        assert _focus(window).is_ancestor(window.sidebar)
        # Neither folding nor undoing loses it.
        card.show_button.emit("clicked")
        wait_until(lambda: _has_focus(window, RunRow, "pan-down-symbolic"))
        _focus(window).activate()
        wait_until(lambda: _has_focus(window, RunRow, "pan-end-symbolic"))
        button(all_of(window.changes, RunRow)[-1], "Undo").grab_focus()
        _focus(window).activate()
        wait_until(lambda: _focused_texts(window) == ["Redo"])
        assert not (person.project / "a").exists()


def test_where_one_pane_covers_the_others_the_keyboard_is_in_the_one_that_is_seen(
    screen: Screen, person: Person
) -> None:
    with in_project(person) as (window, session):
        finish(session.conversation.run("echo 1 > a"))
        window.set_default_size(360, 640)
        wait_until(window.leaflet.get_folded)
        window.activate_action("win.back", None)
        assert _focus(window).is_ancestor(window.sidebar)
        for _time in range(2):
            window.activate_action("win.toggle-changes", None)
            assert window.leaflet.get_visible_child_name() == "content"
            assert window.flap.get_reveal_flap()
            wait_until(lambda: _focus(window).is_ancestor(window.changes))
            # They stay open behind it.
            window.leaflet.set_visible_child_name("sidebar")
            window.sidebar.focus()
        window.activate_action("win.compose", None)
        assert window.leaflet.get_visible_child_name() == "content"
        assert not window.flap.get_reveal_flap()
        assert _focus(window) is window.chat.composer.view


def test_a_deleted_session_comes_back_with_a_key(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        finish(session.conversation.run("true"))
        assert not _press_undo(window)
        in_sidebar(window, "delete-session", session.id)
        wait_until(lambda: "Undo" in buttons(window.toasts))
        assert window.chat.session is None
        # There is no composer to go to, but the way in.
        assert not window.get_action_enabled("win.compose")
        assert _focus(window) is window.welcome.tour_button
        # In a text, the key undoes what was typed.
        assert window.sidebar.search.grab_focus() and not _press_undo(window)
        window.welcome.focus()
        assert _press_undo(window) and not _press_undo(window)
        wait_until(lambda: window.chat.session is not None)
        assert session_of(window).id == session.id


def test_each_deleted_session_comes_back_by_its_own_button(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        both: list[str] = []
        for _number in range(2):
            controller_of(window).open_project(str(person.project))
            wait_until(lambda: window.chat.session and window.chat.session.id not in both)
            finish(session_of(window).conversation.run("true"))
            both.append(session_of(window).id)
        wait_until(lambda: len(_listed(window)) == 2)
        window.sidebar.listbox.get_row_at_index(1).grab_focus()  # type: ignore[union-attr]
        for session_id in both:
            in_sidebar(window, "delete-session", session_id)
            wait_until(lambda gone=session_id: gone not in _listed(window))  # type: ignore[misc]
            # Whoever deletes one in the list stays there.
            wait_until(lambda: window.get_focus() and _focus(window).is_ancestor(window.sidebar))
        wait_until(lambda: "Undo" in buttons(window.toasts))
        press_in_toast(window, "Undo")
        wait_until(lambda: window.chat.session is not None)
        assert session_of(window).id == both[0]
        window.sidebar.focus()
        assert _press_undo(window)
        wait_until(lambda: session_of(window).id == both[1])


def test_each_shortcut_is_listed_with_its_keys(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        window.activate_action("win.show-help-overlay", None)
        wait_until(lambda: toplevels(Gtk.ShortcutsWindow))
        [overlay] = toplevels(Gtk.ShortcutsWindow)
        assert overlay.get_transient_for() is window
        listed = all_of(overlay, Gtk.ShortcutsShortcut)
        assert listed and all(one.props.title and one.props.accelerator for one in listed)
        overlay.destroy()


def test_a_moved_project_is_located(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = person.home / "moved"
    chosen = [str(new), str(person.home / "nowhere")]

    async def choose(_window: Gtk.Window, title: str) -> str:
        assert person.project.name in title
        return chosen.pop()

    monkeypatch.setattr(controller, "choose_folder", choose)
    with in_project(person) as (window, session):
        finish(session.conversation.run("echo 1 > a"))
        person.project.rename(new)
        finish(session.conversation.run("true"))
        wait_until(lambda: "Locate…" in texts(window.chat.missing))
        wait_until(lambda: says(window.sidebar, "Folder not found"))
        # What is being revealed can be pressed a moment later.
        wait_until(lambda: window.chat.missing.get_child_revealed())
        # The wrong one: it is said, and all is as before.
        press(window.chat.missing, "Locate…")
        wait_until(lambda: says(window, "is not a folder"))
        assert session_of(window) is session
        press(window.chat.missing, "Locate…")
        wait_until(
            lambda: window.chat.session is not None and session_of(window).project == str(new)
        )
        assert session_of(window).id == session.id
        wait_until(lambda: not says(window.sidebar, "Folder not found"))
        finish(session_of(window).conversation.run("grep 1 a"))
        card = card_that(window, lambda card: bool(card.entry.run_id))
        window.changes.act_on_runs("undo", (card.entry.run_id,))
        wait_until(lambda: not (new / "a").exists())


def test_code_is_read_from_left_to_right_everywhere(screen: Screen) -> None:
    Gtk.Widget.set_default_direction(Gtk.TextDirection.RTL)
    try:
        view = DiffView()
        view.set_section_actions(lambda _hunk: [Action("undo", "Undo")])
        screen.show(view)
        view.show_texts("a\nb\n", "a\nc\n", "x.py")
        spin_until(lambda: view.is_loaded)
        undo = next(one for one in all_of(view, Gtk.Button) if texts(one) == ["Undo"])
        row = undo.get_parent()
        assert row is not None and row.get_direction() is Gtk.TextDirection.LTR
        # However narrow it is, what can be done is to be seen.
        assert row.get_first_child() is undo
    finally:
        Gtk.Widget.set_default_direction(Gtk.TextDirection.LTR)


def _listed(window: Window) -> list[str]:
    return [row.item.id for row in all_of(window.sidebar, SessionRow)]


def _press_undo(window: Window) -> bool:
    """Return whether the window handles the key when a focused text does not."""
    return press_shortcut(window, "<Control>z")


def _press_tab(window: Window) -> None:
    """Move the focus on, once everything is where the user sees it: GTK goes by the positions."""
    frames: list[None] = []

    def count(*_args: object) -> bool:
        frames.append(None)
        return len(frames) < 2

    window.add_tick_callback(count)
    # The second frame begins after the first is laid out.
    wait_until(lambda: len(frames) == 2)
    assert window.child_focus(FORWARD)


def _focus(window: Window) -> Gtk.Widget:
    focus = window.get_focus()
    assert focus is not None, "it is nowhere"
    return focus


def _focused_texts(window: Window) -> list[str]:
    """Return the texts of what has the focus; it may be nowhere until the next frame."""
    focus = window.get_focus()
    return texts(focus) if focus is not None else []


def _has_focus(window: Window, kind: type[Gtk.Widget], icon: str) -> bool:
    focus = window.get_focus()
    inside = focus is not None and focus.get_ancestor(kind) is not None
    return inside and isinstance(focus, Gtk.Button) and focus.get_icon_name() == icon


def _round(window: Window, direction: Gtk.DirectionType) -> list[str]:
    """The names of all that the key leads to, until it is where it began."""
    window.chat.focus_composer()
    first, found = _focus(window), ["Message"]
    for _step in range(200):
        before = _focus(window)
        assert window.child_focus(direction)
        assert _focus(window) is not before, f"it does not get on from {found[-1]}"
        if _focus(window) is first:
            return found
        found.append(_name(_focus(window)))
        # What it leads to is scrolled into view, and what is around it there is made.
        finish(asyncio.sleep(0.02))
        wait_until(lambda: window.chat.column.is_settled)
    raise AssertionError(f"it goes round in circles: {found[-8:]}")


def _name(widget: Gtk.Widget) -> str:
    if isinstance(widget, Gtk.TextView):
        return "Output of the command"
    return (texts(widget) or [widget.get_tooltip_text() or type(widget).__name__])[0]
