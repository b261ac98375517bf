# SPDX-License-Identifier: GPL-3.0-or-later
"""Keyboard shortcuts of a widget."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk

from .weak import weakly


def add_shortcut(
    widget: Gtk.Widget,
    keys: str,
    method: Callable[..., bool | None],
    *arguments: object,
    phase: Gtk.PropagationPhase = Gtk.PropagationPhase.BUBBLE,
) -> None:
    """Call a method when the keys are pressed in a widget. It returns whether it has used them."""
    call = weakly(method)
    action = Gtk.CallbackAction.new(lambda *_args: bool(call(*arguments)))
    controller = Gtk.ShortcutController(propagation_phase=phase)
    controller.add_shortcut(Gtk.Shortcut.new(Gtk.ShortcutTrigger.parse_string(keys), action))
    widget.add_controller(controller)
