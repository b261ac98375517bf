# SPDX-License-Identifier: GPL-3.0-or-later
"""The window that lists the keyboard shortcuts."""

from __future__ import annotations

from gi.repository import Gtk

from .template import template


def show_shortcuts(window: Gtk.ApplicationWindow) -> None:
    overlay = window.get_help_overlay()
    if overlay is None:
        overlay = shortcuts()
        # Only there does it find the keys of the window's actions.
        window.set_help_overlay(overlay)
    overlay.present()


def shortcuts() -> Gtk.ShortcutsWindow:
    window = Gtk.Builder.new_from_file(template("shortcuts")).get_object("shortcuts")
    assert isinstance(window, Gtk.ShortcutsWindow)
    return window
