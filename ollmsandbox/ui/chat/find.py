# SPDX-License-Identifier: GPL-3.0-or-later
"""Find in the chat: a bar above the messages that goes from one place to the next, and the places,
which can be marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gi.repository import Gtk, Pango

from ...i18n import _
from ..sessions.entries import CallEntry, ChatEntry, MessageEntry, NoticeEntry, SummaryEntry
from ..widgets.boxes import hbox, icon_button
from ..widgets.labels import set_accessible_name
from ..widgets.readable import number
from ..widgets.weak import weakly

# As a marker pen does, in a light and in a dark window.
_PAPER, _INK = "#f8e45c", "#000000"


class FoundPlace:
    """A place in a label or a text view, in characters."""

    def __init__(self, part: Gtk.Label | Gtk.TextView, start: int, end: int) -> None:
        self.part = part
        self._start, self._end = start, end
        # Takes the marks away.
        self.unmark: Callable[[], object] = lambda: None

    def mark(self) -> None:
        """Mark it. Not by selecting it, which would replace what a middle click inserts."""
        if isinstance(self.part, Gtk.TextView):
            buffer = self.part.get_buffer()
            tag = buffer.create_tag(None, background=_PAPER, foreground=_INK)
            buffer.apply_tag(tag, *map(buffer.get_iter_at_offset, (self._start, self._end)))
            self.unmark = lambda: buffer.get_tag_table().remove(tag)
            return
        label = self.part
        before = label.get_attributes()
        marked = (before.copy() if before is not None else None) or Pango.AttrList()
        start, end = (len(label.get_text()[:at].encode()) for at in (self._start, self._end))
        marks = f"{start} {end} background {_PAPER}\n{start} {end} foreground {_INK}"
        if (found := Pango.AttrList.from_string(marks)) is not None:
            marked.splice(found, 0, 0)
        label.set_attributes(marked)
        self.unmark = lambda: label.set_attributes(before)

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


class FindBar(Gtk.SearchBar):
    """`entries` returns the entries of the chat; `go_to` scrolls to one of the places in an entry
    that have a text, or to none."""

    def __init__(
        self,
        entries: Callable[[], Iterable[ChatEntry] | None],
        go_to: Callable[[ChatEntry | None, str, int], object],
    ) -> None:
        super().__init__()
        self._entries, self._go_to = entries, go_to
        # Each with which of its places.
        self._found: list[tuple[ChatEntry, int]] = []
        self._place = 0
        self.entry = Gtk.SearchEntry(hexpand=True, placeholder_text=_("Find in the chat"))
        set_accessible_name(self.entry, _("Find in the chat"))
        self.count = Gtk.Label(css_classes=["caption", "dim-label", "numeric"])
        line = hbox(self.entry, self.count, spacing=6)
        for icon, label, by in (
            ("go-up-symbolic", _("Previous"), -1),
            ("go-down-symbolic", _("Next"), 1),
        ):
            button = icon_button(icon, label, "flat")
            button.connect("clicked", weakly(self._step), by)
            line.append(button)
        self.set_child(line)
        self.connect_entry(self.entry)
        self.connect("notify::search-mode-enabled", weakly(self._search))
        self.entry.connect("search-changed", weakly(self._search))
        # From the end, where the chat is, upwards.
        for signal, by in (("activate", -1), ("previous-match", -1), ("next-match", 1)):
            self.entry.connect(signal, weakly(self._step), by)

    def find(self) -> None:
        self.set_search_mode(True)
        self.entry.grab_focus()

    def _search(self, *_args: object) -> None:
        wanted = self.entry.get_text().casefold() if self.get_search_mode() else ""
        entries = (self._entries() or ()) if wanted else ()
        self._found = [
            (entry, which) for entry in entries for which in range(_text(entry).count(wanted))
        ]
        self._place = len(self._found)
        if wanted:
            self._step(self, -1)
        else:
            self.count.set_label("")
            self._go_to(None, "", 0)

    def _step(self, _widget: Gtk.Widget, by: int) -> None:
        if not self._found:
            self.count.set_label(_("Nothing found") if self.entry.get_text() else "")
            self._go_to(None, "", 0)
            return
        self._place = (self._place + by) % len(self._found)
        # Translators: which of the places that were found is shown: "3 of 12"
        text = _("{place} of {count}")
        self.count.set_label(
            text.format(place=number(self._place + 1), count=number(len(self._found)))
        )
        entry, which = self._found[self._place]
        self._go_to(entry, self.entry.get_text(), which)


def _text(entry: ChatEntry) -> str:
    if isinstance(entry, CallEntry):
        return f"{entry.description}\n{entry.shown_text}".casefold()
    if isinstance(entry, MessageEntry | NoticeEntry | SummaryEntry):
        return entry.text.casefold()
    return ""
