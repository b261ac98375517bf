# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about Alpine Linux. The menu of a project chooses whether it uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from gi.repository import Adw, GLib, Gtk

from ...errors import OllmSandboxError
from ...i18n import _, localized, ngettext
from ...paths import Paths
from ...sandbox.rootfs.install import InstallProgress, Step
from ...sandbox.rootfs.packages import Tier
from ...sandbox.rootfs.rootfs import Rootfs, Status
from ...sandbox.rootfs.settings import RootfsSettings, load_rootfs_settings, save_rootfs_settings
from ...text.ansi import harmless
from ..terminal.usage import amount
from ..widgets.dialogs import choose_file, confirm
from ..widgets.focus import window_around
from ..widgets.labels import decorative_icon, with_code
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from . import rows


def tier_text(tier: Tier) -> str:
    title = (
        _("Minimal"),
        _("With Bash and Python"),
        _("With Git, Node and more (recommended)"),
        _("With compilers"),
    )[tier.number]
    return _("{title}, about {size}").format(title=title, size=amount(tier.size))


def status_text(status: Status) -> str:
    if status.installed is None:
        return _("Not installed")
    parts = [status.installed.title, GLib.format_size(status.size)]
    if status.others:
        count = len(status.others)
        text = ngettext("{} older version in use", "{} older versions in use", count)
        parts.append(text.format(count))
    return ", ".join(parts)


class SystemPage(Adw.PreferencesPage):
    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        tasks: Tasks,
    ) -> None:
        super().__init__(title=_("System"), icon_name="computer-symbolic")
        self._paths = paths
        self._environ = environ
        self._tasks = tasks
        self._work: asyncio.Task[object] | None = None
        # The id of the handler that asks before the window closes.
        self._closing = 0
        self._add_alpine()
        self._trouble.set_visible(False)
        self._show_busy(busy=False, is_installed=False)
        tasks.start(self._load_settings())

    def _add_alpine(self) -> None:
        self._alpine = Adw.PreferencesGroup(
            title=_("Alpine"),
            description=_(
                "A small Linux system in which commands run the same everywhere. "
                "It contains the project, but not your programs and other files. Agents use Git, "
                "find and curl in almost every project, so these are recommended."
            ),
        )
        self._status = rows.action(_("Status"), _("Checking…"))
        self._trouble = rows.action(_("Installation"))
        mark = decorative_icon("dialog-warning-symbolic", "warning")
        self._trouble.add_prefix(mark)
        self._tier = Adw.ComboRow(title=_("Programs"), use_subtitle=True)
        self._tier.set_model(Gtk.StringList.new([tier_text(tier) for tier in Rootfs.tiers]))
        self._tier.set_selected(RootfsSettings.tier)
        self._install = rows.button(_("Install"), _("Install Alpine"), self._start, None)
        self._from_file = rows.icon_suffix(
            "document-open-symbolic", _("Install From a File…"), self._on_from_file
        )
        self._cancel = rows.button(_("Cancel"), _("Cancel the installation"), self._on_cancel)
        self._remove = rows.icon_suffix("user-trash-symbolic", _("Remove Alpine"), self._on_remove)
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
                ("version", _("Version (Latest if Empty)")),
            )
        }
        for row in (self._status, self._trouble, self._under_way, self._tier):
            self._alpine.add(row)
        for name, entry in self._sources.items():
            entry.connect("apply", weakly(self._on_source), name)
            self._alpine.add(entry)
        self.add(self._alpine)

    async def _load_settings(self) -> None:
        await self.refresh()
        try:
            settings = await asyncio.to_thread(load_rootfs_settings, self._paths.config)
        except OllmSandboxError:
            return  # refresh() shows the error; it has to be fixed first
        self._tier.set_selected(settings.tier)
        self._sources["mirror"].set_text(settings.mirror)
        self._sources["version"].set_text(settings.version)

    async def refresh(self, trouble: OllmSandboxError | None = None) -> None:
        """Show the status, and an error that has just occurred."""
        status: Status | None = None
        try:
            status = await asyncio.to_thread(lambda: self._rootfs().status())
        except OllmSandboxError as error:
            trouble = trouble or error
        installed = status is not None and status.installed is not None
        text = status_text(status) if status else _("Unknown")
        self._status.set_subtitle(GLib.markup_escape_text(text))
        if trouble is not None:
            self._trouble.set_title(GLib.markup_escape_text(localized(trouble.message)))
            self._trouble.set_subtitle(with_code(localized(trouble.remedy)))
        self._trouble.set_visible(trouble is not None)
        self._show_busy(busy=self._work is not None, is_installed=installed)

    def _rootfs(self) -> Rootfs:
        """Return a new object each time: users may edit the file with its settings."""
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

    @as_task
    async def _on_source(self, entry: Adw.EntryRow, name: str) -> None:
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

    # --- installing ------------------------------------------------------------------------------

    @as_task
    async def _on_from_file(self) -> None:
        file = await choose_file(window_around(self), _("Alpine's Mini Root Filesystem"))
        if file is not None:
            self._start(file)

    def _start(self, tarball: Path | None) -> None:
        if self._work is None:
            self._work = self._tasks.start(self._run_installation(tarball))
            if not self._closing:
                window = window_around(self)
                self._closing = window.connect("close-request", weakly(self._on_close))

    def _on_close(self, window: Gtk.Window) -> bool:
        """Return True to keep the window open until the user has answered."""
        if self._work is None:
            return False

        async def ask() -> None:
            heading = _("Close and Cancel the Installation?")
            body = _("It continues only while this window is open. Downloaded files are kept.")
            if await confirm(window, heading, body, _("_Close"), cancel=_("_Keep Open")):
                self._on_cancel()
                window.destroy()

        self._tasks.start(ask())
        return True

    async def _run_installation(self, tarball: Path | None) -> None:
        self._show_busy(busy=True, is_installed=False)
        self._progress.set_fraction(0)
        tier = Rootfs.tiers[self._tier.get_selected()].number
        trouble: OllmSandboxError | None = None
        try:
            done = await self._rootfs().prepare(self._show, tier=tier, tarball=tarball)
            for notice in done.notices:
                self._tasks.tell(notice)
            what = _("{} is installed.") if done.is_new else _("{} is already installed.")
            self._tasks.tell(what.format(done.installed.title))
        except OllmSandboxError as error:
            trouble = error
        finally:
            self._work = None
            self._tasks.start(self.refresh(trouble))

    def _show(self, progress: InstallProgress) -> None:
        text = _(progress.step.value)
        if progress.text:
            text = f"{text}: {harmless(progress.text)}"
        self._status.set_subtitle(GLib.markup_escape_text(text))
        if progress.step in (Step.FETCH, Step.UNPACK) and progress.total:
            self._progress.set_fraction(min(1.0, progress.done / progress.total))
        else:
            self._progress.pulse()

    def _on_cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    @as_task
    async def _on_remove(self) -> None:
        body = _("The next command in a project that uses it installs it again.")
        window = window_around(self)
        is_wanted = await confirm(window, _("Remove Alpine?"), body, _("_Remove"))
        if is_wanted and not await self._rootfs().remove():
            raise OllmSandboxError(
                _("Alpine was not removed: a command is still running in it."),
                _("Try again when it has finished."),
            )
        await self.refresh()
