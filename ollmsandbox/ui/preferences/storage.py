# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about the playground and earlier versions of files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from gi.repository import Adw, GLib

from ... import N_
from ...errors import OllmSandboxError
from ...files.trees import empty, measure
from ...i18n import _, ngettext
from ...paths import Paths, make_folder
from ...project.manager import ProjectManager
from ...project.settings import KEEP_DAYS, KEEP_MIB, Number
from ..chat.links import show_address
from ..widgets.dialogs import confirm
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from . import rows


class StoragePage(Adw.PreferencesPage):
    __gtype_name__ = "OllmStoragePage"

    def __init__(self, paths: Paths, manager: ProjectManager, tasks: Tasks) -> None:
        super().__init__(title=_("Storage"), icon_name="drive-harddisk-symbolic")
        # It may be a link to a larger disk.
        self._folder = Path(os.path.realpath(paths.playground))
        self._manager = manager
        self._tasks = tasks
        playground = Adw.PreferencesGroup(
            title=_("Playground"),
            description=_("A folder for experiments that every command can write to."),
        )
        self._size = rows.action(_("Size"), _("Measuring…"))
        self._size.add_suffix(rows.button(_("Open"), weakly(self._open), _("Open the playground")))
        self._clear_button = rows.button(
            _("Clear…"), weakly(self._clear), _("Clear the playground")
        )
        self._clear_button.add_css_class("destructive-action")
        self._clear_button.set_sensitive(False)
        self._size.add_suffix(self._clear_button)
        playground.add(self._size)
        self.add(playground)
        self._kept = Adw.PreferencesGroup(
            title=_("Earlier Versions"),
            description=_("Needed to undo changes. Backups of single files are kept for 7 days."),
        )
        self.add(self._kept)
        tasks.start(self._measure())
        tasks.start(self._show_kept())

    async def _measure(self) -> None:
        files, size = await asyncio.to_thread(measure, self._folder)
        is_empty = not await asyncio.to_thread(_has_entries, self._folder)
        text = ngettext("{size} in {count} file", "{size} in {count} files", files)
        size_text = text.format(size=GLib.format_size(size), count=files)
        self._size.set_subtitle(_("Empty") if is_empty else size_text)
        self._clear_button.set_sensitive(not is_empty)

    async def _show_kept(self) -> None:
        days = await asyncio.to_thread(KEEP_DAYS.read, self._manager)
        mib = await asyncio.to_thread(KEEP_MIB.read, self._manager)
        self._kept.add(rows.number(_("Keep For (Days)"), "", days, 3650, weakly(self._set_days)))
        self._kept.add(
            rows.number(_("Maximum Size (MiB)"), "", mib, 1 << 20, weakly(self._set_mib), step=256)
        )

    def _set_days(self, value: int) -> None:
        self._set(KEEP_DAYS, value)

    def _set_mib(self, value: int) -> None:
        self._set(KEEP_MIB, value)

    def _set(self, setting: Number, value: int) -> None:
        # Start now: closing the window cancels tasks.
        loop = asyncio.get_event_loop()
        writing = loop.run_in_executor(None, setting.write, self._manager, str(value))

        async def written() -> None:
            await asyncio.shield(writing)

        self._tasks.start(written())

    def _open(self) -> None:
        make_folder(self._folder)
        self._tasks.start(show_address(rows.window_of(self), self._folder.as_uri()))

    def _clear(self) -> None:
        async def clear() -> None:
            body = _("Everything in it will be deleted. You cannot undo this.")
            window = rows.window_of(self)
            if await confirm(window, _("Clear the Playground?"), body, _("_Clear")):
                await asyncio.to_thread(_empty, self._folder)
                await self._measure()

        self._tasks.start(clear())


def _has_entries(folder: Path) -> bool:
    """Return whether there is anything in a folder, even only folders; True if unreadable."""
    try:
        return bool(os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _empty(folder: Path) -> None:
    try:
        if folder.exists():
            empty(folder)
    except OSError as error:
        text = N_("Cannot clear {folder}: {why}.")
        raise OllmSandboxError(text, folder=folder, why=error.strerror) from error
