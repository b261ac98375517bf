# SPDX-License-Identifier: GPL-3.0-or-later
"""Preferences: the Alpine system, and which projects use it.

How the window speaks of the Alpine system.

Preferences: the Alpine system, and which projects use it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from gettext import gettext as _
from gettext import ngettext
from pathlib import Path

from gi.repository import Adw, GLib, Gtk

from ...errors import OllmSandboxError
from ...paths import Paths
from ...project.manager import ProjectManager
from ...project.system import System, set_system, system_of
from ...sandbox.rootfs.install import InstallProgress, Step
from ...sandbox.rootfs.packages import Tier
from ...sandbox.rootfs.rootfs import Rootfs, Status
from ...sandbox.rootfs.settings import load_rootfs_settings, save_rootfs_settings
from ...text.ansi import harmless
from ...text.visible import visible_line
from ..i18n import spoken
from ..widgets.dialogs import Choice, choose, choose_file
from ..widgets.signals import signals
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from . import rows


def tier_words(tier: Tier) -> str:
    title = (
        _("Base only"),
        _("With Bash and Python"),
        _("With Git, Node and others besides"),
    )[tier.number]
    return _("{title}, about {size}").format(title=title, size=GLib.format_size(tier.size))


def step_words(step: Step) -> str:
    return {
        Step.WAIT: _("Waiting for another program that installs it"),
        Step.LOOK: _("Looking for the newest version"),
        Step.FETCH: _("Fetching"),
        Step.UNPACK: _("Unpacking"),
        Step.PACKAGES: _("Installing packages"),
        Step.FINISH: _("Putting it into place"),
        Step.DONE: _("Done"),
    }[step]


def status_words(status: Status) -> str:
    if status.installed is None:
        return _("Not installed")
    words = [status.installed.title, GLib.format_size(status.size)]
    if status.others:
        count = len(status.others)
        words.append(ngettext("{} older one still in use", "{} older ones still in use", count))
        words[-1] = words[-1].format(count)
    return ", ".join(words)


# Seconds between two rows, in which a frame is drawn.
_PAUSE = 0.01


class SystemPage(Adw.PreferencesPage):
    __gtype_name__ = "OllmSystemPage"

    # A project's commands run in another system from now on.
    __gsignals__ = signals({"changed": ()})

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        manager: ProjectManager,
        tasks: Tasks,
    ) -> None:
        super().__init__(title=_("System"), icon_name="computer-symbolic")
        self._paths = paths
        self._environ = environ
        self._manager = manager
        self._tasks = tasks
        self._work: asyncio.Task[object] | None = None
        # The handler that asks before the window goes.
        self._closing = 0
        self._project_rows: list[Gtk.Widget] = []
        # What is to be listed as soon as somebody looks; and how often that was begun.
        self._to_list: tuple[list[tuple[str, str, System]], bool] | None = None
        self._listings = 0
        self._alpine = Adw.PreferencesGroup(
            title=_("Alpine"),
            description=_(
                "A small, known system in which commands run the same on every distribution. "
                "Your own programs and files are not in it, only the project."
            ),
        )
        self._status = rows.action(_("Status"), _("Looking…"))
        self._trouble = rows.action(_("Installation"))
        mark = Gtk.Image.new_from_icon_name("dialog-warning-symbolic")
        mark.add_css_class("warning")
        self._trouble.add_prefix(mark)
        self._tier = Adw.ComboRow(title=_("Programs in It"), use_subtitle=True)
        self._tier.set_model(Gtk.StringList.new([tier_words(tier) for tier in Rootfs.tiers]))
        self._tier.set_selected(len(Rootfs.tiers) - 1)
        self._install = rows.button(_("Install"), weakly(self._on_install), _("Install Alpine"))
        self._from_file = rows.icon_button(
            "document-open-symbolic", _("Install From a File…"), weakly(self._on_from_file)
        )
        self._cancel = rows.button(
            _("Cancel"), weakly(self._on_cancel), _("Cancel the installation")
        )
        self._remove = rows.icon_button(
            "user-trash-symbolic", _("Remove Alpine"), weakly(self._on_remove)
        )
        for button in (self._install, self._from_file, self._cancel, self._remove):
            self._status.add_suffix(button)
        self._progress = Gtk.ProgressBar(
            margin_start=12, margin_end=12, margin_top=12, margin_bottom=12
        )
        self._progress.update_property([Gtk.AccessibleProperty.LABEL], [_("Installation")])
        self._under_way = Adw.PreferencesRow(
            title=_("Installation"), child=self._progress, activatable=False
        )
        self._under_way.update_property([Gtk.AccessibleProperty.LABEL], [_("Installation")])
        self._sources = {
            name: Adw.EntryRow(title=title, show_apply_button=True)
            for name, title in (
                ("mirror", _("Mirror")),
                ("version", _("Version (the Newest if Empty)")),
            )
        }
        for row in (self._status, self._trouble, self._under_way, self._tier):
            self._alpine.add(row)
        for name, entry in self._sources.items():
            entry.connect("apply", weakly(self._on_source), name)
            self._alpine.add(entry)
        self.add(self._alpine)
        self._projects = Adw.PreferencesGroup(title=_("Projects"))
        self.add(self._projects)
        self.connect("map", weakly(self._on_map))
        self._trouble.set_visible(False)
        self._show_busy(busy=False, is_installed=False)
        tasks.start(self._begin_with_settings())

    async def _begin_with_settings(self) -> None:
        await self.refresh()
        try:
            settings = await asyncio.to_thread(load_rootfs_settings, self._paths.config)
        except OllmSandboxError:
            return  # it is shown already, and nothing can be changed before it is mended
        self._tier.set_selected(settings.tier)
        self._sources["mirror"].set_text(settings.mirror)
        self._sources["version"].set_text(settings.version)

    async def refresh(self, trouble: OllmSandboxError | None = None) -> None:
        """`trouble`: what went wrong just now. It stays until something else is done."""
        status: Status | None = None
        try:
            status = await asyncio.to_thread(lambda: self._rootfs().status())
        except OllmSandboxError as error:
            trouble = trouble or error
        installed = status is not None and status.installed is not None
        words = status_words(status) if status else _("Unknown")
        self._status.set_subtitle(GLib.markup_escape_text(words))
        if trouble is not None:
            self._trouble.set_title(GLib.markup_escape_text(spoken(trouble.message)))
            self._trouble.set_subtitle(GLib.markup_escape_text(spoken(trouble.remedy)))
        self._trouble.set_visible(trouble is not None)
        self._show_busy(busy=self._work is not None, is_installed=installed)
        await self._show_projects(can_use=installed)

    def _rootfs(self) -> Rootfs:
        """Anew each time: its settings are in a file that people may edit."""
        return Rootfs(self._paths, self._environ)

    def _show_busy(self, *, busy: bool, is_installed: bool) -> None:
        self._install.set_visible(not busy)
        self._install.set_label(_("Upgrade") if is_installed else _("Install"))
        self._from_file.set_visible(not busy)
        self._remove.set_visible(not busy and is_installed)
        self._cancel.set_visible(busy)
        self._under_way.set_visible(busy)
        if busy:
            self._trouble.set_visible(False)
        for row in (self._tier, *self._sources.values()):
            row.set_sensitive(not busy)

    def _on_source(self, entry: Adw.EntryRow, name: str) -> None:
        async def keep() -> None:
            def change() -> None:
                found = load_rootfs_settings(self._paths.config)
                changed = found.with_value(name, entry.get_text().strip())
                save_rootfs_settings(self._paths.config, changed)

            try:
                await asyncio.to_thread(change)
            except OllmSandboxError as error:
                entry.add_css_class("error")
                await self.refresh(error)
            else:
                entry.remove_css_class("error")
                await self.refresh()

        self._tasks.start(keep())

    # --- installing ------------------------------------------------------------------------------

    def _on_install(self) -> None:
        self._begin(None)

    def _on_from_file(self) -> None:
        async def ask() -> None:
            file = await choose_file(rows.window_of(self), _("Alpine's Mini Root Filesystem"))
            if file is not None:
                self._begin(file)

        self._tasks.start(ask())

    def _begin(self, tarball: Path | None) -> None:
        if self._work is None:
            self._work = self._tasks.start(self._prepare(tarball))
            if not self._closing:
                window = rows.window_of(self)
                self._closing = window.connect("close-request", weakly(self._on_close))

    def _on_close(self, window: Gtk.Window) -> bool:
        """Whether it stays: what is under way ends with the window."""
        if self._work is None:
            return False

        async def ask() -> None:
            answer = await choose(
                window,
                _("Cancel the Installation?"),
                _("It goes on only while this window is open. What was fetched is kept."),
                (
                    Choice("keep", _("_Keep Open")),
                    Choice("close", _("_Close"), is_destructive=True),
                ),
            )
            if answer == "close":
                self._on_cancel()
                window.destroy()

        self._tasks.start(ask())
        return True

    async def _prepare(self, tarball: Path | None) -> None:
        self._show_busy(busy=True, is_installed=False)
        self._progress.set_fraction(0)
        tier = Rootfs.tiers[self._tier.get_selected()].number
        trouble: OllmSandboxError | None = None
        try:
            done = await self._rootfs().prepare(self._show, tier=tier, tarball=tarball)
            for notice in done.notices:
                self._tasks.tell(notice)
            what = _("{} is installed.") if done.is_new else _("{} is there already.")
            self._tasks.tell(what.format(done.installed.title))
        except OllmSandboxError as error:
            trouble = error
        finally:
            self._work = None
            self._tasks.start(self.refresh(trouble))

    def _show(self, progress: InstallProgress) -> None:
        words = step_words(progress.step)
        if progress.text:
            words = f"{words}: {harmless(progress.text)}"
        self._status.set_subtitle(GLib.markup_escape_text(words))
        if progress.step in (Step.FETCH, Step.UNPACK) and progress.total:
            self._progress.set_fraction(min(1.0, progress.done / progress.total))
        else:
            self._progress.pulse()

    def _on_cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _on_remove(self) -> None:
        async def remove() -> None:
            answer = await choose(
                rows.window_of(self),
                _("Remove Alpine?"),
                _("Projects that use it cannot run commands until it is installed again."),
                (
                    Choice("cancel", _("_Cancel")),
                    Choice("remove", _("_Remove"), is_destructive=True),
                ),
            )
            if answer == "remove" and not await self._rootfs().remove():
                raise OllmSandboxError(
                    _("A command still runs in it, so it was not removed."),
                    _("Wait until that has ended."),
                )
            await self.refresh()

        self._tasks.start(remove())

    # --- projects --------------------------------------------------------------------------------

    async def _show_projects(self, *, can_use: bool) -> None:
        def look() -> list[tuple[str, str, System]]:
            return [
                (project.path, project.name, system_of(self._paths, project.path))
                for project in self._manager.projects()
            ]

        found = await asyncio.to_thread(look)
        self._projects.set_description(
            _("In which system the commands of each run.")
            if can_use
            else _("They use this machine's programs. Once Alpine is installed, it can be chosen.")
        )
        self._to_list = found, can_use
        if self.get_mapped():
            await self._list_projects()

    def _on_map(self, _page: Gtk.Widget) -> None:
        self._tasks.start(self._list_projects())

    async def _list_projects(self) -> None:
        """One by one: each row takes longer than a frame. The newest list counts."""
        if self._to_list is None:
            return
        (found, can_use), self._to_list = self._to_list, None
        self._listings += 1
        number = self._listings
        for row in self._project_rows:
            self._projects.remove(row)
        self._project_rows = []
        if not found:
            self._add_project_row(rows.action(_("No projects yet.")))
        for one in found:
            self._add_project_row(self._project_row(*one, can_use=can_use))
            await asyncio.sleep(_PAUSE)
            if number != self._listings:
                return

    def _add_project_row(self, row: Gtk.Widget) -> None:
        self._project_rows.append(row)
        self._projects.add(row)

    def _project_row(self, path: str, name: str, system: System, *, can_use: bool) -> Gtk.Widget:
        row = Adw.ComboRow()
        # Before it has a name, which may look like markup.
        row.set_use_markup(False)
        row.set_title(name)
        row.set_subtitle(visible_line(os.path.dirname(path)))
        # Or a long one would leave no room for what is chosen.
        row.set_title_lines(1)
        row.set_subtitle_lines(1)
        row.set_tooltip_text(visible_line(path))
        row.set_model(Gtk.StringList.new([_("This Machine"), "Alpine"]))
        row.set_selected(1 if system is System.ALPINE else 0)
        row.set_sensitive(can_use or system is System.ALPINE)
        row.connect("notify::selected", weakly(self._on_chosen), path)
        return row

    def _on_chosen(self, row: Adw.ComboRow, _property: object, path: str) -> None:
        system = System.ALPINE if row.get_selected() else System.HOST

        async def choose_system() -> None:
            await asyncio.to_thread(set_system, self._paths, path, system)
            self.emit("changed")

        self._tasks.start(choose_system())
