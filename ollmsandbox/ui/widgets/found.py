# SPDX-License-Identifier: GPL-3.0-or-later
"""Places of a text in the labels and text views below a widget, which can be marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gi.repository import Gtk, Pango

# As a marker pen does, in a light and in a dark window.
_PAPER, _INK = "#f8e45c", "#000000"


class FoundPlace:
    """A place in a label or a text view, in characters."""

    def __init__(self, part: Gtk.Label | Gtk.TextView, start: int, end: int) -> None:
        self.part = part
        self._start, self._end = start, end
        self._unmark: Callable[[], object] = lambda: None

    def mark(self) -> None:
        """Mark it. Not by selecting it, which would replace what a middle click inserts."""
        if isinstance(self.part, Gtk.TextView):
            buffer = self.part.get_buffer()
            tag = buffer.create_tag(None, background=_PAPER, foreground=_INK)
            buffer.apply_tag(tag, *map(buffer.get_iter_at_offset, (self._start, self._end)))
            self._unmark = lambda: buffer.get_tag_table().remove(tag)
            return
        label = self.part
        before = label.get_attributes()
        marked = (before.copy() if before is not None else None) or Pango.AttrList()
        text = label.get_text()
        for colour, make in (
            (_PAPER, Pango.attr_background_new),
            (_INK, Pango.attr_foreground_new),
        ):
            parts = Pango.Color()
            parts.parse(colour)
            attribute = make(parts.red, parts.green, parts.blue)
            attribute.start_index = len(text[: self._start].encode())
            attribute.end_index = len(text[: self._end].encode())
            marked.insert(attribute)
        label.set_attributes(marked)
        self._unmark = lambda: label.set_attributes(before)

    def unmark(self) -> None:
        self._unmark()

    @property
    def top(self) -> float:
        """Return how far it is below the part's upper edge."""
        if isinstance(self.part, Gtk.TextView):
            at = self.part.get_buffer().get_iter_at_offset(self._start)
            return float(self.part.get_iter_location(at).y)
        before = len(self.part.get_text()[: self._start].encode())
        return self.part.get_layout().index_to_pos(before).y / Pango.SCALE


def places_of(widget: Gtk.Widget, text: str) -> Iterator[FoundPlace]:
    """Yield the places that have a text, in any case, from the first to the last."""
    wanted = re.compile(re.escape(text), re.IGNORECASE)
    child = widget.get_first_child()
    while child is not None:
        if isinstance(child, Gtk.Label):
            yield from (FoundPlace(child, *at.span()) for at in wanted.finditer(child.get_text()))
        elif isinstance(child, Gtk.TextView):
            text_here = child.get_buffer().props.text
            yield from (FoundPlace(child, *at.span()) for at in wanted.finditer(text_here))
        else:
            yield from places_of(child, text)
        child = child.get_next_sibling()
