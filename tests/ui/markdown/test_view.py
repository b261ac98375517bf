# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import partial

import cairo
import pytest
from gi.repository import GLib, Gtk, Pango
from support.person import Person
from support.screen import (
    Screen,
    all_of,
    descendants,
    draw_frames,
    one_of,
    spin_until,
    texts,
    watch_freeing,
)

from ollmsandbox.ui.markdown.code_block import CodeBlock
from ollmsandbox.ui.markdown.picture import read_from_project
from ollmsandbox.ui.markdown.view import MarkdownView

TEXT = """\
# Title

Some *words* and `code`, see [here](https://example.org/a?b=1&c=2).

- one
- two
  1. inner

> quoted

```python
def f():
    return 1
```

| a | b |
|---|--:|
| 1 | 2 |

- [x] done

The end, <b>not</b> markup & so on.
"""


def shown(screen: Screen, text: str, width: int = 600) -> MarkdownView:
    view = MarkdownView(text)
    screen.show(Gtk.ScrolledWindow(child=view), width, 700)
    spin_until(lambda: view.is_settled)
    return view


def shape(widget: Gtk.Widget) -> list[tuple[str, str]]:
    """Return the kind and the text of each widget, in reading order."""
    return [
        (type(one).__name__, one.get_label() if isinstance(one, Gtk.Label) else "")
        for one in descendants(widget)
        # Scroll bars and the like come and go with the space there is.
        if isinstance(one, (Gtk.Label, Gtk.Box, Gtk.Grid, Gtk.CheckButton, Gtk.Separator))
    ]


def test_every_block_is_there(screen: Screen) -> None:
    view = shown(screen, TEXT)
    seen = texts(view)
    for text in ("Title", "Some words and code, see here.", "one", "inner", "quoted", "a", "2"):
        assert text in seen
    assert "def f():\n    return 1" in seen
    assert seen[-1] == "The end, <b>not</b> markup & so on."
    assert one_of(view, Gtk.CheckButton).get_active()
    heading, paragraph, *_ = all_of(view, Gtk.Label)
    assert heading.get_accessible_role() is Gtk.AccessibleRole.HEADING
    assert heading.has_css_class("h1")
    assert paragraph.get_accessible_role() is Gtk.AccessibleRole.LABEL


def test_words_can_be_selected_and_are_not_hyphenated(screen: Screen) -> None:
    (label,) = all_of(shown(screen, "A/path/" * 60, 360), Gtk.Label)
    assert label.get_selectable()
    assert label.get_wrap_mode() is Pango.WrapMode.WORD_CHAR
    layout = label.get_layout()
    assert layout.get_line_count() > 3
    attributes = layout.get_attributes()
    assert attributes is not None
    # At once: the value is gone with its attribute.
    hyphens = [
        value.value
        for one in attributes.get_attributes()
        if one.klass.type == Pango.AttrType.INSERT_HYPHENS and (value := one.as_int()) is not None
    ]
    assert hyphens == [0]


def test_a_link_is_opened_by_the_owner_alone(screen: Screen) -> None:
    view = shown(screen, TEXT)
    asked: list[str] = []
    view.connect("open-link", lambda _view, address: asked.append(address))
    label = one_of(view, Gtk.Label, "Some words and code, see here.")
    assert label.emit("activate-link", "https://example.org/a?b=1&c=2")
    assert asked == ["https://example.org/a?b=1&c=2"]


@pytest.mark.parametrize("width", [300, 900])
def test_nothing_forces_the_width(screen: Screen, width: int) -> None:
    wide = "| " + " | ".join(f"a column that is wide {n}" for n in range(20)) + " |\n"
    rows = wide + "|-" * 20 + "|\n" + wide
    text = f"{TEXT}\n{rows}\n{'word' * 500}\n\n```\n{'x ' * 500}\n```\n\n" + "> - " * 8 + "deep"
    view = MarkdownView(text)
    window = screen.show(
        Gtk.ScrolledWindow(child=view, hscrollbar_policy=Gtk.PolicyType.NEVER), width, 500
    )
    spin_until(lambda: view.is_settled)
    draw_frames(window)
    assert window.get_width() == width
    assert view.get_width() <= width


def test_a_table_keeps_its_columns_and_scrolls(screen: Screen) -> None:
    cell = "many words in one cell " * 5
    view = shown(screen, f"|{cell}|b|c|\n|-|-|-|\n|1|{cell}|3|\n", 360)
    scroller = one_of(view, Gtk.ScrolledWindow)
    adjustment = scroller.get_hadjustment()
    spin_until(lambda: adjustment.get_upper() > adjustment.get_page_size() > 0)
    grid = one_of(view, Gtk.Grid)

    def needed() -> int:
        # The grid's own width would be without its border.
        _known, bounds = grid.compute_bounds(scroller)
        # Before it is laid out, it may be narrower than it can be.
        width = max(round(bounds.get_width()), grid.measure(Gtk.Orientation.HORIZONTAL, -1)[0])
        height: int = grid.measure(Gtk.Orientation.VERTICAL, width)[1]
        return height

    # No taller than it has to be, once it is laid out.
    spin_until(lambda: scroller.get_height() == needed())


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_streamed_text_is_in_the_end_as_if_it_had_been_set(screen: Screen, size: int) -> None:
    text = TEXT * 3 + "```py\nnot closed"
    streamed = MarkdownView()
    screen.show(Gtk.ScrolledWindow(child=streamed), 600, 700)
    for at in range(0, len(text), size):
        streamed.append(text[at : at + size])
        if at % 50 == 0:
            GLib.MainContext.default().iteration(False)
    streamed.finish()
    spin_until(lambda: streamed.is_settled)
    assert streamed.text == text
    assert shape(streamed) == shape(shown(screen, text))


def test_the_end_is_plain_text_until_its_block_is_finished(screen: Screen) -> None:
    view = MarkdownView()
    screen.show(view)
    view.append("# Title\n\nSome *wor")
    spin_until(lambda: texts(view) == ["Title", "Some *wor"])
    assert len(all_of(view, Gtk.TextView)) == 1
    view.append("ds*.\n\nMore")
    spin_until(lambda: texts(view) == ["Title", "Some words.", "More"])
    view.finish()
    spin_until(lambda: view.is_settled)
    assert all_of(view, Gtk.TextView) == []
    assert texts(view) == ["Title", "Some words.", "More"]


def test_code_is_code_while_it_is_being_written(screen: Screen) -> None:
    view = MarkdownView()
    screen.show(view)
    view.append("Look:\n\n```py\nx = 1\n``")
    spin_until(lambda: "x = 1" in texts(view))
    block = one_of(view, CodeBlock)
    view.append("`\n\nThere.")
    view.finish()
    spin_until(lambda: view.is_settled)
    # The same one: nothing flickers.
    assert all_of(view, CodeBlock) == [block]
    assert block.text == "x = 1"
    assert texts(view)[-1] == "There."


def test_a_long_text_takes_turns_with_the_rest_of_the_program(screen: Screen) -> None:
    view = MarkdownView()
    screen.show(Gtk.ScrolledWindow(child=view))
    turns: list[int] = []

    def turn() -> bool:
        turns.append(1)
        return not view.is_settled

    view.set_text(TEXT * 25)
    assert not view.is_settled
    GLib.timeout_add(1, turn)
    spin_until(lambda: view.is_settled, 60)
    assert len(turns) > 5
    assert texts(view).count("Title") == 25


def test_a_paragraph_without_end_is_several_labels(screen: Screen) -> None:
    text = "word " * 4_000
    view = shown(screen, text)
    labels = all_of(view, Gtk.Label)
    assert max(len(label.get_text()) for label in labels) <= 4000
    assert " ".join(label.get_text() for label in labels).split() == text.split()


def test_a_text_can_be_replaced_while_it_is_being_built(screen: Screen) -> None:
    view = MarkdownView(TEXT * 25)
    screen.show(Gtk.ScrolledWindow(child=view))
    view.set_text("short")
    spin_until(lambda: view.is_settled)
    assert texts(view) == ["short"]


def test_a_growing_text_is_never_higher_than_its_lines(screen: Screen) -> None:
    view = MarkdownView("")
    scroller = Gtk.ScrolledWindow(child=view)
    screen.show(scroller, 400, 300)
    heights: list[float] = []
    adjustment = scroller.get_vadjustment()
    adjustment.connect("changed", lambda one: heights.append(one.get_upper()))
    view.append("Some words that fill a few lines, no more than that. " * 6)
    spin_until(lambda: all_of(view, Gtk.TextView) and all_of(view, Gtk.TextView)[0].get_height())
    draw_frames(scroller, 3)
    assert max(heights, default=0) <= 300


def test_a_text_is_taken_down_piece_by_piece_and_freed(screen: Screen) -> None:
    def use() -> tuple[Gtk.Widget, Callable[[], bool]]:
        view = MarkdownView(TEXT * 20)
        spin_until(lambda: view.is_settled)
        column = view.get_child()
        assert column is not None
        view.take_down()
        assert column.get_first_child() is not None
        return column, watch_freeing(view)

    column, is_freed = use()
    spin_until(is_freed)
    assert column.get_first_child() is None


def _png(width: int, height: int) -> bytes:
    data = io.BytesIO()
    cairo.ImageSurface(cairo.FORMAT_RGB24, width, height).write_to_png(data)
    return data.getvalue()


@pytest.mark.parametrize("window", ["LTR", "RTL"])
def test_each_block_begins_where_its_text_begins(screen: Screen, window: str) -> None:
    def left_of(widget: Gtk.Widget) -> float:
        _known, bounds = widget.compute_bounds(view)
        return bounds.get_x()

    Gtk.Widget.set_default_direction(getattr(Gtk.TextDirection, window))
    try:
        for words, is_mirrored in (("words", False), ("מילים", True)):
            text = f"{words}\n\n1. {words}\n\n> {words}\n\n| {words} | 2 |\n|---|---|\n| 3 | 4 |"
            view = shown(screen, text)
            draw_frames(view)
            paragraph, mark, item, quoted, header, second, *_cells = all_of(view, Gtk.Label)
            for label in (paragraph, item, quoted):
                _ink, place = label.get_layout().get_pixel_extents()
                left = label.get_layout_offsets()[0] + place.x
                assert left == (label.get_width() - place.width if is_mirrored else 0)
            assert (left_of(mark) > left_of(item)) == is_mirrored
            assert (left_of(header) > left_of(second)) == is_mirrored
            # As it is while it is being written.
            growing = MarkdownView("")
            growing.append(words)
            screen.show(growing, 600, 200)
            spin_until(partial(getattr, growing, "_tail"))
            tail = growing._tail
            assert tail is not None
            draw_frames(tail)
            start = tail.get_iter_location(tail.get_buffer().get_start_iter())
            assert (start.x > tail.get_width() / 2) == is_mirrored
    finally:
        Gtk.Widget.set_default_direction(Gtk.TextDirection.LTR)


def test_all_items_of_a_list_stand_beside_their_marks(screen: Screen) -> None:
    for first, direction in (("words", Gtk.TextDirection.LTR), ("מילים", Gtk.TextDirection.RTL)):
        view = shown(screen, f"1. {first}\n2. words\n3. מילים\n4. 42")
        labels = all_of(view, Gtk.Label)
        assert {label.get_direction() for label in labels} == {direction}


def test_a_picture_of_the_project_is_shown(screen: Screen, person: Person) -> None:
    (person.project / "my plots").mkdir()
    (person.project / "my plots/plot.png").write_bytes(_png(900, 840))
    view = MarkdownView("See ![the plot](my%20plots/plot.png) here.", project=str(person.project))
    screen.show(Gtk.ScrolledWindow(child=view), 600, 700)
    spin_until(lambda: all_of(view, Gtk.Picture))
    picture = one_of(view, Gtk.Picture)
    spin_until(lambda: picture.get_height() > 0)
    assert picture.get_alternative_text() == "the plot"
    assert (picture.get_width(), picture.get_height()) == (450, 420)


def test_pictures_outside_the_project_are_not_read(person: Person) -> None:
    outside = person.home / "secret.png"
    outside.write_bytes(_png(2, 2))
    (person.project / "link.png").symlink_to(outside)
    (person.project / "folder").symlink_to(person.home)
    os.mkfifo(person.project / "pipe.png")
    project = str(person.project)
    paths = (
        "../secret.png",
        str(outside),
        "link.png",
        "folder/secret.png",
        "pipe.png",
        ".",
        "a\0b",
    )
    assert [read_from_project(project, path) for path in paths] == [None] * len(paths)
    (person.project / "own.png").write_bytes(_png(2, 2))
    assert read_from_project(project, f"{project}/own.png") == _png(2, 2)
