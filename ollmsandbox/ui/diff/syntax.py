# SPDX-License-Identifier: GPL-3.0-or-later
"""Syntax colours, found by highlighting each version as a whole.

A diff leaves out lines and shows others twice. Highlighted by itself, a string that begins above a
fold would never end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gi.repository import Gtk, GtkSource

from .colours import set_scheme
from .model import Diff, Line


class Syntax:
    def __init__(self, diff: Diff, path: str) -> None:
        language = GtkSource.LanguageManager.get_default().guess_language(path, None)
        # One table for all buffers, so that a tag found in a version can be used in the shown text.
        self.table = table = Gtk.TextTagTable()
        # A new or deleted file is shown as a whole, so its buffer can be highlighted directly.
        is_whole = not diff.old or not diff.new
        self.own_language = language if is_whole else None
        self._old = _Version(diff.old, None if is_whole else language, table)
        self._new = _Version(diff.new, None if is_whole else language, table)

    def repaint(self) -> None:
        for version in (self._old, self._new):
            version.repaint()

    def is_ready(self, lines: Sequence[Line], until: float) -> bool:
        """Highlight until the deadline. Return whether these lines are done."""
        old = max((line.old or 0 for line in lines if line.new is None), default=0)
        new = max((line.new or 0 for line in lines), default=0)
        return self._old.read(old, until) and self._new.read(new, until)

    def paint(self, buffer: GtkSource.Buffer, offset: int, line: Line) -> None:
        """Colour a line whose text begins at this position of the buffer."""
        if line.new is not None:
            self._new.paint(buffer, offset, line.new, line.text)
        elif line.old is not None:
            self._old.paint(buffer, offset, line.old, line.text)


class _Version:
    def __init__(
        self,
        lines: Sequence[str],
        language: GtkSource.Language | None,
        table: Gtk.TextTagTable,
    ) -> None:
        self._lines = lines
        self._read = 0
        self._useful: dict[Gtk.TextTag, bool] = {}
        self._buffer: GtkSource.Buffer | None = None
        # Highlighting more takes too long.
        short = len(lines) <= 6000 and max(map(len, lines), default=0) <= 2000
        self._language = language if short else None
        self._table = table

    def repaint(self) -> None:
        if self._buffer is not None:
            set_scheme(self._buffer)

    def read(self, wanted: int, until: float) -> bool:
        if self._language is None or not wanted:
            return True
        if self._buffer is None:
            # Only now: this takes some milliseconds, and the old version is often not needed.
            self._fill(self._language)
            return False
        while self._read < min(wanted, len(self._lines)):
            if time.monotonic() >= until:
                return False
            start = self._at_line(self._read)
            # So many lines take a few milliseconds.
            self._read += 40
            self._buffer.ensure_highlight(start, self._at_line(self._read))
        return True

    def _fill(self, language: GtkSource.Language) -> None:
        self._buffer = GtkSource.Buffer(tag_table=self._table, language=language)
        self._buffer.set_enable_undo(False)
        self.repaint()
        # Other line ends would shift the numbers, and a NUL would end the text.
        text = "\n".join(line.rstrip("\r\n") for line in self._lines)
        self._buffer.set_text(text.translate(_HARMLESS))

    def _at_line(self, number: int) -> Gtk.TextIter:
        assert self._buffer is not None
        _found, place = self._buffer.get_iter_at_line(number)
        return place

    def paint(self, buffer: GtkSource.Buffer, offset: int, number: int, text: str) -> None:
        # With marks for invisible characters, the positions differ.
        if self._buffer is None or self._lines[number - 1].rstrip("\r\n") != text:
            return
        at = self._at_line(number - 1)
        start, length = at.get_offset(), len(text)
        shift = offset - start
        position = start
        while position < start + length:
            tags = [tag for tag in at.get_tags() if self._is_useful(tag)]
            at.forward_to_tag_toggle(None)
            end = min(at.get_offset(), start + length)
            for tag in tags:
                first = buffer.get_iter_at_offset(position + shift)
                buffer.apply_tag(tag, first, buffer.get_iter_at_offset(end + shift))
            if end <= position:
                return
            position = end

    def _is_useful(self, tag: Gtk.TextTag) -> bool:
        """Return whether the tag has a colour: some only tell programs what kind of text it is."""
        found = self._useful.get(tag)
        if found is None:
            look = tag.props
            found = look.foreground_set or look.weight_set or look.style_set or look.underline_set
            self._useful[tag] = found
        return found


_HARMLESS = dict.fromkeys((0, 11, 12, 13, 133, 8232, 8233), "?")
