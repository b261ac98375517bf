# SPDX-License-Identifier: GPL-3.0-or-later
"""A popover with a file's earlier versions, to restore one."""

from __future__ import annotations

import asyncio

from gi.repository import GLib, Gtk

from ...i18n import _
from ...project.change import Recorded
from ...project.projects import ProjectManager
from ...project.versions import EarlierVersion, earlier_versions
from ...project.write_file import restore
from ..widgets.boxes import hbox, scrolled_list
from ..widgets.labels import set_accessible_name
from ..widgets.readable import day_and_time
from ..widgets.signals import signals
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from ..widgets.work_bar import WorkBar
from .model import RunData
from .text import note_text


class EarlierVersions(Gtk.Popover):
    __gsignals__ = signals({"restored": (), "counted": (int,)})

    def __init__(
        self,
        manager: ProjectManager,
        run: RunData,
        recorded: Recorded,
        tasks: Tasks,
        progress: WorkBar,
    ) -> None:
        super().__init__()
        self._manager = manager
        self._run = run
        self._path = f"{recorded.change.root}/{recorded.change.path}"
        self._tasks = tasks
        self._progress = progress
        self._list = Gtk.ListBox(selection_mode=Gtk.SelectionMode.NONE)
        self._list.add_css_class("navigation-sidebar")
        scrolled = scrolled_list(self._list, 320)
        # Either of them can have the focus.
        for widget in (self._list, scrolled):
            widget.update_property([Gtk.AccessibleProperty.LABEL], [_("Earlier versions")])
        self.set_child(scrolled)
        self.set_busy(progress.is_working)

    def set_busy(self, is_busy: bool) -> None:
        self._list.set_sensitive(not is_busy)

    @as_task
    async def refresh(self) -> None:
        found = await asyncio.to_thread(self._find)
        while (row := self._list.get_row_at_index(0)) is not None:
            self._list.remove(row)
        for earlier in found:
            self._list.append(self._row(earlier))
        self.emit("counted", len(found))

    def _find(self) -> list[EarlierVersion]:
        run = self._manager.run(self._run.id)
        return earlier_versions(self._manager, run.project, self._path)

    def _row(self, earlier: EarlierVersion) -> Gtk.Widget:
        # Of a backup, only the day is known.
        until = day_and_time(earlier.until, with_time=bool(earlier.run_id))
        text = _("Until {time}, {size}").format(
            time=until, size=GLib.format_size(earlier.version.size)
        )
        label = Gtk.Label(label=text, xalign=0, hexpand=True)
        button = Gtk.Button(label=_("Restore"))
        set_accessible_name(button, _("Restore: {}").format(text))
        button.connect("clicked", weakly(self._on_restore), earlier)
        box = hbox(label, button, spacing=12)
        row = Gtk.ListBoxRow(child=box, activatable=False, focusable=False)
        row.update_property([Gtk.AccessibleProperty.LABEL], [text])
        return row

    def _on_restore(self, _button: Gtk.Button, earlier: EarlierVersion) -> None:
        self.popdown()
        if self._progress.is_working:
            return

        at_work = self._progress.working()

        def work() -> str:
            project = self._manager.run(self._run.id).project.path
            report = restore(self._manager.paths, project, self._path, earlier.version)
            notes = [item.note for item in report.changes if item.note]
            return note_text(notes[0]) if notes else ""

        async def do() -> None:
            with at_work:
                problem = await asyncio.to_thread(work)
            self._tasks.tell(problem or _("Restored. You can undo this."))
            self.emit("restored")
            await self.refresh()

        self._tasks.start(do()).add_done_callback(lambda _task: at_work.close())
