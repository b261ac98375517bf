# SPDX-License-Identifier: GPL-3.0-or-later
"""A dialog to create, change and check a connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from gi.repository import Adw, GLib, Gtk

from ...chat.providers.base import Effort, Price
from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import Connection, ServerKind
from ...chat.providers.keys import KeyStorage
from ...errors import OllmSandboxError
from ...i18n import _, ngettext
from ..resources import template
from ..widgets.labels import name_buttons, set_accessible_name, set_class
from ..widgets.signals import signals
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly

_KINDS = (ServerKind.OLLAMA, ServerKind.OPENAI)
_USUAL = {
    ServerKind.OLLAMA: "http://localhost:11434",
    ServerKind.OPENAI: "http://localhost:8080/v1",
}

# As in the template.
_EFFORTS = (None, *Effort)
_NAMES = {ServerKind.OLLAMA: "Ollama", ServerKind.OPENAI: "llama.cpp"}


def _number(row: Adw.EntryRow) -> float | None:
    text = row.get_text().strip().replace(",", ".")
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise OllmSandboxError(_("Enter a number: {what}").format(what=row.get_title()))
    return found


@Gtk.Template(filename=template("preferences/connection_dialog"))
class ConnectionDialog(Adw.Window):
    __gtype_name__ = "OllmConnectionDialog"

    __gsignals__ = signals({"saved": (object,)})

    kind: Adw.ComboRow = Gtk.Template.Child()
    name: Adw.EntryRow = Gtk.Template.Child()
    address: Adw.EntryRow = Gtk.Template.Child()
    key: Adw.PasswordEntryRow = Gtk.Template.Child()
    settings: Adw.ExpanderRow = Gtk.Template.Child()
    context: Adw.EntryRow = Gtk.Template.Child()
    answer: Adw.EntryRow = Gtk.Template.Child()
    effort: Adw.ComboRow = Gtk.Template.Child()
    temperature: Adw.EntryRow = Gtk.Template.Child()
    input_price: Adw.EntryRow = Gtk.Template.Child()
    output_price: Adw.EntryRow = Gtk.Template.Child()
    connect_timeout: Adw.EntryRow = Gtk.Template.Child()
    idle_timeout: Adw.EntryRow = Gtk.Template.Child()
    headers: Gtk.TextView = Gtk.Template.Child()
    headers_label: Gtk.Label = Gtk.Template.Child()
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
        """`is_new` offers a connection that is not stored yet. An empty key keeps the old one."""
        super().__init__(transient_for=parent)
        name_buttons(self)
        self._store = store
        self._connection = connection
        # The name under which the connection is stored.
        self.before = "" if is_new else connection.name
        self._tasks = Tasks(partial(self._show_result, style="error"))
        self._test_task: asyncio.Task[object] | None = None
        self._is_saving = False
        if connection.key is KeyStorage.KEYRING:
            self.key.set_title(_("API Key (Stored in Your Keyring)"))
        elif connection.key is KeyStorage.FILE:
            self.key.set_title(_("API Key (Stored in a File)"))
        self.kind.set_selected(_KINDS.index(connection.kind))
        self._proposed = self._free_name(connection.name or _NAMES[connection.kind])
        self.name.set_text(self.before or self._proposed)
        self.address.set_text(connection.address or _USUAL[connection.kind])
        self._show_settings(connection)
        set_accessible_name(self.headers, self.headers_label.get_label())
        self.kind.connect("notify::selected", weakly(self._on_kind))
        self.address.connect("changed", weakly(self._propose_name))
        for row in (self.name, self.address):
            row.connect("changed", weakly(self._update_buttons))
        for row in (self.address, self.key):
            row.connect("changed", weakly(self._forget_result))
        self.kind.connect("notify::selected", weakly(self._forget_result))
        for row in (self.name, self.address, self.key):
            row.connect("entry-activated", weakly(self._on_save))
        escape = Gtk.ShortcutTrigger.parse_string("Escape")
        keys = Gtk.ShortcutController()
        keys.add_shortcut(Gtk.Shortcut.new(escape, Gtk.NamedAction.new("window.close")))
        self.add_controller(keys)
        self.cancel_button.set_action_name("window.close")
        self.save_button.connect("clicked", weakly(self._on_save))
        self.test_button.connect("clicked", weakly(self._on_test))
        self.connect("close-request", weakly(self._on_close))
        self._initial_text = self.result.get_subtitle() or ""
        self._update_buttons()
        self.address.grab_focus()

    def _show_settings(self, connection: Connection) -> None:
        price = connection.price
        numbers: tuple[tuple[Adw.EntryRow, float | None], ...] = (
            (self.context, connection.room),
            (self.answer, connection.answer),
            (self.temperature, connection.temperature),
            (self.input_price, price.prompt if price else None),
            (self.output_price, price.reply if price else None),
            (self.connect_timeout, connection.connect),
            (self.idle_timeout, connection.idle),
        )
        for row, number in numbers:
            row.set_text("" if number is None else f"{number:g}" if number < 1e5 else str(number))
        self.effort.set_selected(_EFFORTS.index(connection.effort))
        lines = (f"{name}: {value}" for name, value in connection.headers)
        self.headers.get_buffer().set_text("\n".join(lines))

    def _entered(self) -> Connection:
        """Return what was entered; raise an error if a number is none."""
        context, answer = _number(self.context), _number(self.answer)
        prices = [_number(row) for row in (self.input_price, self.output_price)]
        has_price = any(price is not None for price in prices)
        connect, idle = _number(self.connect_timeout), _number(self.idle_timeout)
        buffer = self.headers.get_buffer()
        text = buffer.get_text(*buffer.get_bounds(), include_hidden_chars=False)
        headers = (line.partition(":") for line in text.splitlines() if line.strip())
        return replace(
            self._connection,
            name=self.name.get_text().strip(),
            kind=_KINDS[self.kind.get_selected()],
            address=self.address.get_text().strip(),
            room=None if context is None else int(context),
            answer=None if answer is None else int(answer),
            effort=_EFFORTS[self.effort.get_selected()],
            temperature=_number(self.temperature),
            price=Price(*(price or 0.0 for price in prices)) if has_price else None,
            connect=Connection.connect if connect is None else connect,
            idle=Connection.idle if idle is None else idle,
            headers=tuple((name.strip(), value.strip()) for name, _colon, value in headers),
        )

    def _free_name(self, wanted: str) -> str:
        """Return the name, with a number if it is taken."""
        try:
            taken = {one.name for one in self._store.all()}
        except OllmSandboxError:
            taken = set()  # saving reports the error
        names = (wanted, *(f"{wanted} {number}" for number in range(2, len(taken) + 2)))
        return next(name for name in names if name not in taken)

    def _new_key(self) -> str | None:
        """Return None to keep the stored key."""
        return self.key.get_text() or None

    def _show_result(self, text: str, style: str = "") -> None:
        self.result.set_subtitle(GLib.markup_escape_text(text))
        for name in ("success", "error"):
            set_class(self.result, name, name == style)

    def _forget_result(self, *_args: object) -> None:
        """Clear a result that was for another server or key."""
        if self._test_task is not None:
            self._test_task.cancel()
            self._test_task = None
        self._show_result(self._initial_text)

    def _on_kind(self, *_args: object) -> None:
        kind = _KINDS[self.kind.get_selected()]
        if self.address.get_text() in _USUAL.values():
            self.address.set_text(_USUAL[kind])
        self._propose_name()

    def _propose_name(self, *_args: object) -> None:
        """Name a new connection after its server, unless the user has named it."""
        if self.before or self.name.get_text() != self._proposed:
            return
        kind, address = _KINDS[self.kind.get_selected()], self.address.get_text().strip()
        name = _NAMES[kind]
        if kind is ServerKind.OPENAI and address != _USUAL[kind]:
            # Many services and programs have this interface.
            host = (address.partition("://")[2] or address).partition("/")[0]
            name = host.rpartition("@")[2] or name
        self._proposed = self._free_name(name)
        self.name.set_text(self._proposed)

    async def _test(self) -> None:
        self._show_result(_("Checking…"))
        had_focus = self.test_button.has_focus()
        self.test_button.set_sensitive(False)
        try:
            # The key is stored under the old name.
            connection = replace(self._entered(), name=self.before)
            server = self._store.server(connection, key=self._new_key())
            models = await server.models()
            count = len(models)
            text = ngettext("Connected: {} model", "Connected: {} models", count).format(count)
            self._show_result(
                text if count else _("Connected, but the server has no models"),
                "success" if count else "",
            )
        finally:
            self._update_buttons()
            # Unless the user has moved the focus.
            if had_focus and self.get_focus() is None:
                self.test_button.grab_focus()

    @as_task
    async def _on_save(self, _widget: Gtk.Widget) -> None:
        if not self.save_button.get_sensitive():
            return
        self._is_saving = True
        self.save_button.set_sensitive(False)
        try:
            saved = await self._store.put(self._entered(), before=self.before, key=self._new_key())
            self.emit("saved", saved)
            self.close()
        except OllmSandboxError:
            self._is_saving = False
            self._update_buttons()
            raise

    def _update_buttons(self, *_args: object) -> None:
        is_complete = bool(self.name.get_text().strip() and self.address.get_text().strip())
        self.save_button.set_sensitive(is_complete and not self._is_saving)
        self.test_button.set_sensitive(is_complete)

    def _on_test(self, _button: Gtk.Button) -> None:
        self._test_task = self._tasks.start(self._test())

    def _on_close(self, _dialog: Gtk.Window) -> bool:
        self._tasks.cancel()
        return False
