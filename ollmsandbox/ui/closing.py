# SPDX-License-Identifier: GPL-3.0-or-later
"""What would stop something that runs, or hide something that waits, is a question first."""

from __future__ import annotations

from collections.abc import Sequence
from gettext import gettext as _
from gettext import ngettext
from typing import TYPE_CHECKING

from gi.repository import Gtk

from .dialogs import Choice, choose

if TYPE_CHECKING:
    from .open_session import OpenSession
    from .sessions import Sessions


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


async def may_leave_work(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Close Before That Is Over?"),
        _(
            "Changes are being made in the project. They are finished in any case, but what came "
            "of them is told only here."
        ),
        (Choice("cancel", _("_Keep Open")), Choice("close", _("_Close"))),
    )
    return answer == "close"


async def may_lose_draft(window: Gtk.Window, why: str) -> bool:
    answer = await choose(
        window,
        _("Close Without the Draft?"),
        _("What you typed cannot be kept: {why}").format(why=why),
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Close"), is_destructive=True),
        ),
    )
    return answer == "close"


async def may_lose_words(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Close Without the Last Messages?"),
        _(
            "What was said last cannot be written just now, and would be lost. Keep the window "
            "open, and close it when the disk has room and no other program holds the database."
        ),
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Close"), is_destructive=True),
        ),
    )
    return answer == "close"


async def may_discard_all(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Discard All That Waits?"),
        _("The project stays as it is. What was discarded can be applied file by file."),
        (
            Choice("cancel", _("_Cancel")),
            Choice("discard", _("_Discard"), is_destructive=True),
        ),
    )
    return answer == "discard"


async def may_delete(window: Gtk.Window, sessions: Sessions, session_id: str) -> bool:
    if not any(session.is_busy for session in sessions.open_ones if session.id == session_id):
        return True
    answer = await choose(
        window,
        _("Stop and Delete?"),
        _("The agent is at work in this session. Deleting it stops it; what it changed is kept."),
        (
            Choice("cancel", _("_Cancel")),
            Choice("delete", _("_Stop and Delete"), is_destructive=True),
        ),
    )
    return answer == "delete"


async def may_remove(window: Gtk.Window, sessions: Sessions, path: str, name: str) -> bool:
    """A project from the list: it comes back as it was, but it might be forgotten until then."""
    sentences = []
    if any(session.is_busy for session in sessions.open_ones if session.project == path):
        sentences.append(_("The agent is at work there, and is stopped."))
    if count := await sessions.waiting(path):
        text = ngettext("{} change waits there.", "{} changes wait there.", count)
        sentences.append(text.format(count))
    if not sentences:
        return True
    sentences.append(_("Nothing is lost: open its folder again, and all of it is back."))
    answer = await choose(
        window,
        _("Remove {} From the List?").format(name),
        " ".join(sentences),
        (
            Choice("cancel", _("_Cancel")),
            Choice("remove", _("_Remove"), is_destructive=True),
        ),
    )
    return answer == "remove"
