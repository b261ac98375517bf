# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that is shown letter by letter: Pango would put a hyphen where it breaks a long word, and a
command or a path would read as another one."""

from __future__ import annotations

from gi.repository import Gtk, Pango


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
