# SPDX-License-Identifier: GPL-3.0-or-later
"""Menus that are open when their window goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gi.repository import Gtk

# Seconds, in which the main loop turns.
_TURN = 0.05


async def close_popovers(window: Gtk.Window) -> None:
    """GTK does not notice that one goes with its window while it has the pointer: half a second
    later it would look for the hint of what is under the pointer there, and complain."""
    found = list(_open_ones(window))
    for popover in found:
        popover.popdown()
    if found:
        # Only when it has heard that the pointer has left does it look no more.
        window.get_display().sync()
        await asyncio.sleep(_TURN)


def _open_ones(widget: Gtk.Widget) -> Iterator[Gtk.Popover]:
    child = widget.get_first_child()
    while child is not None:
        if child.get_mapped():
            if isinstance(child, Gtk.Popover):
                yield child
            yield from _open_ones(child)
        child = child.get_next_sibling()
