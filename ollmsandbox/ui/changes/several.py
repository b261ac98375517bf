# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all files that several runs changed: one below the other, each with its header."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from gi.repository import Gtk

from ...i18n import _
from ...project.change import Recorded
from ...project.projects import ProjectManager
from ..widgets.boxes import hbox
from ..widgets.labels import decorative_icon, set_accessible_name
from ..widgets.readable import ignored_files
from ..widgets.signals import forward, signals
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from .model import RunData, load_runs
from .page import ChangePage
from .text import more_files_text

# Of more files, the list shows each one by itself.
_MOST_FILES = 40


class FilesPage(Gtk.Box):
    __gtype_name__ = "OllmFilesPage"

    __gsignals__ = signals({"back": ()})

    def __init__(
        self,
        manager: ProjectManager,
        run_ids: Sequence[str],
        tasks: Tasks,
        make_page: Callable[[RunData, Recorded], ChangePage],
    ) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL)
        self._manager = manager
        self._make_page = weakly(make_page)
        self.pages: list[ChangePage] = []
        # Not an Adw.ButtonContent: a screen reader would say its words twice.
        label = Gtk.Label(label=_("All Changes"), css_classes=["heading"])
        content = hbox(decorative_icon("go-previous-symbolic"), label, spacing=6)
        self._back = Gtk.Button(child=content, css_classes=["flat"], halign=Gtk.Align.START)
        set_accessible_name(self._back, _("All Changes"))
        self._back.set_margin_start(6)
        self._back.set_margin_top(6)
        forward(self._back, "clicked", self, "back")
        self._files = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=12)
        self._files.set_margin_bottom(12)
        self._scrolled = Gtk.ScrolledWindow(
            child=self._files, vexpand=True, hscrollbar_policy=Gtk.PolicyType.NEVER
        )
        set_accessible_name(self._scrolled, _("Changed files"))
        self.append(self._back)
        self.append(self._scrolled)
        tasks.start(self._load(tuple(run_ids)))

    def set_busy(self, is_busy: bool) -> None:
        for page in self.pages:
            page.set_busy(is_busy)

    def focus(self) -> None:
        self._back.grab_focus()

    async def look(self) -> None:
        """Read and show the current state of all files."""
        for page in self.pages:
            await page.look()

    async def _load(self, run_ids: tuple[str, ...]) -> None:
        runs = await asyncio.to_thread(partial(load_runs, self._manager, run_ids))
        files = [(run, item) for run in runs for item in run.items]
        for run, item in files[:_MOST_FILES]:
            page = self._make_page(run, item)
            if page is None:  # the widget that makes them is gone
                return
            self.pages.append(page)
            self._files.append(page)
            # One after the other, so that the window is drawn meanwhile.
            await asyncio.sleep(0)
        for text in _last_lines(runs, len(files) - _MOST_FILES):
            label = Gtk.Label(
                label=text, xalign=0, margin_start=12, wrap=True, css_classes=["dim-label"]
            )
            self._files.append(label)


def _last_lines(runs: Sequence[RunData], left: int) -> list[str]:
    ignored = {(item.change.root, item.change.path) for run in runs for item in run.ignored}
    lines = [more_files_text(left)] if left > 0 else []
    return [*lines, ignored_files(len(ignored))] if ignored else lines
