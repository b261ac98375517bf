# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise

from gi.repository import Gdk, Gio, GLib, Gtk
from support.chat import press_key
from support.screen import Screen, all_of, popover_of, spin_until, texts

from ollmsandbox.ui.models.chooser import ConnectionItem, ConnectionState, ModelChooser
from ollmsandbox.ui.sessions.items import Day, ProjectItem, SessionItem
from ollmsandbox.ui.sidebar.rows import OlderRow, ProjectRow, SessionRow
from ollmsandbox.ui.sidebar.sidebar import LISTED, Sidebar, listed_rows

PARSER = ProjectItem(
    "/src/parser",
    "parser",
    sessions=(SessionItem("1", "fix the parser", is_busy=True), SessionItem("2", "add a flag")),
)
GONE = ProjectItem("/src/gone", "gone", is_missing=True)


def heard(widget: Gtk.Widget, *names: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for name in names:
        widget.connect(name, lambda _widget, *values, name=name: found.append((name, *values)))
    return found


def wishes_in(sidebar: Sidebar, *names: str) -> list[tuple[str, str]]:
    """Return the actions with these names that are activated from now on."""
    found: list[tuple[str, str]] = []

    def note(action: Gio.SimpleAction, target: GLib.Variant) -> None:
        is_id = target.get_type_string() == "s"
        value = target.get_string() if is_id else os.fsdecode(target.get_bytestring())
        found.append((action.get_name(), value))

    for name in names:
        is_path = name.endswith("project") or name.startswith("new")
        action = Gio.SimpleAction.new(name, GLib.VariantType.new("ay" if is_path else "s"))
        action.connect("activate", note)
        sidebar.actions.add_action(action)
    return found


def shown(screen: Screen, *projects: ProjectItem) -> Sidebar:
    sidebar = Sidebar()
    sidebar.show(projects)
    screen.show(sidebar, 300, 500)
    return sidebar


def test_sessions_stand_below_their_project(screen: Screen) -> None:
    sidebar = shown(screen)
    # The first page beside it has the button.
    assert texts(sidebar)[:1] == ["No Projects Yet"]
    odd = ProjectItem("/p", "<b>&", sessions=(SessionItem("9", "<i>&amp;"),))
    sidebar.show([PARSER, odd, GONE])
    spin_until(lambda: "gone" in texts(sidebar))
    assert texts(sidebar)[-7:] == [
        *("parser", "fix the parser", "add a flag"),
        *("<b>&", "<i>&amp;"),
        *("gone", "Folder not found"),
    ]


def test_a_session_is_opened_and_an_empty_project_begins_one(screen: Screen) -> None:
    sidebar = shown(screen, replace(PARSER, path="/src/empty", sessions=()), PARSER)
    wishes = wishes_in(sidebar, "open-session", "new-session")
    for row in [*all_of(sidebar, SessionRow), *all_of(sidebar, ProjectRow)]:
        sidebar.listbox.emit("row-activated", row)
    assert wishes == [
        ("open-session", "1"),
        ("open-session", "2"),
        ("new-session", "/src/empty"),
    ]


def titles(sidebar: Sidebar) -> list[str]:
    return [text for row in listed_rows(sidebar.listbox) for text in texts(row)]


def test_sessions_are_grouped_by_day(screen: Screen) -> None:
    sidebar = Sidebar()
    days = (Day.TODAY, Day.TODAY, Day.YESTERDAY, Day.EARLIER)
    sessions = [SessionItem(str(n), f"session {n}", day=day) for n, day in enumerate(days)]
    sidebar.show([replace(PARSER, sessions=tuple(sessions))])
    screen.show(sidebar, 300, 500)
    assert titles(sidebar) == [
        *("parser", "Today", "session 0", "session 1"),
        *("Yesterday", "session 2", "Earlier", "session 3"),
    ]
    # Where everything is of today, that goes without saying.
    sidebar.show([replace(PARSER, sessions=tuple(sessions[:2]))])
    assert titles(sidebar) == ["parser", "session 0", "session 1"]


def test_a_project_collapses_and_still_shows_what_asks(screen: Screen) -> None:
    sidebar = shown(screen, PARSER)
    row = all_of(sidebar, ProjectRow)[0]
    sidebar.listbox.emit("row-activated", row)
    assert titles(sidebar) == ["parser"]
    asks = tuple(replace(one, is_asking=one.id == "2") for one in PARSER.sessions)
    sidebar.show([replace(PARSER, sessions=asks)])
    assert titles(sidebar) == ["parser", "add a flag"]
    row.grab_focus()
    press_key(sidebar.listbox, Gdk.KEY_Right)
    assert titles(sidebar) == ["parser", "fix the parser", "add a flag"]
    press_key(sidebar.listbox, Gdk.KEY_Left)
    assert titles(sidebar) == ["parser", "add a flag"]


def test_tab_stops_once_at_each_row_and_an_arrow_reaches_its_buttons(screen: Screen) -> None:
    sidebar = shown(screen, PARSER)
    window = sidebar.get_root()
    assert isinstance(window, Gtk.Window)
    row, following = all_of(sidebar, SessionRow)
    row.grab_focus()
    assert sidebar.listbox.child_focus(Gtk.DirectionType.TAB_FORWARD)
    assert window.get_focus() is following
    assert sidebar.listbox.child_focus(Gtk.DirectionType.TAB_BACKWARD)
    assert window.get_focus() is row
    assert sidebar.listbox.child_focus(Gtk.DirectionType.RIGHT)
    focus = window.get_focus()
    assert focus is not None and focus is not row and focus.is_ancestor(row)


def test_each_row_has_a_menu_for_what_it_is_about(screen: Screen) -> None:
    sidebar = shown(screen, PARSER)
    names = ("rename-session", "delete-session", "remove-project", "new-session")
    wishes = wishes_in(sidebar, *names)
    for name in names:
        is_path = name.endswith("project") or name.startswith("new")
        target = GLib.Variant("ay", b"/src/parser\0") if is_path else GLib.Variant("s", "2")
        assert sidebar.activate_action(f"sidebar.{name}", target)
    assert wishes == [
        ("rename-session", "2"),
        ("delete-session", "2"),
        ("remove-project", "/src/parser"),
        ("new-session", "/src/parser"),
    ]
    # That of a session is made when it is opened.
    (menu,) = all_of(all_of(sidebar, SessionRow)[1], Gtk.MenuButton)
    assert menu.get_popover() is None
    menu.popup()
    model = menu.get_menu_model()
    assert model is not None
    sidebar.activate_action(
        "sidebar.delete-session", model.get_item_attribute_value(1, "target", None)
    )
    assert wishes[4:] == [("delete-session", "2")]
    menu.popdown()


def test_a_path_that_is_not_utf_8_is_shown_and_passed_on(screen: Screen) -> None:
    path = os.fsdecode(b"/src/caf\xe9")
    sidebar = shown(screen, ProjectItem(path, "caf?", sessions=(SessionItem("1", "one"),)))
    wishes = wishes_in(sidebar, "new-session", "remove-project")
    (row,) = all_of(sidebar, ProjectRow)
    assert row.get_tooltip_text() == "/src/caf⟨byte E9⟩"
    (new,) = [one for one in all_of(row, Gtk.Button) if one.get_action_name()]
    new.emit("clicked")
    (menu,) = [one.get_menu_model() for one in all_of(row, Gtk.MenuButton)]
    assert menu is not None
    target = menu.get_item_attribute_value(0, "target", None)
    sidebar.activate_action("sidebar.remove-project", target)
    assert wishes == [("new-session", path), ("remove-project", path)]


def test_a_row_that_stays_is_the_same_one(screen: Screen) -> None:
    sidebar = shown(screen, PARSER)
    row = all_of(sidebar, SessionRow)[1]
    sidebar.select("2")
    [dot] = [image for image in all_of(row, Gtk.Image) if image.has_css_class("asks-dot")]
    assert not dot.get_visible()
    (menu,) = all_of(row, Gtk.MenuButton)
    menu.popup()
    popover = popover_of(menu)
    spin_until(popover.get_mapped)
    asks = SessionItem("2", "add two flags", is_asking=True)
    other = SessionItem("1", "fix the parser")
    sidebar.show([replace(PARSER, sessions=(other, asks))])
    assert all_of(sidebar, SessionRow)[1] is row
    assert popover.get_mapped()
    assert "add two flags" in texts(row)
    assert dot.get_mapped() and dot.get_tooltip_text() == "Needs your answer"
    menu.popdown()
    spin_until(lambda: not popover.get_mapped())
    row.grab_focus()
    # It moves up, then it goes.
    sidebar.show([replace(PARSER, sessions=(asks, other))])
    assert [one.item.id for one in all_of(sidebar, SessionRow)] == ["2", "1"]
    assert row.is_focus() and row.is_selected()
    all_of(sidebar, SessionRow)[1].grab_focus()
    sidebar.focus()
    assert row.is_focus()
    sidebar.show([replace(PARSER, sessions=(other,)), GONE])
    (left,) = all_of(sidebar, SessionRow)
    assert left.item.id == "1" and left.is_focus()


def many(count: int, first: int = 0) -> ProjectItem:
    numbers = range(first, first + count)
    sessions = tuple(SessionItem(str(number), f"session {number}") for number in numbers)
    return ProjectItem(f"/src/{first}", "parser", sessions=sessions)


def listed(sidebar: Sidebar) -> list[str]:
    return [row.item.id for row in all_of(sidebar, SessionRow)]


def test_the_newest_sessions_are_listed_and_older_ones_when_asked_for(screen: Screen) -> None:
    sidebar = Sidebar()
    window = screen.show(sidebar, 300, 500)
    sidebar.show([many(LISTED + 5), GONE])
    spin_until(lambda: all_of(sidebar, OlderRow) and len(all_of(sidebar, ProjectRow)) == 2)
    assert listed(sidebar) == [str(number) for number in range(LISTED)]
    (older,) = all_of(sidebar, OlderRow)
    older.grab_focus()
    sidebar.listbox.emit("row-activated", older)
    spin_until(lambda: not all_of(sidebar, OlderRow))
    assert listed(sidebar) == [str(number) for number in range(LISTED + 5)]
    focused = window.get_focus()
    assert isinstance(focused, SessionRow) and focused.item.id == str(LISTED)


def test_an_old_session_is_listed_if_it_is_shown_or_asks_something(screen: Screen) -> None:
    sidebar = Sidebar()
    screen.show(sidebar, 300, 500)
    project = many(1000)
    asks = replace(project.sessions[700], is_asking=True)
    sidebar.show([replace(project, sessions=(*project.sessions[:700], asks))])
    sidebar.select("600")
    spin_until(lambda: all_of(sidebar, OlderRow))
    assert listed(sidebar)[LISTED:] == ["600", "700"]
    chosen = sidebar.listbox.get_selected_row()
    assert isinstance(chosen, SessionRow) and chosen.item.id == "600"


def test_rows_come_and_go_a_few_in_each_turn_of_the_main_loop(screen: Screen) -> None:
    sidebar = Sidebar()
    screen.show(sidebar, 300, 500)
    counts = [0]

    def has(count: int) -> bool:
        counts.append(len(listed_rows(sidebar.listbox)))
        return counts[-1] == count

    sidebar.show([many(20, first=20 * number) for number in range(10)])
    spin_until(lambda: has(210))
    sidebar.show([GONE])
    spin_until(lambda: has(1))
    steps = [abs(after - before) for before, after in pairwise(counts)]
    assert max(steps) <= 20, "each of them takes the window's time"


READY = ConnectionItem("Ollama", ConnectionState.READY, ("qwen3:14b", "llama3"))
FAILED = ConnectionItem("work", ConnectionState.FAILED, (), "No server answers at this address.")


def test_a_model_of_any_server_is_chosen_and_named_with_its_state(screen: Screen) -> None:
    chooser = ModelChooser()
    chooser.show([READY, FAILED], ("", ""))
    screen.show(chooser, 300, 60)
    assert "No model chosen" in texts(chooser)
    wishes = heard(chooser, "chosen")
    popover = popover_of(chooser)
    popover.popup()
    assert "No server answers at this address." in texts(popover)
    (models,) = all_of(popover, Gtk.ListBox)
    rows = [row for row in all_of(popover, Gtk.ListBoxRow) if "qwen3:14b" in texts(row)]
    models.emit("row-activated", rows[0])
    assert wishes == [("chosen", "Ollama", "qwen3:14b")]
    chooser.show([READY, FAILED], ("Ollama", "llama3"))
    assert "Ollama, llama3" in texts(chooser)
    assert chooser.get_tooltip_text() == "Model: Ollama, llama3, connected"
    # A single connection goes without saying.
    chooser.show([READY], ("Ollama", "llama3"))
    assert "llama3" in texts(chooser)
    assert chooser.get_tooltip_text() == "Model: llama3, connected"


def test_many_models_can_be_filtered(screen: Screen) -> None:
    names = tuple(f"model-{number}" for number in range(30))
    chooser = ModelChooser()
    chooser.show([ConnectionItem("Ollama", ConnectionState.READY, names)], ("", ""))
    screen.show(chooser, 300, 60)
    popover = popover_of(chooser)
    popover.popup()
    (entry,) = all_of(popover, Gtk.SearchEntry)
    entry.set_text("29")
    entry.emit("search-changed")
    assert [text for text in texts(popover) if text.startswith("model-")] == ["model-29"]
