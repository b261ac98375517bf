# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders outside projects that commands may change, with a button to remove each of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from gi.repository import Adw, Gtk

from ...chat.sessions import SessionFactory
from ...database.tables import Project
from ...engine.roots import open_to_commands
from ...i18n import _
from ...paths import is_missing
from ...project.projects import ProjectManager
from ...text.visible import visible_line
from ..widgets.dialogs import choose_folder
from ..widgets.signals import signals
from ..widgets.tasks import Tasks, as_task
from . import rows


@dataclass(frozen=True)
class _Opened:
    project: Project
    folder: str
    is_missing: bool


class FoldersGroup(rows.RowGroup):
    """The opened folders of one project, or of all of them."""

    # A folder was opened or removed.
    __gsignals__ = signals({"changed": ()})

    def __init__(self, manager: ProjectManager, tasks: Tasks, project: str | None = None) -> None:
        super().__init__(
            _("Opened Folders"), _("Folders outside a project that its commands can change.")
        )
        self._manager = manager
        self._tasks = tasks
        self._project = project
        tasks.start(self.refresh())

    async def refresh(self) -> None:
        found = await asyncio.to_thread(self._find)
        nothing = rows.action(_("No opened folders"))
        self.show_rows([self._row(one) for one in found] or [nothing])

    @as_task
    async def open_to_commands(self, environ: Mapping[str, str], project: str, folder: str) -> None:
        def approve() -> None:
            open_to_commands(self._manager, environ, self._manager.add_project(project), folder)

        await asyncio.to_thread(approve)
        await self._has_changed()

    def _find(self) -> list[_Opened]:
        return [
            _Opened(project, folder, is_missing(folder))
            for project in self._manager.projects(with_removed=True)
            if self._project in (None, project.path)
            for folder in self._manager.approved_roots(project)
        ]

    def _row(self, opened: _Opened) -> Gtk.Widget:
        notes = [] if self._project else [visible_line(opened.project.name)]
        if opened.is_missing:
            notes.append(_("Folder not found"))
        row = rows.action(visible_line(opened.folder), " · ".join(notes))
        name = _("Remove {}").format(visible_line(os.path.basename(opened.folder)))
        row.add_suffix(rows.icon_suffix("user-trash-symbolic", name, self._remove, opened))
        return row

    @as_task
    async def _remove(self, opened: _Opened) -> None:
        await asyncio.to_thread(self._manager.revoke, opened.project, opened.folder)
        await self._has_changed()

    async def _has_changed(self) -> None:
        await self.refresh()
        self.emit("changed")


class FoldersWindow(rows.SettingsWindow):
    def __init__(self, parent: Gtk.Window, factory: SessionFactory, project: str) -> None:
        super().__init__(parent)
        self.set_default_size(500, 360)
        name = visible_line(os.path.basename(project))
        self.set_title(name)
        self._environ = factory.environ
        self._project = project
        self.group = FoldersGroup(factory.manager, self._tasks, project)
        self.group.set_header_suffix(rows.button(_("Open…"), _("Open a Folder"), self._open))
        page = Adw.PreferencesPage(title=name, icon_name="folder-symbolic")
        page.add(self.group)
        self.add(page)

    @as_task
    async def _open(self) -> None:
        folder = await choose_folder(self, _("Open a Folder to Commands"))
        if folder is not None:
            self.group.open_to_commands(self._environ, self._project, folder)
