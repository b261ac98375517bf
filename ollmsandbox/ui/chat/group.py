# SPDX-License-Identifier: GPL-3.0-or-later
"""Several finished calls in one line of the chat, which opens to show them."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk

from ...i18n import _
from ..sessions.entries import ChatEntry
from ..sessions.folding import CallGroup, group_duration, group_text
from ..widgets.boxes import hbox, vbox
from ..widgets.labels import add_classes, decorative_icon, one_line, set_expanded
from ..widgets.signals import SignalHandlers
from ..widgets.weak import weakly


class CallGroupRow(Gtk.Box):
    """`make_row` makes the rows of the entries when it is opened."""

    def __init__(self, group: CallGroup, make_row: Callable[[ChatEntry], Gtk.Widget]) -> None:
        super().__init__(
            orientation=Gtk.Orientation.VERTICAL, accessible_role=Gtk.AccessibleRole.GROUP
        )
        self.group = group
        self._make_row = weakly(make_row)
        self._rows: dict[ChatEntry, Gtk.Widget] = {}
        self._arrow = decorative_icon()
        self._text = one_line(hexpand=True)
        self._time = Gtk.Label(css_classes=["caption", "numeric"])
        self.header = Gtk.Button(child=hbox(self._arrow, self._text, self._time, spacing=9))
        add_classes(self.header, "flat", "tool-header", "dim-label")
        self.header.connect("clicked", weakly(self._on_header))
        self._body = vbox(spacing=6)
        self._body.add_css_class("call-group")
        self.append(self.header)
        self.append(self._body)
        SignalHandlers(self).connect(group, "changed", self._show)
        self._show()

    def open(self, *, is_open: bool = True) -> None:
        self.group.is_open = is_open
        self._show()

    def row_of(self, entry: ChatEntry) -> Gtk.Widget | None:
        return self._rows.get(entry)

    def _show(self, *_args: object) -> None:
        group = self.group
        text, took = group_text(group.calls), group_duration(group.calls)
        self._text.set_label(text)
        self._time.set_label(took)
        name = _("{call}. {status}").format(call=text, status=took) if took else text
        self.header.update_property([Gtk.AccessibleProperty.LABEL], [name])
        set_expanded(self.header, group.is_open)
        icon = "pan-down-symbolic" if group.is_open else "pan-end-symbolic"
        self._arrow.set_from_icon_name(icon)
        self._body.set_visible(group.is_open)
        if not group.is_open:
            self._clear()
            return
        for entry in group.entries:
            if entry not in self._rows:
                row = self._make_row(entry)
                if row is None:  # the widget that makes them is gone
                    return
                self._rows[entry] = row
                self._body.append(row)

    def _clear(self) -> None:
        for row in self._rows.values():
            self._body.remove(row)
        self._rows = {}

    def _on_header(self, _button: Gtk.Button) -> None:
        self.open(is_open=not self.group.is_open)
