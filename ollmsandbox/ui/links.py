# SPDX-License-Identifier: GPL-3.0-or-later
"""What leads out of the window: addresses that a model named, and output kept on disk."""

from __future__ import annotations

import asyncio
from gettext import gettext as _

from gi.repository import Gdk, Gtk

from ..errors import OllmSandboxError
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


async def open_output(window: Gtk.Window, entry: CallEntry) -> None:
    """In the program that the person reads text with."""
    try:
        file = await asyncio.to_thread(entry.readable_file)
    except OSError as error:
        raise OllmSandboxError(
            _("The output cannot be read: {}.").format(error.strerror)
        ) from error
    if file is not None:
        Gtk.show_uri(window, file.as_uri(), Gdk.CURRENT_TIME)
