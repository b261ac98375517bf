# SPDX-License-Identifier: GPL-3.0-or-later
"""Names for screen readers, where GTK does not find the right one by itself."""

from __future__ import annotations

from gi.repository import Gtk


def set_accessible_name(widget: Gtk.Widget, name: str) -> None:
    """Gives it a name other than the words in it, or than those of the row that it is in. Some
    versions of GTK would read these instead, others besides."""
    widget.reset_relation(Gtk.AccessibleRelation.LABELLED_BY)
    widget.update_property([Gtk.AccessibleProperty.LABEL], [name])


def name_buttons(top: Gtk.Widget) -> None:
    """GTK 4.8 tells the name of a button that has a letter twice, once with the mark of it."""
    if isinstance(top, Gtk.Button) and top.get_use_underline() and (label := top.get_label()):
        name = label.replace("__", "\0").replace("_", "").replace("\0", "_")
        set_accessible_name(top, name)
    child = top.get_first_child()
    while child is not None:
        name_buttons(child)
        child = child.get_next_sibling()
