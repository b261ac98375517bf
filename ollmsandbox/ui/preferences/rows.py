# SPDX-License-Identifier: GPL-3.0-or-later
"""What windows and pages of preferences consist of; rows that show and change settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gi.repository import Adw, Gio, GLib, Gtk

from ..settings import Settings
from ..widgets.boxes import icon_button
from ..widgets.focus import FocusKeeper
from ..widgets.labels import set_accessible_name
from ..widgets.tasks import Tasks
from ..widgets.toasts import Toasts
from ..widgets.weak import weakly


class SettingsWindow(Adw.PreferencesWindow):
    """Shows errors of its tasks as toasts; the tasks end when it is closed."""

    def __init__(self, parent: Gtk.Window) -> None:
        super().__init__(transient_for=parent, modal=True, search_enabled=False)
        self._toasts = Toasts(weakly(self._add_toast))
        self._tasks = Tasks(weakly(self.tell))
        self.set_destroy_with_parent(True)
        self.connect("unmap", weakly(self._on_unmap))
        self._focus_keeper = FocusKeeper(self)

    def tell(self, text: str) -> None:
        self._toasts.tell(text)

    def _add_toast(self, toast: Adw.Toast) -> None:
        self.add_toast(toast)

    def _on_unmap(self, _window: Gtk.Widget) -> None:
        self._tasks.cancel()


class RowGroup(Adw.PreferencesGroup):
    """A group whose rows are replaced together."""

    def __init__(self, title: str, description: str | None = None) -> None:
        super().__init__(title=title, description=description)
        self._rows: Sequence[Gtk.Widget] = ()

    def show_rows(self, rows: Sequence[Gtk.Widget]) -> None:
        for row in self._rows:
            self.remove(row)
        self._rows = rows
        for row in rows:
            self.add(row)


def add_switches(
    group: Adw.PreferencesGroup, settings: Settings, *shown: tuple[str, str, str]
) -> None:
    """Add a switch for each key of a setting, with its title and subtitle."""
    for key, title, subtitle in shown:
        row = action(title, subtitle)
        control = Gtk.Switch(valign=Gtk.Align.CENTER)
        settings.bind(key, control, "active", Gio.SettingsBindFlags.DEFAULT)
        row.add_suffix(control)
        _activate(row, control, title)
        group.add(row)


def choice(
    settings: Settings,
    key: str,
    title: str,
    values: Sequence[tuple[str, str]],
) -> Adw.ComboRow:
    """Return a row that offers `values`: pairs of a stored value and its label.

    The chosen label is shown below the title, where even a narrow window has room for it.
    """
    stored = [value for value, _shown in values]
    row = Adw.ComboRow(title=GLib.markup_escape_text(title), use_subtitle=True)
    row.set_subtitle_lines(0)
    row.set_model(Gtk.StringList.new([shown for _value, shown in values]))
    present = settings.get_string(key)
    row.set_selected(stored.index(present) if present in stored else 0)
    row.connect("notify::selected", lambda r, _p: settings.set(key, stored[r.get_selected()]))
    return row


def spin_button(title: str, most: int, step: int) -> tuple[Adw.ActionRow, Gtk.SpinButton]:
    """Return a row for a number, whose unit is in the title, and its spin button."""
    row = action(title)
    spin = Gtk.SpinButton.new_with_range(0, most, step)
    spin.set_valign(Gtk.Align.CENTER)
    # Buttons below each other get the same width.
    spin.set_width_chars(8)
    row.add_suffix(spin)
    _activate(row, spin, title)
    return row, spin


def _activate(row: Adw.ActionRow, control: Gtk.Widget, title: str) -> None:
    row.set_activatable_widget(control)
    set_accessible_name(control, title)


def action(title: str, subtitle: str = "") -> Adw.ActionRow:
    """Return a row whose texts are never taken for markup."""
    row = Adw.ActionRow(
        title=GLib.markup_escape_text(title), subtitle=GLib.markup_escape_text(subtitle)
    )
    row.set_title_lines(0)
    row.set_subtitle_lines(0)
    return row


def button(label: str, name: str, method: Callable[..., object], *given: object) -> Gtk.Button:
    """Return a button that calls a method; `name` is what a screen reader says."""
    made = Gtk.Button(label=label, valign=Gtk.Align.CENTER)
    set_accessible_name(made, name)
    return _calling(made, method, *given)


def icon_suffix(icon: str, name: str, method: Callable[..., object], *given: object) -> Gtk.Button:
    return _calling(icon_button(icon, name, "flat"), method, *given)


def _calling(made: Gtk.Button, method: Callable[..., object], *given: object) -> Gtk.Button:
    call = weakly(method)
    made.connect("clicked", lambda _button: call(*given))
    return made
