# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from gi.repository import Adw, Gio, Gtk
from support.screen import Screen, draw_frames, spin_until, texts

from ollmsandbox.ui.markdown.code_block import LONGEST_LINE, MOST_LINES, CodeBlock, find_language


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("py", "python3"),
        ("Python", "python3"),
        ("bash", "sh"),
        ("console", "sh"),
        ("js", "js"),
        ("ts", "typescript"),
        ("rs", "rust"),
        ("c++", "cpp"),
        ("yml", "yaml"),
        ("{.rb}", "ruby"),
        ("dockerfile", "docker"),
    ],
)
def test_a_language_is_known_by_what_people_call_it(written: str, found: str) -> None:
    language = find_language(written)
    assert language is not None
    assert language.get_id() == found


@pytest.mark.parametrize(
    "written", ["", "text", "no-such-thing", "../../x", "%s", "\\", "a b", "é"]
)
def test_an_unknown_language_is_shown_without_colours(written: str) -> None:
    assert find_language(written) is None


def test_copy_takes_all_of_it_and_says_so(screen: Screen) -> None:
    line = "x" * (LONGEST_LINE + 100)
    block = CodeBlock("", f"{line}\nend")
    screen.show(block)
    assert block.copied_label.get_opacity() == 0
    block.copy_button.emit("clicked")
    assert block.copied_label.get_opacity() == 1
    clipboard = block.get_clipboard()
    found: list[str | None] = []

    def read(_clipboard: object, result: Gio.AsyncResult) -> None:
        found.append(clipboard.read_text_finish(result))
        if found[-1] != block.text:
            # Others on this screen may have copied meanwhile.
            block.copy_button.emit("clicked")
            clipboard.read_text_async(None, read)

    clipboard.read_text_async(None, read)
    spin_until(lambda: f"{line}\nend" in found)
    spin_until(lambda: block.copied_label.get_opacity() == 0)


def test_a_line_without_end_is_cut_in_what_is_shown(screen: Screen) -> None:
    block = CodeBlock("js")
    for _piece in range(10):
        block.add_text("y" * LONGEST_LINE)
    block.add_text("\nnext")
    assert texts(block.view) == ["y" * LONGEST_LINE + "…\nnext"]
    assert block.text == "y" * 10 * LONGEST_LINE + "\nnext"


def test_its_height_is_known_before_it_is_drawn_and_has_a_limit(screen: Screen) -> None:
    heights = {}
    for lines in (1, 10, MOST_LINES, MOST_LINES + 1, 1000):
        block = CodeBlock("py", "\n".join(["pass"] * lines))
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        box.append(block)
        window = screen.show(Gtk.ScrolledWindow(child=box), 500, 700)
        asked = block.measure(Gtk.Orientation.VERTICAL, 500)[1]
        draw_frames(window, 3)
        assert block.get_height() == asked
        heights[lines] = asked
    assert heights[1] < heights[10] < heights[MOST_LINES]
    assert heights[MOST_LINES + 1] == heights[1000] <= heights[MOST_LINES] + 20


def test_a_long_line_scrolls_and_does_not_widen_the_window(screen: Screen) -> None:
    block = CodeBlock("py", "x = " + "1 + " * 500)
    window = screen.show(block, 300, 200)
    assert window.get_width() == 300
    adjustment = block.scroller.get_hadjustment()
    spin_until(lambda: adjustment.get_upper() > adjustment.get_page_size())


def test_the_colours_are_those_of_the_language_and_follow_dark_and_light(screen: Screen) -> None:
    block = CodeBlock("rs", "fn main() {}")
    screen.show(block)
    assert texts(block)[0] == "Rust"
    assert texts(block)[-1] == "fn main() {}"
    assert not block.view.get_editable()
    buffer = block.view.get_buffer()
    spin_until(lambda: buffer.get_property("language") is find_language("rust"))
    manager = Adw.StyleManager.get_default()

    def scheme() -> str:
        return str(buffer.get_property("style-scheme").get_id())

    try:
        manager.set_color_scheme(Adw.ColorScheme.FORCE_DARK)
        spin_until(lambda: scheme() == "Adwaita-dark")
        manager.set_color_scheme(Adw.ColorScheme.FORCE_LIGHT)
        spin_until(lambda: scheme() == "Adwaita")
    finally:
        manager.set_color_scheme(Adw.ColorScheme.DEFAULT)
