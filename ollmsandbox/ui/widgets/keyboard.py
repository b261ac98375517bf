# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a widget, and rows that are a single stop of the Tab key."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Adw, Gtk

from .weak import weakly

TAB_DIRECTIONS = (Gtk.DirectionType.TAB_FORWARD, Gtk.DirectionType.TAB_BACKWARD)


class TabStop(Adw.Bin):
    """A row that the Tab key enters once; the arrow keys move inside it."""

    # For a question, whose answers are worth a stop each, and for a command that waits for input.
    has_many_stops: Callable[[], bool] = staticmethod(lambda: False)

    def do_focus(self, direction: Gtk.DirectionType) -> bool:
        child = self.get_child()
        if child is None:
            return False
        if direction in TAB_DIRECTIONS and not self.has_many_stops():
            if self.get_focus_child() is not None:
                return False
            # From below, too, it begins with what comes first.
            direction = Gtk.DirectionType.TAB_FORWARD
        return child.child_focus(direction)


def add_shortcut(
    widget: Gtk.Widget,
    keys: str,
    method: Callable[..., bool | None],
    *arguments: object,
    phase: Gtk.PropagationPhase = Gtk.PropagationPhase.BUBBLE,
) -> None:
    """Call a method when the keys are pressed in a widget. If it returns False, they go on."""
    call = weakly(method)
    action = Gtk.CallbackAction.new(lambda *_args: call(*arguments) is not False)
    controller = Gtk.ShortcutController(propagation_phase=phase)
    controller.add_shortcut(Gtk.Shortcut.new(Gtk.ShortcutTrigger.parse_string(keys), action))
    widget.add_controller(controller)


def on_key(
    widget: Gtk.Widget,
    method: Callable[..., bool],
    *,
    phase: Gtk.PropagationPhase = Gtk.PropagationPhase.BUBBLE,
) -> None:
    """Call a method for each key that is pressed in a widget. It returns True to keep it."""
    keys = Gtk.EventControllerKey(propagation_phase=phase)
    keys.connect("key-pressed", weakly(method))
    widget.add_controller(keys)
