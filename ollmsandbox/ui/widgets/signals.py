# SPDX-License-Identifier: GPL-3.0-or-later
"""Declare signals, `__gsignals__ = signals({"grew": (str,)})`, and pass them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gi.repository import Adw, GObject, Gtk

from .weak import weak_reference, weakly

Signals = dict[str, tuple[GObject.SignalFlags, None, tuple[type, ...]]]


def signals(declared: Mapping[str, tuple[type, ...]]) -> Signals:
    return {
        name: (GObject.SignalFlags.RUN_FIRST, None, arguments)
        for name, arguments in declared.items()
    }


def forward(
    source: GObject.Object, signal: str, target: GObject.Object, name: str = "", *values: object
) -> None:
    """Have `target` emit a signal whenever `source` does, with these values and its arguments."""
    reference = weak_reference(target)

    def pass_on(_source: GObject.Object, *arguments: object) -> None:
        if (there := reference()) is not None:
            there.emit(name or signal, *values, *arguments)

    source.connect(signal, pass_on)


class SignalHandlers:
    """Handlers of objects that live longer than the one that listens to them."""

    def __init__(self, widget: Gtk.Widget | None = None) -> None:
        """Disconnect them when a widget leaves the window."""
        self._connected: list[tuple[GObject.Object, int]] = []
        if widget is not None:
            widget.connect("unrealize", lambda _widget: self.disconnect())

    def connect(self, source: GObject.Object, signal: str, method: Callable[..., object]) -> None:
        self._connected.append((source, source.connect(signal, weakly(method))))

    def disconnect(self) -> None:
        for source, handler in self._connected:
            source.disconnect(handler)
        self._connected = []


def follow_theme(handlers: SignalHandlers, method: Callable[..., object]) -> None:
    """Call a method now, and whenever the colours change that it depends on."""
    for name in ("dark", "high-contrast"):
        handlers.connect(Adw.StyleManager.get_default(), f"notify::{name}", method)
    method()
