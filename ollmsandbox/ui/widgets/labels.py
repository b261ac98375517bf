# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that is shown letter by letter: Pango would put a hyphen where it breaks a long word, and a
command or a path would read as another one.

Names for screen readers, where GTK does not find the right one by itself.

What there is no room for is told when the pointer rests on it.

Text that is shown letter by letter: Pango would put a hyphen where it breaks a long word, and a
command or a path would read as another one.
"""

from __future__ import annotations

from gi.repository import Gtk, Pango


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


def tell_when_cut_off(*widgets: Gtk.Widget) -> None:
    """Labels, or what has labels in it."""
    for widget in widgets:
        if isinstance(widget, Gtk.Label):
            widget.set_has_tooltip(True)
            widget.connect("query-tooltip", _tell)
            continue
        child = widget.get_first_child()
        while child is not None:
            tell_when_cut_off(child)
            child = child.get_next_sibling()


def is_cut_off(label: Gtk.Label) -> bool:
    return label.get_layout().is_ellipsized()


def _tell(label: Gtk.Label, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(label.get_text())
    return is_cut_off(label)


def without_hyphens(*labels: Gtk.Label) -> None:
    attributes = Pango.AttrList()
    attributes.insert(Pango.attr_insert_hyphens_new(insert_hyphens=False))
    for label in labels:
        label.set_attributes(attributes)


def set_plain(view: Gtk.TextView, text: str) -> None:
    """Instead of what was there. It does not grow: what is added at the end has no such mark."""
    buffer = view.get_buffer()
    buffer.set_text(text)
    buffer.apply_tag(buffer.create_tag(None, insert_hyphens=False), *buffer.get_bounds())
