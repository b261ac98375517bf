# SPDX-License-Identifier: GPL-3.0-or-later
"""A closed widget is freed: one that holds itself would stay as long as the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gi.repository import Adw, Gtk
from support.chat import asked
from support.person import Person
from support.screen import Screen, spin_until, watch_freeing
from support.window import finish, running_loop, wait_until

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.ui.changes.view import ChangesView
from ollmsandbox.ui.chat.composer import Composer
from ollmsandbox.ui.chat.message_list import MessageList
from ollmsandbox.ui.diff.view import DiffView
from ollmsandbox.ui.markdown.code_block import CodeBlock
from ollmsandbox.ui.markdown.view import MarkdownView
from ollmsandbox.ui.permission.asker import WindowAsker
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.sessions.items import ProjectItem, SessionItem
from ollmsandbox.ui.settings import Settings
from ollmsandbox.ui.sidebar.sidebar import Sidebar
from ollmsandbox.ui.terminal.view import TerminalView
from ollmsandbox.ui.widgets.actions import Action
from ollmsandbox.ui.window.welcome import Welcome


@pytest.fixture
def factory(screen: Screen, person: Person) -> Iterator[SessionFactory]:
    with running_loop():
        made = SessionFactory(person.paths, person.environ, WindowAsker())
        yield made
        made.close()


def sidebar(_person: Person) -> Gtk.Widget:
    made = Sidebar()
    made.show([ProjectItem("/src", "src", sessions=(SessionItem("1", "one"),))])
    return made


def terminal(_person: Person) -> Gtk.Widget:
    made = TerminalView()
    made.feed(b"some output\n")
    made.find()
    return made


def message_list(_person: Person) -> Gtk.Widget:
    made: MessageList[str] = MessageList(lambda text: Gtk.Label(label=text))
    made.set_items([f"message {number}" for number in range(50)])
    return made


def code_block(_person: Person) -> Gtk.Widget:
    made = CodeBlock("py", "pass")
    made.copy_button.emit("clicked")
    return made


def diff(_person: Person) -> Gtk.Widget:
    made = DiffView()
    made.set_section_actions(lambda _section: [Action("undo", "Undo")])
    made.show_texts("old\n", "new\n", "example.py")
    return made


MAKERS: dict[str, Callable[[Person], Gtk.Widget]] = {
    "welcome": lambda _person: Welcome(),
    "sidebar": sidebar,
    "terminal": terminal,
    "message list": message_list,
    "code block": code_block,
    "diff": diff,
    "markdown": lambda _person: MarkdownView("Some *text*\n\n| a |\n|---|\n| 1 |\n"),
    "composer": lambda person: Composer(Settings(person.paths)),
    "permission card": lambda _person: ChatPermission(asked("make install")),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_closed_widget_is_freed(screen: Screen, person: Person, name: str) -> None:
    def use() -> Callable[[], bool]:
        widget = MAKERS[name](person)
        # Scrolled, as in the chat: GTK warns of a window that is lower than what is in it.
        window = Adw.Window(content=Gtk.ScrolledWindow(child=widget))
        window.present()
        wait_until(widget.get_mapped)
        window.destroy()
        return watch_freeing(widget)

    # In the main loop, in which some are taken down step by step.
    spin_until(use())


def test_the_changes_and_the_page_of_one_are_freed(factory: SessionFactory, person: Person) -> None:
    assert finish(person.bubble().exec("echo 1 > new.txt")).exit_code == 0

    def use() -> Callable[[], bool]:
        view = ChangesView(factory.manager, Settings(person.paths), print)
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


@pytest.mark.parametrize("kind", [ConnectionDialog, Preferences])
def test_a_dialog_is_freed(factory: SessionFactory, person: Person, kind: type[Gtk.Window]) -> None:
    parent = Adw.Window()
    parent.present()

    def use() -> Callable[[], bool]:
        dialog: ConnectionDialog | Preferences
        if kind is ConnectionDialog:
            connection = Connection("", ServerKind.OLLAMA, "")
            dialog = ConnectionDialog(parent, factory.connections, connection)
        else:
            dialog = Preferences(parent, factory, Settings(person.paths))
        dialog.present()
        wait_until(dialog.get_mapped)
        if isinstance(dialog, Preferences):
            wait_until(lambda: dialog.is_idle)
        dialog.close()
        return watch_freeing(dialog)

    wait_until(use())
    parent.destroy()
