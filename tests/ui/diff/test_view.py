# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import os
import zlib

import cairo
import pytest
from gi.repository import Adw, GdkPixbuf, Gtk
from support.screen import Screen, all_of, draw_frames, spin_until, texts

from ollmsandbox.sandbox import isolated
from ollmsandbox.ui.diff.images import ImagePair, binary_text, read_picture
from ollmsandbox.ui.diff.view import DiffView
from ollmsandbox.ui.widgets.actions import Action

OLD = [f"value_{number} = {number}\n" for number in range(60)]
NEW = [*OLD[:9], "value_9 = 'nine'\n", *OLD[10:40], "added = True\n", *OLD[40:]]


def shown(view: DiffView, column: int = 0) -> list[str]:
    buffer = view._columns[column].buffer
    text = buffer.get_text(*buffer.get_bounds(), True)
    return [line for line in text.split("\n") if line]


def with_texts(screen: Screen, old: list[str], new: list[str], width: int = 900) -> DiffView:
    view = DiffView()
    view.set_section_actions(lambda _hunk: [Action("undo", "Undo")])
    screen.show(view, width, 500)
    load(view, old, new)
    return view


def load(view: DiffView, old: list[str], new: list[str]) -> None:
    view.show_texts("".join(old), "".join(new), "example.py")
    spin_until(lambda: view.is_loaded)


def buttons(view: DiffView, label: str) -> list[Gtk.Button]:
    column = view._columns[-1].widget
    return [button for button in all_of(column, Gtk.Button) if button.get_label() == label]


def _summary(view: DiffView) -> str:
    label: str = view.summary.get_label()
    return label.replace("\N{LEFT-TO-RIGHT MARK}", "")


def test_changes_are_shown_in_one_column(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    draw_frames(view)
    assert shown(view) == [
        *(f"value_{n} = {n}" for n in range(6, 10)),
        "value_9 = 'nine'",
        *(f"value_{n} = {n}" for n in range(10, 13)),
        *(f"value_{n} = {n}" for n in range(37, 40)),
        "added = True",
        *(f"value_{n} = {n}" for n in range(40, 43)),
    ]
    assert _summary(view) == "+2 \N{MINUS SIGN}1 · 2 hunks"
    assert view._columns[0].row(4).margin.split() == ["10", "-"]
    assert view._columns[0].row(5).margin.split() == ["10", "+"]


def test_each_change_has_its_buttons_and_can_be_gone_to(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    pressed: list[tuple[int, str]] = []
    view.connect("section-action", lambda _view, index, action: pressed.append((index, action)))
    first, second = buttons(view, "Undo")
    second.emit("clicked")
    first.emit("clicked")
    assert pressed == [(1, "undo"), (0, "undo")]
    # With the keyboard, too.
    assert first.get_focusable()
    first.grab_focus()
    assert first.is_focus()
    steps = ((view.next, 0), (view.next, 1), (view.next, 1), (view.previous, 0))
    for button, place in steps:
        button.emit("clicked")
        assert view.current == place


def test_a_text_that_began_above_a_fold_has_its_colours(screen: Screen) -> None:
    old = ['text = """\n', *(f"word {n}\n" for n in range(40)), '"""\n', "after = 1\n"]
    view = with_texts(screen, old, [*old[:30], "if new\n", *old[30:]])
    buffer = view._columns[0].buffer
    inside = buffer.get_iter_at_line(next_line(view, "if new"))[1]
    outside = buffer.get_iter_at_line(next_line(view, "word 29"))[1]
    assert [tag.props.name for tag in inside.get_tags() if tag.props.foreground_set] == [
        tag.props.name for tag in outside.get_tags() if tag.props.foreground_set
    ]
    assert any(tag.props.foreground_set for tag in inside.get_tags())


def next_line(view: DiffView, text: str) -> int:
    column = view._columns[0]
    return next(n for n in range(len(column)) if column.row(n).text == text)


def test_a_fold_opens(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    buttons(view, "6 unchanged lines")[0].emit("clicked")
    assert shown(view)[:7] == [f"value_{n} = {n}" for n in range(7)]
    assert not buttons(view, "6 unchanged lines")
    # What stands below has moved, and is still found.
    buttons(view, "24 unchanged lines")[0].emit("clicked")
    assert f"value_{20} = {20}" in shown(view)
    view.go_to_change(1)
    draw_frames(view)
    assert _summary(view).endswith("Hunk 2 of 2")


def test_a_large_file_comes_in_pieces_and_another_one_at_once(screen: Screen) -> None:
    view = with_texts(screen, OLD, OLD)
    assert view.same_label.get_label() == "No differences in the text"
    view.show_texts("".join(OLD), "", "a.py")
    load(view, [], [f"line {number}\n" for number in range(5000)])
    assert shown(view)[-1] == "line 4999"
    assert _summary(view) == "+5,000"


def test_a_wide_view_has_two_columns_until_the_user_prefers_one(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    window = view.get_root()
    assert isinstance(window, Gtk.Window)
    spin_until(view.next.get_visible)
    # In a narrow one, the keyboard goes to the hunks.
    screen.resize(window, 360, 400)
    spin_until(lambda: not view.next.get_visible() and not view.previous.get_visible())
    screen.resize(window, 900, 400)
    spin_until(view.next.get_visible)
    assert not view.is_side_by_side
    screen.resize(window, 1100, 400)
    spin_until(lambda: view.is_side_by_side and view.is_loaded)
    assert view.side_toggle.get_active()
    view.side_toggle.set_active(False)
    spin_until(lambda: not view.is_side_by_side and view.is_loaded)
    screen.resize(window, 1200, 400)
    draw_frames(view)
    assert not view.is_side_by_side


def test_two_columns_where_there_is_room(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    view.side_toggle.set_active(True)
    spin_until(lambda: view.is_side_by_side and view.is_loaded)
    draw_frames(view)
    left, right = shown(view, 0), shown(view, 1)
    assert "value_9 = 9" in left
    assert "value_9 = 9" not in right
    assert "value_9 = 'nine'" in right
    heights = [column.view.get_height() for column in view._columns]
    assert heights[0] == heights[1]
    assert [len(column) for column in view._columns] == [len(view._columns[0])] * 2
    buttons(view, "6 unchanged lines")[0].emit("clicked")
    assert shown(view, 0)[0] == shown(view, 1)[0] == "value_0 = 0"
    window = view.get_root()
    assert isinstance(window, Gtk.Window)
    screen.resize(window, 400, 500)
    spin_until(lambda: not view.is_side_by_side and view.is_loaded)
    assert not view.side_toggle.get_visible()


def test_both_columns_scroll_together(screen: Screen) -> None:
    view = with_texts(screen, OLD, [f"{line.strip()}  # changed\n" for line in OLD])
    view.side_toggle.set_active(True)
    spin_until(lambda: view.is_side_by_side and view.is_loaded)
    one, other = (column.widget.get_vadjustment() for column in view._columns)
    spin_until(lambda: min(a.get_upper() - a.get_page_size() for a in (one, other)) > 100)
    one.set_value(100)
    assert other.get_value() == 100
    other.set_value(50)
    assert one.get_value() == 50


def test_many_changes_show_the_first_and_the_rest_on_demand(screen: Screen) -> None:
    old = [f"line {number}\n" for number in range(250)]
    new = ["changed\n" if number % 10 == 5 else line for number, line in enumerate(old)]
    view = DiffView(most_sections=20)
    view.set_section_actions(lambda _hunk: [Action("undo", "Undo")])
    screen.show(view)
    load(view, old, new)
    assert len(buttons(view, "Undo")) == 20
    buttons(view, "Show More Hunks")[0].emit("clicked")
    spin_until(lambda: view.is_loaded)
    assert len(buttons(view, "Undo")) == 25
    assert not buttons(view, "Show More Hunks")


def test_colours_follow_the_theme(screen: Screen) -> None:
    view = with_texts(screen, OLD, NEW)
    tag = view._columns[0].tags.note
    manager = Adw.StyleManager.get_default()
    try:
        manager.set_color_scheme(Adw.ColorScheme.FORCE_LIGHT)
        light = tag.props.foreground_rgba.to_string()
        manager.set_color_scheme(Adw.ColorScheme.FORCE_DARK)
        assert tag.props.foreground_rgba.to_string() != light
    finally:
        manager.set_color_scheme(Adw.ColorScheme.DEFAULT)


def png(width: int, height: int) -> bytes:
    surface = cairo.ImageSurface(cairo.FORMAT_ARGB32, width, height)
    data = io.BytesIO()
    surface.write_to_png(data)
    return data.getvalue()


def test_pictures_before_and_after(screen: Screen) -> None:
    pair = ImagePair(png(20, 10), png(30, 15))
    screen.show(pair)
    spin_until(lambda: len(texts(pair)) == 2)
    draw_frames(pair)
    before, after = texts(pair)
    assert before.startswith("Before: 20 \N{MULTIPLICATION SIGN} 10")
    assert after.startswith("After: 30 \N{MULTIPLICATION SIGN} 15")
    # One of which is no picture.
    pair = ImagePair(b"\0\1\2" * 4000, png(30, 15))
    screen.show(pair)
    assert texts(pair)[0].startswith("Binary file, 12 kB before")
    spin_until(lambda: texts(pair) == [after])
    pair = ImagePair(None, b"\0\1\2" * 4000)
    screen.show(pair)
    assert texts(pair) == ["Binary file, 12 kB, new"]


def test_a_picture_keeps_its_colours() -> None:
    surface = cairo.ImageSurface(cairo.FORMAT_RGB24, 3, 2)
    context = cairo.Context(surface)
    context.set_source_rgb(1, 0, 0)
    context.paint()
    data = io.BytesIO()
    surface.write_to_png(data)
    texture = read_picture(data.getvalue(), os.environ)
    assert texture is not None
    read = cairo.ImageSurface.create_from_png(
        io.BytesIO(texture.save_to_png_bytes().get_data() or b"")
    )
    assert (read.get_width(), read.get_height()) == (3, 2)
    # Blue, green, red.
    assert bytes(read.get_data()[:3]) == b"\0\0\xff"


_SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d'><rect width='9000' \
height='9000' fill='#369'/></svg>"
_GIF = (
    b"GIF89a\x03\x00\x02\x00\x80\x01\x00\x33\x66\x99\x00\x00\x00,\x00\x00\x00\x00\x03\x00\x02\x00\x00"
    b"\x02\x03\x84\x6f\x05\x00;"
)


def saved(kind: str, width: int, height: int) -> bytes:
    pixels = GdkPixbuf.Pixbuf.new(GdkPixbuf.Colorspace.RGB, False, 8, width, height)
    assert pixels is not None
    pixels.fill(0x336699FF)
    return bytes(pixels.save_to_bufferv(kind, [], [])[1])


@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff", "bmp", "svg", "gif"])
def test_pictures_of_many_kinds_are_read(kind: str) -> None:
    drawn = {"svg": _SVG % (3, 2), "gif": _GIF}
    texture = read_picture(drawn.get(kind) or saved(kind, 3, 2), os.environ)
    assert texture is not None
    assert (texture.get_width(), texture.get_height()) == (3, 2)


@pytest.mark.parametrize("kind", ["png", "jpeg", "svg"])
def test_a_large_picture_becomes_smaller(kind: str) -> None:
    data = _SVG % (5000, 2500) if kind == "svg" else saved(kind, 5000, 2500)
    texture = read_picture(data, os.environ)
    assert texture is not None
    assert (texture.get_width(), texture.get_height()) == (1600, 800)


def test_a_picture_that_claims_to_be_enormous_is_not_read() -> None:
    small = bytearray(png(2, 2))
    assert read_picture(bytes(small), os.environ) is not None
    small[16:24] = (100_000).to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(small[12:29]).to_bytes(4, "big")
    assert read_picture(bytes(small), os.environ) is None
    assert binary_text(12_000, 14_000) == "Binary file, 12 kB before, 14 kB after"
    assert binary_text(12_000, None) == "Binary file, 12 kB, deleted"


@pytest.mark.parametrize(
    "head", [b"1 1 99999999999 4\n", b"1 8000000 4 4\n", b"0 1 4 4\n", b"1 -1 4 4\n", b"2 9 8 4\n"]
)
def test_a_decoder_that_a_picture_took_over(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the picture is its own claim, and must neither fill the memory nor be beyond what
    can be drawn."""
    pixels = bytes(32_000_000 if b"8000000" in head else 64)

    def taken_over(*_arguments: object, **_options: object) -> bytes:
        return head + pixels

    monkeypatch.setattr(isolated, "run_isolated", taken_over)
    assert read_picture(b"x", os.environ) is None
