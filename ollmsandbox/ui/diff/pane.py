# SPDX-License-Identifier: GPL-3.0-or-later
"""One column of a diff: lines with their numbers, and rows that hold buttons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gi.repository import GObject, Gtk, GtkSource

from ..widgets.weak import weakly
from .colours import DiffTags
from .model import Line, LineKind
from .syntax import Syntax


@dataclass(frozen=True, slots=True)
class Row:
    # The line it shows; None if it holds buttons, or only fills the space beside a line.
    line: Line | None = None
    # The text of the margin.
    margin: str = ""

    @property
    def text(self) -> str:
        return self.line.text if self.line else ""


class DiffPane:
    """One column. `widget` is what is shown; the owner keeps both columns in step."""

    def __init__(self, syntax: Syntax, digits: int, label: str) -> None:
        self._syntax = syntax
        self.buffer = GtkSource.Buffer(tag_table=syntax.table, highlight_matching_brackets=False)
        self.buffer.set_enable_undo(False)
        self.buffer.set_language(syntax.own_language)
        self.tags = DiffTags(self.buffer)
        self.view = GtkSource.View(
            buffer=self.buffer,
            editable=False,
            cursor_visible=False,
            monospace=True,
            accepts_tab=False,
            left_margin=6,
            right_margin=12,
        )
        self.view.update_property([Gtk.AccessibleProperty.LABEL], [label])
        self._rows: list[Row] = []
        self._numbers = GtkSource.GutterRendererText(xalign=1.0, xpad=6)
        self._numbers.connect("query-data", weakly(self._fill_margin))
        self._numbers.add_css_class("numeric")
        # Code is written from left to right in every language, and so are line numbers and signs.
        for part in (self.view, self._numbers):
            part.set_direction(Gtk.TextDirection.LTR)
        gutter = self.view.get_gutter(Gtk.TextWindowType.LEFT)
        gutter.insert(self._numbers, 0)
        self._digits = digits
        self.view.connect("realize", weakly(self._set_margin_width))
        self.widget = Gtk.ScrolledWindow(child=self.view, hexpand=True, vexpand=True)

    def row(self, of: int) -> Row:
        return self._rows[of]

    def __len__(self) -> int:
        return len(self._rows)

    def insert(self, at: int, rows: Sequence[Row]) -> None:
        """Insert rows before this position, one for each line of the buffer."""
        text = "".join(f"{row.text}\n" for row in rows)
        _found, place = self.buffer.get_iter_at_line(at)
        offset = place.get_offset()
        self._rows[at:at] = rows
        self.buffer.insert(place, text)
        for number, row in enumerate(rows, at):
            end = offset + len(row.text) + 1
            stripe = self.tags.stripes[number % 2]
            self.buffer.apply_tag(stripe, *map(self.buffer.get_iter_at_offset, (offset, end)))
            self._mark(offset, row)
            offset = end

    def insert_widget(self, at: int, widget: Gtk.Widget) -> None:
        _found, place = self.buffer.get_iter_at_line(at)
        self._rows.insert(at, Row())
        offset = place.get_offset()
        anchor = self.buffer.create_child_anchor(place)
        self.buffer.insert(self.buffer.get_iter_at_offset(offset + 1), "\n")
        start = self.buffer.get_iter_at_offset(offset)
        end = self.buffer.get_iter_at_offset(offset + 2)
        self.buffer.apply_tag(self.tags.header, start, end)
        widget.set_direction(Gtk.TextDirection.LTR)
        self.view.add_child_at_anchor(widget, anchor)

    def remove(self, at: int) -> None:
        del self._rows[at]
        _found, start = self.buffer.get_iter_at_line(at)
        _found, end = self.buffer.get_iter_at_line(at + 1)
        self.buffer.delete(start, end)

    def scroll_to(self, at: int) -> None:
        _found, place = self.buffer.get_iter_at_line(at)
        self.buffer.place_cursor(place)
        mark = self.buffer.get_insert()
        self.view.scroll_to_mark(mark, 0.0, True, 0.0, 0.1)

    def repaint(self) -> None:
        self.tags.repaint()
        self._numbers.queue_draw()

    def _mark(self, offset: int, row: Row) -> None:
        tags, line = self.tags, row.line
        at = self.buffer.get_iter_at_offset
        grounds = {LineKind.ADDED: tags.added, LineKind.REMOVED: tags.removed}
        ground = grounds.get(line.kind) if line is not None else tags.blank
        if ground is not None:
            # Including the line end, or an empty line would have no background.
            self.buffer.apply_tag(ground, at(offset), at(offset + len(row.text) + 1))
        if line is None:
            return
        self._syntax.paint(self.buffer, offset, line)
        if line.is_note:
            self.buffer.apply_tag(tags.note, at(offset), at(offset + len(line.text)))
        words = tags.added_words if line.kind is LineKind.ADDED else tags.removed_words
        for start, end in line.spans:
            self.buffer.apply_tag(words, at(offset + start), at(offset + end))

    def _fill_margin(
        self, renderer: GtkSource.GutterRendererText, _lines: object, number: int
    ) -> None:
        # For digits and signs. The scheme's own colour is too pale to read.
        text = self._rows[number].margin if number < len(self._rows) else ""
        renderer.set_markup(f'<span foreground="{self.tags.margin}">{text}</span>', -1)

    def _set_margin_width(self, _view: Gtk.Widget) -> None:
        width, _height = self._numbers.measure("0" * self._digits)
        self._numbers.set_size_request(width + 12, -1)


def link_panes(one: DiffPane, other: DiffPane) -> None:
    both = GObject.BindingFlags.BIDIRECTIONAL
    for here, there in (
        (one.widget.get_vadjustment(), other.widget.get_vadjustment()),
        (one.widget.get_hadjustment(), other.widget.get_hadjustment()),
    ):
        here.bind_property("value", there, "value", both)


def unified(line: Line, digits: int) -> Row:
    old, new = ("" if number is None else number for number in (line.old, line.new))
    return Row(line, f"{old:>{digits}} {new:>{digits}} {_sign(line)}")


def side(line: Line | None, digits: int, *, is_new: bool) -> Row:
    if line is None:
        return Row()
    number = line.new if is_new else line.old
    return Row(line, f"{'' if number is None else number:>{digits}} {_sign(line)}")


def _sign(line: Line) -> str:
    return " " if line.is_note else line.kind.value
