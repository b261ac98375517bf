# SPDX-License-Identifier: GPL-3.0-or-later
"""Export a session; questions before something is stopped, lost or hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gi.repository import Gtk

from ... import N_
from ...chat.storage.export import as_json, as_markdown
from ...chat.storage.history import History
from ...errors import OllmSandboxError
from ...i18n import _, ngettext
from ..widgets.dialogs import choose_new_file, confirm

if TYPE_CHECKING:
    from .open_session import OpenSession
    from .sessions import Sessions


async def export_session(window: Gtk.Window, history: History, session_id: str) -> None:
    """Write a session as JSON to a file named *.json, and else as Markdown."""
    info = await asyncio.to_thread(history.find, session_id)
    file = await choose_new_file(window, _("Export Session"), f"{_file_name(info.title)}.md")
    if file is None:
        return

    def write() -> None:
        make = as_json if file.suffix == ".json" else as_markdown
        try:
            file.write_text(make(history, session_id), encoding="utf-8")
        except OSError as error:
            text = N_("Cannot write {file}: {why}.")
            raise OllmSandboxError(text, file=file, why=error.strerror) from error

    await asyncio.to_thread(write)


def _file_name(title: str) -> str:
    """Return the title as a name that every file system takes, and that is not hidden."""
    kept = "".join(" " if sign in '/\\:*?"<>|' or ord(sign) < 32 else sign for sign in title)
    return " ".join(kept.split()).strip(". ") or _("Session")


async def may_stop_and_close(window: Gtk.Window, sessions: Sequence[OpenSession]) -> bool:
    # Another agent goes on without the window, unless it waits for an answer.
    busy = [one for one in sessions if one.is_busy and (not one.leader or one.asking())]
    if not busy:
        return True
    if any(session.asking() for session in busy):
        body = _("The agent is waiting for your answer. Closing the window denies its request.")
    else:
        body = _("The agent is working. The changes it has made so far are kept.")
    action = _("_Stop and Close")
    return await confirm(window, _("Stop and Close?"), body, action, cancel=_("_Keep Open"))


async def may_delete(window: Gtk.Window, sessions: Sessions, session_id: str) -> bool:
    if not any(session.is_busy for session in sessions.open_ones if session.id == session_id):
        return True
    return await confirm(
        window,
        _("Stop and Delete?"),
        _("The agent is working in this session. The changes it has made so far are kept."),
        _("_Stop and Delete"),
    )


async def may_remove(window: Gtk.Window, sessions: Sessions, path: str, name: str) -> bool:
    """Ask before a project with an agent at work or with pending changes leaves the list."""
    sentences = []
    if any(session.is_busy for session in sessions.open_ones if session.project == path):
        sentences.append(_("The agent is working there and will be stopped."))
    if count := await sessions.waiting(path):
        text = ngettext("It has {} pending change.", "It has {} pending changes.", count)
        sentences.append(text.format(count))
    if not sentences:
        return True
    sentences.append(_("Nothing is lost: open the folder again to get everything back."))
    heading = _("Remove {} From the List?").format(name)
    return await confirm(window, heading, " ".join(sentences), _("_Remove"))
