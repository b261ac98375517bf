# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds text in a buffer that may change meanwhile."""

from __future__ import annotations

import re
from bisect import bisect_left

from gi.repository import Gtk

from ...i18n import _

# More matches than anyone steps through. Highlighting each of them takes time.
_MOST = 9999
_MOST_LIT = 500


def places(text: str, wanted: str, most: int = _MOST) -> list[int]:
    """Return the offsets of all matches, ignoring case."""
    if not wanted:
        return []
    lower, searched = text.lower(), wanted.lower()
    if len(lower) != len(text) or len(searched) != len(wanted):
        found = re.finditer(re.escape(wanted), text, re.IGNORECASE)
        return [match.start() for match, _number in zip(found, range(most), strict=False)]
    result: list[int] = []
    position = lower.find(searched)
    while position >= 0 and len(result) < most:
        result.append(position)
        position = lower.find(searched, position + len(searched))
    return result


class Finder:
    """Highlights the matches, and remembers which one is current."""

    def __init__(self, buffer: Gtk.TextBuffer) -> None:
        self._buffer = buffer
        self._lit = buffer.create_tag(None, background="#f9f06b", foreground="#000000")
        self._current = buffer.create_tag(None, background="#ff7800", foreground="#000000")
        self._wanted = ""
        # A mark moves with the text when lines are added or removed above it.
        self._mark = buffer.create_mark(None, buffer.get_start_iter(), left_gravity=False)
        self._places: list[int] = []
        self._at = -1

    @property
    def is_active(self) -> bool:
        return bool(self._wanted)

    def search(self, wanted: str) -> None:
        """Find all matches. The last one is current at first, because it is the newest."""
        self._wanted = wanted
        self._look()
        self._at = len(self._places) - 1
        self._paint()

    def again(self) -> None:
        """Search again after the text has changed. The current match stays current if it still
        exists."""
        if not self._wanted:
            return
        before = self._buffer.get_iter_at_mark(self._mark).get_offset()
        self._look()
        self._at = min(bisect_left(self._places, before), len(self._places) - 1)
        self._paint()

    def step(self, by: int) -> None:
        if self._places:
            self._at = (self._at + by) % len(self._places)
            self._paint()

    @property
    def current(self) -> int | None:
        return self._places[self._at] if self._places else None

    @property
    def position_text(self) -> str:
        if not self._wanted:
            return ""
        if not self._places:
            return _("Not found")
        more = "+" if len(self._places) == _MOST else ""
        # Translators: the number of the current match, and how many there are.
        return _("{number} of {count}").format(
            number=self._at + 1, count=f"{len(self._places)}{more}"
        )

    def _look(self) -> None:
        text = self._buffer.get_text(*self._buffer.get_bounds(), True)
        self._places = places(text, self._wanted)

    def _paint(self) -> None:
        for tag in (self._lit, self._current):
            self._buffer.remove_tag(tag, *self._buffer.get_bounds())
        first = max(0, self._at - _MOST_LIT // 2)
        for place in self._places[first : first + _MOST_LIT]:
            self._light(self._lit, place)
        if self.current is not None:
            self._light(self._current, self.current)
            self._buffer.move_mark(self._mark, self._buffer.get_iter_at_offset(self.current))

    def _light(self, tag: Gtk.TextTag, place: int) -> None:
        start = self._buffer.get_iter_at_offset(place)
        end = self._buffer.get_iter_at_offset(place + len(self._wanted))
        # Above the colours of the text, whose tags were created later.
        tag.set_priority(self._buffer.get_tag_table().get_size() - 1)
        self._buffer.apply_tag(tag, start, end)
