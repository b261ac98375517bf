# SPDX-License-Identifier: GPL-3.0-or-later
"""Every usable widget has a name for screen readers. GTK 4.8 takes it from the text in a widget or
from a label; a tooltip is not enough."""

from __future__ import annotations

from pathlib import Path

from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, all_of, children, texts
from support.window import card_that, controller_of, finish, press, program, wait_until, window_of

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.changes.rows import FileRow, RunRow
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.widgets.labels import decorative_icon
from ollmsandbox.ui.widgets.work_bar import WorkBar
from ollmsandbox.ui.window.about import shortcuts
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


def test_the_first_page_the_side_pane_and_the_popovers(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.welcome.verdict.has_css_class("success"))
        assert not (found := _nameless(window)), "\n".join(found)
        controller_of(window).open_project(str(person.project))
        wait_until(lambda: window.chat.session is not None)
        wait_until(lambda: all_of(window.sidebar, Gtk.MenuButton))
        wait_until(lambda: window.badge.get_popover() is not None)
        assert not (found := _nameless(window)), "\n".join(found)
        # Its label does not say what it is about.
        mode = window.chat.composer.mode_button.get_first_child()
        assert mode is not None
        assert Gtk.test_accessible_has_property(mode, Gtk.AccessibleProperty.LABEL)


def test_a_chat_with_every_kind_of_card_and_its_changes(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        press(window.welcome, "Take the Tour")
        asks = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        assert not (found := _nameless(window)), "\n".join(found)
        assert asks.question is not None
        asks.question.button_for(Answer.DENY).emit("clicked")
        session = window.chat.session
        assert session is not None
        wait_until(lambda: not session.is_busy)
        finish(session.conversation.run("printf 'a\\tb\\033[31mred\\n'; seq 2000; exit 3"))
        card = card_that(window, lambda card: card.entry.own and card.entry.stage is Stage.DONE)
        card.open()
        window.flap.set_reveal_flap(True)
        assert not (found := _nameless(window)), "\n".join(found)
        wait_until(lambda: _rows(window))
        wait_until(lambda: all(_has_name_around(row) for row in _rows(window)))
        (Path(session.project or "") / "basket.py").write_text("something else\n")
        _open_file(window, "basket.py")
        assert not (found := _nameless(window)), "\n".join(found)


def test_the_preferences_and_the_dialogs(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        factory = application.factory
        finish(
            factory.connections.put(Connection("one", ServerKind.OPENAI, "http://127.0.0.1:9/v1"))
        )
        preferences = Preferences(window, factory, application.settings)
        preferences.present()
        wait_until(lambda: any(r.get_title() == "one" for r in all_of(preferences, Adw.ActionRow)))
        assert not (found := _nameless(preferences)), "\n".join(found)
        dialog = ConnectionDialog(
            preferences, factory.connections, Connection("", ServerKind.OLLAMA, "")
        )
        dialog.present()
        assert not (found := _nameless(dialog)), "\n".join(found)
        dialog.destroy()
        preferences.close()
        overlay = shortcuts()
        assert all(one.props.title for one in all_of(overlay, Gtk.ShortcutsShortcut))
        overlay.destroy()


def test_a_bar_that_moves_says_what_it_is(screen: Screen) -> None:
    assert _has_name(WorkBar())


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
