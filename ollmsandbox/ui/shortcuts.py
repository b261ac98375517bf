# SPDX-License-Identifier: GPL-3.0-or-later
"""The window that lists the keyboard shortcuts."""

from __future__ import annotations

from gi.repository import Gtk

from .template import template


def shortcuts() -> Gtk.ShortcutsWindow:
    window = Gtk.Builder.new_from_file(template("shortcuts")).get_object("shortcuts")
    assert isinstance(window, Gtk.ShortcutsWindow)
    return window
