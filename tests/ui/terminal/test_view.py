# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from gi.repository import Adw, Gtk
from support.screen import Screen, draw_frames, spin_until

from ollmsandbox.ui.terminal.find import places
from ollmsandbox.ui.terminal.view import TerminalView


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


def in_a_card(screen: Screen, view: TerminalView) -> Gtk.Window:
    """Above something else, as in a chat: it has the height it asks for."""
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(view)
    box.append(Gtk.Label(label="below", vexpand=True))
    return screen.show(box, 600, 900)


def fed(view: TerminalView, data: bytes) -> None:
    view.feed(data)
    spin_until(lambda: view.is_up_to_date)


def test_output_is_shown_as_in_a_terminal(screen: Screen) -> None:
    view = TerminalView()
    view.feed(b"early\n")
    # Nothing is filled that is not on the screen.
    assert view.text == ""
    screen.show(view)
    spin_until(lambda: view.text == "early")
    view.clear()
    fed(view, b"one\nprogress 10%")
    assert view.text == "one\nprogress 10%"
    fed(view, b"\rprogress 100%\n\x1b[31mred\x1b[0m\n")
    assert view.text == "one\nprogress 100%\nred"
    view.feed(b"more\nand more\n")
    view.finish()
    spin_until(lambda: view.is_up_to_date)
    assert view.text.endswith("red\nmore\nand more")
    view.clear()
    fed(view, b"anew")
    assert view.text == "anew"


def test_colours_become_readable_in_both_themes(screen: Screen) -> None:
    view = TerminalView()
    screen.show(view)
    fed(view, b"\x1b[93myellow\x1b[0m")

    def colour() -> str:
        buffer = view.text_view.get_buffer()
        tags = buffer.get_start_iter().get_tags()
        found = [tag.props.foreground_rgba for tag in tags if tag.props.foreground_set]
        return str(found[0].to_string())

    manager = Adw.StyleManager.get_default()
    try:
        manager.set_color_scheme(Adw.ColorScheme.FORCE_LIGHT)
        light = colour()
        manager.set_color_scheme(Adw.ColorScheme.FORCE_DARK)
        assert colour() != light
    finally:
        manager.set_color_scheme(Adw.ColorScheme.DEFAULT)


def test_output_beyond_the_limit_is_announced_and_can_be_opened(screen: Screen) -> None:
    view = TerminalView(most_lines=500)
    asked: list[bool] = []
    view.connect("open-all", lambda _view: asked.append(True))
    in_a_card(screen, view)
    fed(view, numbered(20))
    assert not view.earlier.get_visible()
    fed(view, numbered(300_000))
    lines = view.text.split("\n")
    assert lines[-1] == "line 299999"
    assert 400 < len(lines) <= 500
    assert view.earlier_label.get_label() == f"{300_020 - len(lines):,} earlier lines are on disk"
    view.open_all.emit("clicked")
    assert asked == [True]


def turn_wheel(view: TerminalView, down: float) -> None:
    """Send the wheel event that the view handles; GTK does the scrolling."""
    found = view.scroller.observe_controllers()
    for number in range(found.get_n_items()):
        controller = found.get_item(number)
        if (
            isinstance(controller, Gtk.EventControllerScroll)
            and controller.get_propagation_phase() is Gtk.PropagationPhase.CAPTURE
            and controller.get_flags() == Gtk.EventControllerScrollFlags.VERTICAL
        ):
            controller.emit("scroll", 0.0, down)


def test_it_stays_at_the_end_until_the_user_scrolls_up(screen: Screen) -> None:
    view = TerminalView()
    in_a_card(screen, view)
    adjustment = view.scroller.get_vadjustment()

    def is_at_end() -> bool:
        end = adjustment.get_upper() - adjustment.get_page_size()
        return bool(end > 0 and adjustment.get_value() >= end - 1)

    fed(view, numbered(200))
    spin_until(is_at_end)
    fed(view, numbered(200))
    spin_until(is_at_end)
    turn_wheel(view, -1.0)
    adjustment.set_value(0)
    assert not view.is_following
    fed(view, numbered(50))
    draw_frames(view)
    assert adjustment.get_value() == 0

    def scroll_down() -> bool:
        turn_wheel(view, 1.0)
        adjustment.set_value(adjustment.get_upper())
        return view.is_following

    # Again and again: only on the way there the view finds out how high its lines are.
    spin_until(scroll_down)


def test_its_height_follows_its_lines_up_to_twelve_or_thirty(screen: Screen) -> None:
    view = TerminalView()
    in_a_card(screen, view)
    fed(view, b"one\n")
    draw_frames(view)
    one = view.scroller.get_height()
    fed(view, numbered(200))
    spin_until(lambda: view.scroller.get_height() > 3 * one)
    draw_frames(view)
    compact = view.scroller.get_height()
    view.set_property("compact", False)
    spin_until(lambda: view.scroller.get_height() > 2 * compact)


def test_words_are_found_in_the_output(screen: Screen) -> None:
    view = TerminalView()
    screen.show(view)
    fed(view, numbered(300) + b"an Error\nfine\nanother error\n")
    view.find()
    view.search_entry.set_text("ERROR")
    spin_until(lambda: view.search_count.get_label() == "2 of 2")
    view.search_next.emit("clicked")
    assert view.search_count.get_label() == "1 of 2"
    view.search_previous.emit("clicked")
    assert view.search_count.get_label() == "2 of 2"
    fed(view, b"one more error\n")
    assert view.search_count.get_label() == "2 of 3"
    view.search_entry.set_text("nowhere")
    spin_until(lambda: view.search_count.get_label() == "Not found")
    view.search_bar.set_search_mode(False)
    assert view.search_count.get_label() == ""


def test_a_found_place_stays_while_lines_go_above_it(screen: Screen) -> None:
    view = TerminalView(most_lines=200)
    screen.show(view)
    fed(view, numbered(100) + b"an error\n" + numbered(20) + b"an error\n")
    view.find()
    view.search_entry.set_text("error")
    spin_until(lambda: view.search_count.get_label() == "2 of 2")
    fed(view, numbered(80) + b"an error\n")
    assert view.search_count.get_label() == "2 of 3"
    fed(view, numbered(100))
    assert view.search_count.get_label() == "1 of 2"


def test_finding_counts_characters_as_the_view_does() -> None:
    assert places("İİ abc ABC", "abc") == [3, 7]
    assert places("aaaa", "aa") == [0, 2]
    assert places("text", "") == []
