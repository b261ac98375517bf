# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection is made, changed and tried."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gi.repository import Adw, GLib, Gtk

from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import Connection, ServerKind
from ...errors import OllmSandboxError
from ...i18n import _, ngettext
from ..resources import template
from ..widgets.labels import name_buttons
from ..widgets.signals import signals
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly

_KINDS = (ServerKind.OLLAMA, ServerKind.OPENAI)
_USUAL = {
    ServerKind.OLLAMA: "http://localhost:11434",
    ServerKind.OPENAI: "http://localhost:8080/v1",
}

_NAMES = {ServerKind.OLLAMA: "Ollama", ServerKind.OPENAI: "llama.cpp"}


@Gtk.Template(filename=template("preferences/connection_dialog"))
class ConnectionDialog(Adw.Window):
    __gtype_name__ = "OllmConnectionDialog"

    __gsignals__ = signals({"saved": (object,)})

    kind: Adw.ComboRow = Gtk.Template.Child()
    name: Adw.EntryRow = Gtk.Template.Child()
    address: Adw.EntryRow = Gtk.Template.Child()
    key: Adw.PasswordEntryRow = Gtk.Template.Child()
    result: Adw.ActionRow = Gtk.Template.Child()
    cancel_button: Gtk.Button = Gtk.Template.Child()
    save_button: Gtk.Button = Gtk.Template.Child()
    test_button: Gtk.Button = Gtk.Template.Child()

    def __init__(
        self,
        parent: Gtk.Window,
        store: ConnectionStore,
        connection: Connection,
        *,
        is_new: bool = False,
    ) -> None:
        """A new one is shown as it is proposed. Without one typed, the key stays as it is."""
        super().__init__(transient_for=parent)
        name_buttons(self)
        self._store = store
        self._connection = connection
        # The name that it is known by.
        self.before = "" if is_new else connection.name
        self._tasks = Tasks(self._show_problem)
        self._test_task: asyncio.Task[object] | None = None
        self._is_saving = False
        self.kind.set_selected(_KINDS.index(connection.kind))
        self._proposed = self._free_name(connection.name or _NAMES[connection.kind])
        self.name.set_text(self.before or self._proposed)
        self.address.set_text(connection.address or _USUAL[connection.kind])
        self.kind.connect("notify::selected", weakly(self._on_kind))
        for row in (self.name, self.address):
            row.connect("changed", weakly(self._on_changed))
        for row in (self.address, self.key):
            row.connect("changed", weakly(self._forget_result))
        self.kind.connect("notify::selected", weakly(self._forget_result))
        for row in (self.name, self.address, self.key):
            row.connect("entry-activated", weakly(self._on_enter))
        escape = Gtk.ShortcutTrigger.parse_string("Escape")
        keys = Gtk.ShortcutController()
        keys.add_shortcut(Gtk.Shortcut.new(escape, Gtk.NamedAction.new("window.close")))
        self.add_controller(keys)
        self.cancel_button.connect("clicked", weakly(self._on_cancel))
        self.save_button.connect("clicked", weakly(self._on_save))
        self.test_button.connect("clicked", weakly(self._on_test))
        self.connect("close-request", weakly(self._on_close))
        self._untried = self.result.get_subtitle() or ""
        self._on_changed(None)
        self.address.grab_focus()

    def _given(self) -> Connection:
        return replace(
            self._connection,
            name=self.name.get_text().strip(),
            kind=_KINDS[self.kind.get_selected()],
            address=self.address.get_text().strip(),
        )

    def _free_name(self, wanted: str) -> str:
        """Or with the first number that makes it one."""
        try:
            taken = {one.name for one in self._store.all()}
        except OllmSandboxError:
            taken = set()  # it is told when one is saved
        names = (wanted, *(f"{wanted} {number}" for number in range(2, len(taken) + 2)))
        return next(name for name in names if name not in taken)

    def _new_key(self) -> str | None:
        """None: nothing was typed, so the one there is stays."""
        return self.key.get_text() or None

    def _show_result(self, text: str, style: str = "") -> None:
        self.result.set_subtitle(GLib.markup_escape_text(text))
        for name in ("success", "error"):
            self.result.remove_css_class(name)
        if style:
            self.result.add_css_class(style)

    def _show_problem(self, text: str) -> None:
        self._show_result(text, "error")

    def _forget_result(self, *_args: object) -> None:
        """It was about another server, or another key."""
        if self._test_task is not None:
            self._test_task.cancel()
            self._test_task = None
        self._show_result(self._untried)

    def _on_kind(self, *_args: object) -> None:
        kind = _KINDS[self.kind.get_selected()]
        if self.address.get_text() in _USUAL.values():
            self.address.set_text(_USUAL[kind])
        if not self.before and self.name.get_text() == self._proposed:
            self._proposed = self._free_name(_NAMES[kind])
            self.name.set_text(self._proposed)

    async def _test(self) -> None:
        self._show_result(_("Asking…"))
        had_focus = self.test_button.has_focus()
        self.test_button.set_sensitive(False)
        try:
            # Its key is found by the name it had.
            given = replace(self._given(), name=self.before)
            server = self._store.server(given, key=self._new_key())
            models = await server.models()
            count = len(models)
            text = ngettext("It works: {} model.", "It works: {} models.", count).format(count)
            self._show_result(
                text if count else _("It answers, but has no models."), "success" if count else ""
            )
        finally:
            self._show_whether_whole()
            # Unless the person went elsewhere meanwhile.
            if had_focus and self.get_focus() is None:
                self.test_button.grab_focus()

    async def _save(self) -> None:
        self._is_saving = True
        self.save_button.set_sensitive(False)
        try:
            saved = await self._store.change(self.before, self._given(), key=self._new_key())
            self.emit("saved", saved)
            self.close()
        except OllmSandboxError:
            self._is_saving = False
            self._show_whether_whole()
            raise

    def _on_changed(self, _row: Adw.EntryRow | None) -> None:
        self._show_whether_whole()

    def _show_whether_whole(self) -> None:
        whole = bool(self.name.get_text().strip() and self.address.get_text().strip())
        self.save_button.set_sensitive(whole and not self._is_saving)
        self.test_button.set_sensitive(whole)

    def _on_test(self, _button: Gtk.Button) -> None:
        self._test_task = self._tasks.start(self._test())

    def _on_save(self, _button: Gtk.Button) -> None:
        self._tasks.start(self._save())

    def _on_enter(self, _row: Adw.EntryRow) -> None:
        if self.save_button.get_sensitive():
            self._tasks.start(self._save())

    def _on_cancel(self, _button: Gtk.Button) -> None:
        self.close()

    def _on_close(self, _dialog: Gtk.Window) -> bool:
        self._tasks.cancel()
        return False
