# SPDX-License-Identifier: GPL-3.0-or-later
"""What is closed is freed: a widget that holds itself would stay as long as the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gi.repository import Adw, Gtk
from support.freed import watch_freeing
from support.person import Person
from support.screen import Screen
from support.window import finish, running_loop, wait_until

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.ui.changes.view import ChangesView
from ollmsandbox.ui.permission.asker import WindowAsker
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.settings import Settings
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.sidebar.rows import ProjectItem, SessionItem
from ollmsandbox.ui.sidebar.sidebar import Sidebar
from ollmsandbox.ui.window.welcome import Welcome


@pytest.fixture
def desk(screen: Screen, person: Person) -> Iterator[SessionFactory]:
    with running_loop():
        made = SessionFactory(person.paths, person.environ, WindowAsker())
        yield made
        made.close()


def used(make: Callable[[], Gtk.Widget]) -> Callable[[], bool]:
    """Shown, and closed again. Whether it is freed."""
    widget = make()
    window = Adw.Window(content=widget)
    window.present()
    wait_until(widget.get_mapped)
    window.destroy()
    return watch_freeing(widget)


def test_the_first_page_is_freed(desk: SessionFactory) -> None:
    wait_until(used(Welcome))


def test_the_side_pane_is_freed(desk: SessionFactory) -> None:
    def make() -> Gtk.Widget:
        sidebar = Sidebar()
        sidebar.show([ProjectItem("/src", "src", sessions=(SessionItem("1", "one"),))])
        return sidebar

    wait_until(used(make))


def test_the_changes_and_the_page_of_one_are_freed(desk: SessionFactory, person: Person) -> None:
    assert finish(person.bubble().exec("echo 1 > new.txt")).exit_code == 0

    def use() -> Callable[[], bool]:
        view = ChangesView(desk.manager, Settings(person.paths), print)
        window = Adw.Window(content=view)
        window.present()
        view.show_project(str(person.project))
        wait_until(lambda: len(view.items) > 1)
        view.list_view.emit("activate", 1)
        assert view.page is not None
        page_is_freed = watch_freeing(view.page)
        wait_until(lambda: view.page is not None and view.page.place.get_child())
        view.show_list()
        wait_until(page_is_freed)
        window.destroy()
        return watch_freeing(view)

    wait_until(use())


def test_the_dialog_of_a_connection_is_freed(desk: SessionFactory) -> None:
    parent = Adw.Window()
    parent.present()

    def use() -> Callable[[], bool]:
        dialog = ConnectionDialog(parent, desk.connections, Connection("", ServerKind.OLLAMA, ""))
        dialog.present()
        wait_until(dialog.get_mapped)
        dialog.close()
        return watch_freeing(dialog)

    wait_until(use())
    parent.destroy()


def test_the_preferences_are_freed(desk: SessionFactory, person: Person) -> None:
    parent = Adw.Window()
    parent.present()
    settings = Settings(person.paths)

    def use() -> Callable[[], bool]:
        window = Preferences(parent, desk, settings)
        window.present()
        wait_until(window.get_mapped)
        wait_until(lambda: window.is_idle)
        window.close()
        return watch_freeing(window)

    wait_until(use())
    parent.destroy()
