# SPDX-License-Identifier: GPL-3.0-or-later
"""Every usable widget has a name for screen readers. GTK 4.8 takes it from the text in a widget or
from a label; a tooltip is not enough."""

from __future__ import annotations

from pathlib import Path

from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, all_of, children, texts
from support.window import (
    card_that,
    finish,
    press,
    program,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.badge.badge import SandboxState
from ollmsandbox.ui.changes.rows import FileRow, RunRow
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.widgets.labels import decorative_icon
from ollmsandbox.ui.widgets.work_bar import WorkBar
from ollmsandbox.ui.window.window import Window

_USED = (
    Gtk.Button,
    Gtk.MenuButton,
    Gtk.CheckButton,
    Gtk.Switch,
    Gtk.SpinButton,
    Gtk.Entry,
    Gtk.SearchEntry,
    Gtk.PasswordEntry,
    Gtk.TextView,
    Gtk.DropDown,
    Gtk.Expander,
    Gtk.ListBoxRow,
    Gtk.ListView,
)
# They give a name to what is made inside of them.
_NAMING = (
    Gtk.MenuButton,
    Gtk.Switch,
    Gtk.DropDown,
    Gtk.SpinButton,
    Gtk.SearchEntry,
    Gtk.PasswordEntry,
    Adw.EntryRow,
    Adw.ComboRow,
    Adw.SplitButton,
)
# Made by the platform, with names of its own.
_PARTS = ("enable_switch", "search_entry", "search_button", "image")
_PLATFORM = ("WindowControls", "ShortcutsWindow", "EmojiChooser", "ViewSwitcher")


def test_the_walk_finds_what_has_no_name(screen: Screen) -> None:
    box = Gtk.Box()
    box.append(Gtk.Button(icon_name="list-add-symbolic", tooltip_text="Add"))
    box.append(Gtk.Button(label="Named"))
    box.append(Gtk.Entry())
    box.append(Gtk.Image(icon_name="list-add-symbolic"))
    box.append(decorative_icon("list-add-symbolic"))
    assert len(_nameless(box)) == 3
    assert _has_name(WorkBar())


def test_all_that_can_be_used_has_a_name(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.welcome.verdict.has_css_class("success"))
        wait_until(lambda: window.badge.state is SandboxState.SANDBOXED)
        for text in ("Take the Tour", "Open a Project", "Connect a Model"):
            assert says(window.welcome, text)
        _check(window)
        press(window.welcome, "Take the Tour")
        asks = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        wait_until(lambda: all_of(window.sidebar, Gtk.MenuButton))
        wait_until(lambda: window.badge.get_popover() is not None)
        _check(window)
        # Its label does not say what it is about.
        mode = window.chat.composer.mode_button.get_first_child()
        assert mode is not None
        assert Gtk.test_accessible_has_property(mode, Gtk.AccessibleProperty.LABEL)
        assert asks.question is not None
        asks.question.button_for(Answer.DENY).emit("clicked")
        session = session_of(window)
        wait_until(lambda: not session.is_busy)
        finish(session.conversation.run("printf 'a\\tb\\033[31mred\\n'; seq 2000; exit 3"))
        card = card_that(window, lambda card: card.entry.own and card.entry.stage is Stage.DONE)
        card.open()
        window.flap.set_reveal_flap(True)
        _check(window)
        wait_until(lambda: _rows(window))
        wait_until(lambda: all(_has_name_around(row) for row in _rows(window)))
        (Path(session.project or "") / "basket.py").write_text("something else\n")
        _open_file(window, "basket.py")
        _check(window)
        _check_preferences(window, application)


def _check_preferences(window: Window, application: Application) -> None:
    connections = application.factory.connections
    finish(connections.put(Connection("one", ServerKind.OPENAI, "http://127.0.0.1:9/v1")))
    preferences = Preferences(window, application.factory, application.settings)
    preferences.present()
    wait_until(lambda: any(r.get_title() == "one" for r in all_of(preferences, Adw.ActionRow)))
    _check(preferences)
    dialog = ConnectionDialog(preferences, connections, Connection("", ServerKind.OLLAMA, ""))
    dialog.present()
    _check(dialog)
    dialog.destroy()
    preferences.close()


# --- the walk ------------------------------------------------------------------------------------


def _open_file(window: Window, name: str) -> None:
    view = window.changes

    def place() -> int | None:
        for at, item in enumerate(view.items):
            recorded = getattr(item, "recorded", None)
            if recorded is not None and recorded.change.path == name:
                return at
        return None

    wait_until(lambda: view.items)
    if place() is None:
        for run in [item for item in view.items if not hasattr(item, "recorded")]:
            view.select_run(run.run.id)  # type: ignore[attr-defined]
    wait_until(lambda: place() is not None)
    view.list_view.emit("activate", place())
    wait_until(lambda: view.page is not None and view.page.place.get_child() is not None)


def _rows(window: Window) -> list[Gtk.Widget]:
    return [
        row
        for row in (*all_of(window.changes, RunRow), *all_of(window.changes, FileRow))
        if row.get_mapped()
    ]


def _has_name_around(row: Gtk.Widget) -> bool:
    """Return whether the row around it has a name: that is what gets the focus."""
    around = row.get_parent()
    return around is not None and Gtk.test_accessible_has_property(
        around, Gtk.AccessibleProperty.LABEL
    )


def _check(top: Gtk.Widget) -> None:
    found = _nameless(top)
    assert not found, "\n".join(found)


def _nameless(top: Gtk.Widget) -> list[str]:
    found: list[str] = []
    _walk(top, (), found)
    return found


def _walk(widget: Gtk.Widget, above: tuple[str, ...], found: list[str]) -> None:
    kind = type(widget).__name__
    if kind in _PLATFORM or widget.get_buildable_id() in _PARTS:
        return
    here = (*above, widget.get_buildable_id() or kind)
    # In an entry it is a part of it that gets the focus.
    is_used = widget.get_focusable() or isinstance(widget, Gtk.Editable)
    if isinstance(widget, _USED) and is_used and not _has_name(widget):
        found.append(" > ".join(here[-6:]))
    if isinstance(widget, Gtk.Image) and _is_read(widget) and not _has_name(widget):
        found.append(" > ".join(here[-6:]))
    if isinstance(widget, _NAMING) and _has_name(widget):
        if isinstance(widget, Gtk.MenuButton) and (popover := widget.get_popover()) is not None:
            _walk(popover, here, found)
        return
    # A search bar has a button of its own to close it, which is not shown.
    below = [widget.get_child()] if isinstance(widget, Gtk.SearchBar) else children(widget)
    for child in filter(None, below):
        _walk(child, here, found)


def _is_read(image: Gtk.Image) -> bool:
    """Return whether a screen reader mentions an image. Those without an icon are not drawn."""
    is_drawn = image.get_storage_type() is not Gtk.ImageType.EMPTY and image.get_visible()
    return is_drawn and image.get_accessible_role() is not Gtk.AccessibleRole.PRESENTATION


def _has_name(widget: Gtk.Widget) -> bool:
    if Gtk.test_accessible_has_property(widget, Gtk.AccessibleProperty.LABEL):
        return True
    if isinstance(widget, Adw.PreferencesRow):
        return bool(widget.get_title())
    # Text that is typed is no name.
    typed = isinstance(widget, Gtk.TextView | Gtk.Editable)
    return not typed and any(text.strip() for text in texts(widget))
