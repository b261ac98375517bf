# SPDX-License-Identifier: GPL-3.0-or-later
"""What leads out of the window: addresses that a model named, and output kept on disk."""

from __future__ import annotations

from gettext import gettext as _

from gi.repository import Gdk, Gtk

from ..permission.visible import visible_line
from .dialogs import Choice, choose
from .entries import CallEntry

_SAFE = ("http://", "https://", "mailto:")


async def open_link(window: Gtk.Window, address: str) -> None:
    """A model wrote it: the person sees where it goes before anything is opened."""
    if not address.lower().startswith(_SAFE):
        return
    answer = await choose(
        window,
        _("Open This Address?"),
        visible_line(address),
        (Choice("cancel", _("_Cancel")), Choice("open", _("_Open"), is_suggested=True)),
    )
    if answer == "open":
        Gtk.show_uri(window, address, Gdk.CURRENT_TIME)


def open_output(window: Gtk.Window, entry: CallEntry) -> None:
    """In the program that the person reads text with."""
    if entry.output_file is not None:
        Gtk.show_uri(window, entry.output_file.as_uri(), Gdk.CURRENT_TIME)
