# SPDX-License-Identifier: GPL-3.0-or-later
"""Buttons for actions that can be taken back.

The button that was pressed stays where it is, disabled, and the way back appears beside it: so a
second click at the same place never does the opposite.
"""

from __future__ import annotations

from typing import NamedTuple

from gi.repository import Gtk

from .boxes import vbox
from .labels import set_accessible_name
from .work_bar import disable_unless_focused


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
