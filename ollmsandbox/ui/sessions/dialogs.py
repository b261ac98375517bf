# SPDX-License-Identifier: GPL-3.0-or-later
"""Export a session."""

from __future__ import annotations

import asyncio

from gi.repository import Gtk

from ... import N_
from ...chat.storage.export import as_json, as_markdown
from ...chat.storage.history import History
from ...errors import OllmSandboxError
from ...i18n import _
from ..widgets.dialogs import choose_new_file


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
