# SPDX-License-Identifier: GPL-3.0-or-later
"""The button and the popover that choose a model, and show whether its server answers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from gi.repository import Gtk, Pango

from ... import N_
from ...chat.providers.connections_file import TOUR
from ...i18n import _
from ..widgets.boxes import hbox, scrolled_list, text_button, vbox
from ..widgets.labels import (
    children_of,
    decorative_icon,
    one_line,
    set_accessible_name,
    set_class,
    wrapped,
)
from ..widgets.signals import signals
from ..widgets.weak import weakly


def shown_model(name: str) -> str:
    """Return the name to show. Models have fixed names; only the tour's is a description."""
    return _(name) if name == TOUR.model else name


class ConnectionState(Enum):
    """The icon of each state, and what a screen reader says."""

    UNKNOWN = ("network-idle-symbolic", "")
    CONNECTING = ("content-loading-symbolic", N_("connecting"))
    READY = ("object-select-symbolic", N_("connected"))
    FAILED = ("dialog-warning-symbolic", N_("not reachable"))


class ConnectionItem(NamedTuple):
    name: str
    state: ConnectionState
    models: Sequence[str] = ()
    problem: str = ""


class ModelChooser(Gtk.MenuButton):
    __gsignals__ = signals({"chosen": (str, str), "refresh": ()})

    def __init__(self) -> None:
        super().__init__()
        self._connections: tuple[ConnectionItem, ...] = ()
        self._current = ("", "")
        self._icon = decorative_icon()
        self._label = Gtk.Label(xalign=0, hexpand=True, ellipsize=Pango.EllipsizeMode.MIDDLE)
        arrow = decorative_icon("pan-up-symbolic")
        content = hbox(self._icon, self._label, arrow, spacing=9)
        self.set_child(content)
        # GTK centres it, so the arrow would move with the length of the name.
        if (around := content.get_parent()) is not None:
            around.set_halign(Gtk.Align.FILL)
            content.set_hexpand(True)
        self.add_css_class("flat")
        self.set_direction(Gtk.ArrowType.UP)
        self._filter = Gtk.SearchEntry(placeholder_text=_("Find a Model"))
        set_accessible_name(self._filter, _("Find a model"))
        self._filter.connect("search-changed", weakly(self._fill_list))
        self._list = Gtk.ListBox(selection_mode=Gtk.SelectionMode.NONE)
        self._list.update_property([Gtk.AccessibleProperty.LABEL], [_("Models")])
        self._list.add_css_class("navigation-sidebar")
        self._list.connect("row-activated", weakly(self._on_row))
        none = Gtk.Label(label=_("No connections yet"), margin_top=12, margin_bottom=12)
        none.add_css_class("dim-label")
        self._list.set_placeholder(none)
        scrolled = scrolled_list(self._list, 360)
        scrolled.set_propagate_natural_width(False)
        # Its rows are the stops of the keyboard.
        scrolled.set_focusable(False)
        connect = text_button(self, _("_Connect…"), "win.connect-model")
        connect.connect("clicked", weakly(self._on_connect))
        box = vbox(self._filter, scrolled, connect, spacing=6, width_request=260)
        self._popover = Gtk.Popover(child=box)
        self._popover.connect("map", weakly(self._on_opened))
        self.set_popover(self._popover)
        self._fill()

    def show(  # type: ignore[override]
        self, connections: Sequence[ConnectionItem], current: tuple[str, str]
    ) -> None:
        """Show the connections. `current` is the one that is chosen and its model, or empty."""
        if (tuple(connections), current) != (self._connections, self._current):
            self._connections, self._current = tuple(connections), current
            self._fill()

    @property
    def _state(self) -> ConnectionState:
        if self._current[1] == TOUR.model:
            return ConnectionState.READY
        for connection in self._connections:
            if connection.name == self._current[0]:
                return connection.state
        return ConnectionState.UNKNOWN

    def _fill(self) -> None:
        connection, model = self._current
        # Without an answer the models are unknown, but the connections are shown.
        known = model or (connection if self._state is ConnectionState.FAILED else "")
        text = f"{connection}, {model}" if model else known or _("No model chosen")
        # One connection needs no name, and there is little room in a narrow window.
        if len(self._connections) == 1 or model.casefold().startswith(connection.casefold()):
            text = shown_model(model) or text
        self._label.set_label(text)
        icon, state = self._state.value
        self._icon.set_from_icon_name(icon)
        set_class(self._icon, "success", bool(known) and self._state is ConnectionState.READY)
        set_class(self._icon, "warning", bool(known) and self._state is ConnectionState.FAILED)
        name = _("Model: {}").format(f"{text}, {_(state)}" if state and known else text)
        self.set_tooltip_text(name)
        set_accessible_name(self, name)
        self._fill_list()

    def _fill_list(self, *_args: object) -> None:
        while (row := self._list.get_row_at_index(0)) is not None:
            self._list.remove(row)
        wanted = self._filter.get_text().strip().casefold()
        count = 0
        for connection in self._connections:
            count += len(connection.models)
            self._list.append(_heading(connection))
            for model in connection.models:
                if wanted in model.casefold():
                    is_current = (connection.name, model) == self._current
                    state = connection.state if is_current else None
                    self._list.append(_ModelRow(connection.name, model, state))
        self._filter.set_visible(count > 8)

    def _on_opened(self, _popover: Gtk.Popover) -> None:
        """Ask the servers again, and begin at the model in use."""
        self.emit("refresh")
        for row in children_of(self._list):
            if isinstance(row, _ModelRow) and (row.connection, row.model) == self._current:
                row.grab_focus()

    def _on_row(self, _list: Gtk.ListBox, row: Gtk.ListBoxRow) -> None:
        if isinstance(row, _ModelRow):
            self._popover.popdown()
            self.emit("chosen", row.connection, row.model)

    def _on_connect(self, _button: Gtk.Button) -> None:
        self._popover.popdown()


class _ModelRow(Gtk.ListBoxRow):
    def __init__(self, connection: str, model: str, state: ConnectionState | None) -> None:
        """`state` is that of the connection, for the model in use."""
        super().__init__()
        self.connection, self.model = connection, model
        label = Gtk.Label(label=shown_model(model), xalign=0, hexpand=True)
        label.set_ellipsize(Pango.EllipsizeMode.MIDDLE)
        box = hbox(label, spacing=6, margin_start=12)
        if state is not None:
            mark = decorative_icon(state.value[0])
            if state is ConnectionState.FAILED:
                mark.add_css_class("warning")
            box.append(mark)
            # An integer: this state has a third value, so GTK does not take a boolean.
            self.update_state([Gtk.AccessibleState.SELECTED], [1])
        self.set_child(box)
        self.set_tooltip_text(model)
        self.update_property([Gtk.AccessibleProperty.LABEL], [model])


def _heading(connection: ConnectionItem) -> Gtk.ListBoxRow:
    box = vbox(one_line(connection.name, "heading"))
    note = connection.problem
    if connection.state is ConnectionState.CONNECTING:
        note = _("Connecting…")
    elif connection.state is ConnectionState.READY and not connection.models:
        note = _("No models")
    if note:
        style = "warning" if connection.problem else "dim-label"
        box.append(wrapped(note, "caption", style, max_width_chars=36))
    row = Gtk.ListBoxRow(child=box, activatable=False, selectable=False, focusable=False)
    row.update_property([Gtk.AccessibleProperty.LABEL], [connection.name])
    return row
