# SPDX-License-Identifier: GPL-3.0-or-later
"""Complete the name of a project file after an "@" in the composer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from gi.repository import Gdk, Gtk, Pango

from ...i18n import _
from ...text.visible import visible_line
from ..widgets.boxes import hbox
from ..widgets.signals import signals
from ..widgets.weak import weakly

# Return files whose path contains the text, relative to the project.
Finder = Callable[[str], Awaitable[Sequence[str]] | None]


class FileCompletion(Gtk.Popover):
    """A list of files at the cursor. The text view keeps the focus, and passes keys on."""

    __gsignals__ = signals({"chosen": (object,)})

    def __init__(self, view: Gtk.TextView, around: Gtk.Box) -> None:
        """The list belongs to the box `around` the view: a text view takes no popovers."""
        super().__init__(autohide=False, has_arrow=False, position=Gtk.PositionType.TOP)
        self.add_css_class("menu-like")
        self.set_halign(Gtk.Align.START)
        self._view = view
        self._buffer = view.get_buffer()
        self.find: Finder | None = None
        self._looking: asyncio.Task[None] | None = None
        self._paths: Sequence[str] = ()
        self._list = Gtk.ListBox(selection_mode=Gtk.SelectionMode.BROWSE, can_focus=False)
        self._list.add_css_class("navigation-sidebar")
        self._list.update_property([Gtk.AccessibleProperty.LABEL], [_("Files")])
        self._list.connect("row-activated", weakly(self._on_row))
        self.set_child(self._list)
        self.set_parent(around)
        self._buffer.connect("notify::cursor-position", weakly(self._on_moved))

    @property
    def paths(self) -> Sequence[str]:
        """The files in the list; none while it is hidden."""
        return self._paths if self.get_visible() else ()

    def take_key(self, key: int) -> bool:
        """Return whether the key was for the list."""
        if not self.get_visible():
            return False
        row = self._list.get_selected_row()
        place = row.get_index() if row is not None else 0
        if key in (Gdk.KEY_Up, Gdk.KEY_KP_Up, Gdk.KEY_Down, Gdk.KEY_KP_Down):
            step = -1 if key in (Gdk.KEY_Up, Gdk.KEY_KP_Up) else 1
            self._list.select_row(self._list.get_row_at_index((place + step) % len(self._paths)))
        elif key in (Gdk.KEY_Return, Gdk.KEY_KP_Enter, Gdk.KEY_ISO_Enter, Gdk.KEY_Tab):
            self._choose(place)
        elif key == Gdk.KEY_Escape:
            self.popdown()
        else:
            return False
        return True

    def _word(self) -> tuple[Gtk.TextIter, str] | None:
        """Return the beginning of the word with "@" before the cursor, and the text after it."""
        end = self._buffer.get_iter_at_mark(self._buffer.get_insert())
        start = end.copy()
        while start.backward_char():
            if start.get_char().isspace():
                start.forward_char()
                break
        text = self._buffer.get_text(start, end, False)
        return (start, text[1:]) if text.startswith("@") else None

    def _on_moved(self, *_args: object) -> None:
        word = self._word() if self.find is not None else None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if word is None:
            self.popdown()
        else:
            self._looking = asyncio.ensure_future(self._look(word[1]))

    async def _look(self, text: str) -> None:
        assert self.find is not None
        finding = self.find(text)
        found = await finding if finding is not None else ()
        if (word := self._word()) is None or word[1] != text or not found:
            self.popdown()
            return
        self._paths = found
        while (row := self._list.get_row_at_index(0)) is not None:
            self._list.remove(row)
        for path in self._paths:
            self._list.append(_row(path))
        self._list.select_row(self._list.get_row_at_index(0))
        around = self.get_parent()
        assert around is not None
        place = self._view.get_iter_location(word[0])
        inside = self._view.buffer_to_window_coords(Gtk.TextWindowType.WIDGET, place.x, place.y)
        x, y = self._view.translate_coordinates(around, *inside) or inside
        spot = Gdk.Rectangle()
        spot.x, spot.y, spot.width, spot.height = int(x), int(y), 1, place.height
        self.set_pointing_to(spot)
        self.popup()

    def _choose(self, place: int) -> None:
        word, path = self._word(), self._paths[place]
        self.popdown()
        if word is not None:
            self._buffer.delete(word[0], self._buffer.get_iter_at_mark(self._buffer.get_insert()))
            self.emit("chosen", path)

    def _on_row(self, _list: Gtk.ListBox, row: Gtk.ListBoxRow) -> None:
        self._choose(row.get_index())


def _row(path: str) -> Gtk.ListBoxRow:
    folder, name = os.path.split(path)
    beside = Gtk.Label(
        label=visible_line(folder),
        xalign=0,
        hexpand=True,
        ellipsize=Pango.EllipsizeMode.START,
        width_chars=min(len(folder), 24),
        css_classes=["dim-label", "caption"],
    )
    box = hbox(Gtk.Label(label=visible_line(name), xalign=0), beside, spacing=9)
    row = Gtk.ListBoxRow(child=box, can_focus=False)
    row.update_property([Gtk.AccessibleProperty.LABEL], [visible_line(path)])
    return row
