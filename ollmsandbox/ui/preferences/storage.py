# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about the playground, caches and earlier versions of files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from gi.repository import Adw, GLib, Gtk

from ... import N_
from ...errors import OllmSandboxError
from ...files.trees import empty, measure
from ...i18n import _, ngettext
from ...paths import Paths, make_folder
from ...project.projects import ProjectManager
from ...project.settings import KEEP_CACHES_DAYS, KEEP_CACHES_MIB, KEEP_DAYS, KEEP_MIB, Number
from ...sandbox.caches import clear_caches, measure_caches
from ..chat.links import show_address
from ..widgets.dialogs import confirm
from ..widgets.focus import window_around
from ..widgets.readable import number
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from . import rows


class StoragePage(Adw.PreferencesPage):
    def __init__(self, manager: ProjectManager, tasks: Tasks) -> None:
        super().__init__(title=_("Storage"), icon_name="drive-harddisk-symbolic")
        # It may be a link to a larger disk.
        self._folder = Path(os.path.realpath(manager.paths.playground))
        self._manager = manager
        self._tasks = tasks
        self._size, self._clear_button = self._add_clearable(
            _("Playground"),
            _("A folder for experiments that every command can write to."),
            rows.button(_("Clear…"), _("Clear the playground"), self._clear),
            rows.button(_("Open"), _("Open the playground"), self._open),
        )
        self._caches_size, self._clear_caches_button = self._add_clearable(
            _("Caches"),
            _("What programs in the sandbox have cached. Each project has its own."),
            rows.button(_("Clear…"), _("Clear the caches"), self._clear_caches),
        )
        self._advanced = Adw.ExpanderRow(
            title=_("Advanced"),
            subtitle=_("How much is kept to undo changes and in caches, and how long"),
        )
        advanced = Adw.PreferencesGroup()
        advanced.add(self._advanced)
        self.add(advanced)
        tasks.start(self._measure())
        tasks.start(self._measure_caches())
        tasks.start(self._show_kept())

    def _add_clearable(
        self, title: str, description: str, clear: Gtk.Button, *others: Gtk.Button
    ) -> tuple[Adw.ActionRow, Gtk.Button]:
        """Add a group with the size of something that can be cleared. Return its row and button."""
        size = rows.action(_("Size"), _("Measuring…"))
        clear.set_sensitive(False)
        for button in (*others, clear):
            size.add_suffix(button)
        group = Adw.PreferencesGroup(title=title, description=description)
        group.add(size)
        self.add(group)
        return size, clear

    async def _measure(self) -> None:
        files, size = await asyncio.to_thread(measure, self._folder, unlock=True)
        is_empty = not await asyncio.to_thread(_has_entries, self._folder)
        self._size.set_subtitle(_("Empty") if is_empty else _amount(files, size))
        self._clear_button.set_sensitive(not is_empty)

    async def _measure_caches(self) -> None:
        files, size = await asyncio.to_thread(measure_caches, self._manager.paths)
        self._caches_size.set_subtitle(_amount(files, size) if files else _("Empty"))
        self._clear_caches_button.set_sensitive(bool(files))

    async def _show_kept(self) -> None:
        for title, setting, most, step in (
            (_("Keep Earlier Versions (Days)"), KEEP_DAYS, 3650, 1),
            (_("Earlier Versions (MiB)"), KEEP_MIB, 1 << 20, 256),
            (_("Keep Unused Caches (Days)"), KEEP_CACHES_DAYS, 3650, 1),
            (_("Caches (MiB)"), KEEP_CACHES_MIB, 1 << 24, 1024),
        ):
            value = await asyncio.to_thread(setting.read, self._manager)
            row, spin = rows.spin_button(title, most, step)
            spin.set_value(value)
            spin.connect("value-changed", weakly(self._on_value), setting)
            self._advanced.add_row(row)

    def _on_value(self, spin: Gtk.SpinButton, setting: Number) -> None:
        # Start now: closing the window cancels tasks.
        loop, value = asyncio.get_event_loop(), str(spin.get_value_as_int())
        writing = loop.run_in_executor(None, setting.write, self._manager, value)

        async def written() -> None:
            await asyncio.shield(writing)

        self._tasks.start(written())

    def _open(self) -> None:
        make_folder(self._folder)
        self._tasks.start(show_address(window_around(self), self._folder.as_uri()))

    @as_task
    async def _clear(self) -> None:
        body = _("Everything in it will be deleted. You cannot undo this.")
        window = window_around(self)
        if await confirm(window, _("Clear the Playground?"), body, _("_Clear")):
            await asyncio.to_thread(_empty, self._folder)
            await self._measure()

    @as_task
    async def _clear_caches(self) -> None:
        body = _("Commands will have to download again what they need.")
        if await confirm(window_around(self), _("Clear the Caches?"), body, _("_Clear")):
            if not await asyncio.to_thread(_clear_all_caches, self._manager.paths):
                self._tasks.tell(_("A command is running. What it uses was kept."))
            await self._measure_caches()


def _amount(files: int, size: int) -> str:
    text = ngettext("{size} in {count} file", "{size} in {count} files", files)
    return text.format(size=GLib.format_size(size), count=number(files))


def _clear_all_caches(paths: Paths) -> bool:
    try:
        return clear_caches(paths)
    except OSError as error:
        text = N_("Cannot clear the caches: {why}.")
        raise OllmSandboxError(text, why=error.strerror) from error


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
