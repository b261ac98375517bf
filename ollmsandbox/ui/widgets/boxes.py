# SPDX-License-Identifier: GPL-3.0-or-later
"""Short ways to make what most widgets consist of: boxes and buttons with an icon."""

from __future__ import annotations

from gi.repository import Gtk

from .labels import add_classes, name_buttons, set_accessible_name
from .signals import forward


def hbox(*children: Gtk.Widget, **properties: object) -> Gtk.Box:
    box = Gtk.Box()
    box.set_properties(**properties)
    for child in children:
        box.append(child)
    return box


def vbox(*children: Gtk.Widget, **properties: object) -> Gtk.Box:
    return hbox(*children, orientation=Gtk.Orientation.VERTICAL, **properties)


def icon_button(icon: str, name: str, *styles: str) -> Gtk.Button:
    """Return a button with an icon; `name` is its tooltip, and what a screen reader says."""
    button = Gtk.Button(icon_name=icon, tooltip_text=name, valign=Gtk.Align.CENTER)
    add_classes(button, *styles)
    set_accessible_name(button, name)
    return button


def text_button(source: Gtk.Widget, label: str, name: str) -> Gtk.Button:
    """Return a button that has `source` emit a signal, or carries out an action of the window."""
    button = Gtk.Button(label=label, use_underline=True, valign=Gtk.Align.CENTER)
    name_buttons(button)
    if name.startswith("win."):
        button.set_action_name(name)
    else:
        forward(button, "clicked", source, name)
    return button


def set_margins(widget: Gtk.Widget, pixels: int) -> None:
    widget.set_margin_top(pixels)
    widget.set_margin_bottom(pixels)
    widget.set_margin_start(pixels)
    widget.set_margin_end(pixels)


def scrolled_list(child: Gtk.Widget, highest: int) -> Gtk.ScrolledWindow:
    """Return what scrolls a list or a text, and is as large as that needs up to a height."""
    return Gtk.ScrolledWindow(
        child=child,
        hscrollbar_policy=Gtk.PolicyType.NEVER,
        propagate_natural_height=True,
        propagate_natural_width=True,
        max_content_height=highest,
    )
