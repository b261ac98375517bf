# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions of a widget, and buttons for those that can be taken back.

The button that was pressed stays where it is, disabled, and the way back appears beside it: so a
second click at the same place never does the opposite.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from gi.repository import Gio, GLib, Gtk

from .boxes import vbox
from .labels import set_accessible_name
from .weak import weakly
from .work_bar import disable_unless_focused


def add_action(
    group: Gio.ActionMap, name: str, method: Callable[..., object], takes: str = ""
) -> None:
    """Call a method when an action is activated: with an id if it takes a string ("s"), with a path
    if it takes bytes ("ay")."""
    call = weakly(method)

    def activated(_action: Gio.SimpleAction, target: GLib.Variant | None) -> None:
        if target is None:
            call()
        else:
            is_path = takes == "ay"
            call(os.fsdecode(target.get_bytestring()) if is_path else target.get_string())

    action = Gio.SimpleAction.new(name, GLib.VariantType.new(takes) if takes else None)
    action.connect("activate", activated)
    group.add_action(action)


class Action(NamedTuple):
    # Without a name, it is only a text.
    name: str
    label: str
    # It was done already: its button is shown, and cannot be pressed.
    is_done: bool = False
    # A second line of the button.
    caption: str = ""


class ActionButton(Gtk.Button):
    def __init__(self, action: Action, *, is_busy: bool = False) -> None:
        super().__init__()
        self.action = action
        if action.caption:
            caption = Gtk.Label(label=action.caption, css_classes=["caption", "button-caption"])
            self.set_child(vbox(Gtk.Label(label=action.label), caption))
            set_accessible_name(
                self, f"{action.label}. {action.caption}".rstrip(". \N{NO-BREAK SPACE}")
            )
        else:
            self.set_label(action.label)
        self.set_busy(is_busy)

    def set_busy(self, is_busy: bool) -> None:
        if self.action.is_done:
            self.set_sensitive(False)
        else:
            disable_unless_focused(self, is_busy)
