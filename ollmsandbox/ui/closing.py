# SPDX-License-Identifier: GPL-3.0-or-later
"""Closing the window while something runs or asks is a question."""

from __future__ import annotations

from collections.abc import Sequence
from gettext import gettext as _

from gi.repository import Gtk

from .dialogs import Choice, choose
from .open_session import OpenSession


async def may_close(window: Gtk.Window, sessions: Sequence[OpenSession]) -> bool:
    busy = [session for session in sessions if session.is_busy]
    if not busy:
        return True
    asking = any(session.asking() for session in busy)
    body = (
        _("The agent waits for an answer. Closing the window means Deny, and stops it.")
        if asking
        else _("The agent is at work. Closing the window stops it; what it changed is kept.")
    )
    answer = await choose(
        window,
        _("Stop and Close?"),
        body,
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Stop and Close"), is_destructive=True),
        ),
    )
    return answer == "close"
