# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about connections to model servers."""

from __future__ import annotations

import asyncio

from gi.repository import Adw, GLib, GObject, Gtk

from ... import N_
from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import Connection, ServerKind
from ...chat.providers.discover import FoundServer, find_servers
from ...chat.providers.keys import KeyStorage
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ..models.chooser import shown_model
from ..widgets.dialogs import confirm
from ..widgets.focus import window_around
from ..widgets.labels import set_accessible_name
from ..widgets.signals import signals
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from . import rows
from .connection_dialog import ConnectionDialog

_KEYS = {
    KeyStorage.KEYRING: N_("API key in your keyring"),
    KeyStorage.FILE: N_("API key in a file that only you can read"),
}
_KINDS = {ServerKind.OLLAMA: "Ollama", ServerKind.OPENAI: N_("OpenAI-compatible")}


class DefaultModelRow(Adw.ComboRow):
    __gsignals__ = signals({"chosen": ()})

    def __init__(self, store: ConnectionStore, tasks: Tasks) -> None:
        super().__init__(title=_("Model for New Sessions"), visible=False)
        self.set_subtitle_lines(0)
        self._store = store
        self._tasks = tasks
        self._connection: Connection | None = None
        self._names: list[str] = []
        self._handler = self.connect("notify::selected", weakly(self._on_selected))

    async def show_models(self, connection: Connection | None) -> None:
        """Ask the connection's server for its models, and list them."""
        self._connection = connection
        self.set_visible(connection is not None)
        if connection is None:
            return
        kept = [connection.model] if connection.model else []
        self._fill(kept, _("Connecting…"))
        try:
            models = await self._store.server(connection).models()
            names, note = [model.name for model in models], ""
        except OllmSandboxError as error:
            names, note = kept, localized(error.message)
        # The user may have chosen another connection meanwhile.
        if self._connection is connection:
            gone = [name for name in kept if name not in names]
            self._fill([*gone, *names], note or ("" if names else _("No models")))

    def _fill(self, names: list[str], note: str) -> None:
        with self.handler_block(self._handler):
            self._names = names
            # Below the title there is room for a long name. Set first: newer versions of libadwaita
            # only show it there for selections that are made later.
            self.set_use_subtitle(not note)
            self.set_model(Gtk.StringList.new([shown_model(name) for name in names]))
            self.set_sensitive(bool(names))
            chosen = self._connection.model if self._connection else ""
            # Without a saved choice, use the first one.
            self.set_selected(names.index(chosen) if chosen in names else 0)
            if note:
                self.set_subtitle(GLib.markup_escape_text(note))

    def _on_selected(self, *_args: object) -> None:
        connection, selected = self._connection, self.get_selected()
        if connection is None or selected >= len(self._names):
            return
        model = None if connection.kind is ServerKind.TOUR else self._names[selected]

        async def use() -> None:
            await asyncio.to_thread(self._store.use, connection.name, model)
            self.emit("chosen")

        self._tasks.start(use())


class ConnectionsPage(Adw.PreferencesPage):
    # "renamed": the old and the new name of a connection.
    __gsignals__ = signals({"changed": (), "renamed": (str, str)})

    def __init__(self, store: ConnectionStore, tasks: Tasks) -> None:
        super().__init__(title=_("Models"), icon_name="network-server-symbolic")
        self._store = store
        self._tasks = tasks
        self._group = rows.RowGroup(_("Connections"), _("Servers with models"))
        self._group.set_header_suffix(
            rows.icon_suffix("list-add-symbolic", _("Add a Connection"), self.add_connection)
        )
        self.add(self._group)
        self.model_row = DefaultModelRow(store, tasks)
        self.model_row.connect("chosen", weakly(self._on_model_chosen))
        used = Adw.PreferencesGroup()
        used.add(self.model_row)
        # An empty group would look like a line.
        self.model_row.bind_property("visible", used, "visible", GObject.BindingFlags.SYNC_CREATE)
        self.add(used)
        self._found = rows.RowGroup(_("Found on This Computer"))
        self._found.set_header_suffix(
            rows.icon_suffix("view-refresh-symbolic", _("Search Again"), self._look)
        )
        self.add(self._found)
        self._show_all()
        self._look()

    @as_task
    async def _show_all(self) -> None:
        await self.model_row.show_models(await self._list())

    async def _list(self) -> Connection | None:
        """List the connections and return the default one."""
        connections = await asyncio.to_thread(self._store.all)
        default = await asyncio.to_thread(self._store.default)
        nothing = rows.action(_("No connections yet"), _("Add one, or connect to one below."))
        self._group.show_rows([self._row(one, default) for one in connections] or [nothing])
        return default

    def _row(self, connection: Connection, default: Connection | None) -> Adw.ActionRow:
        is_default = default is not None and default.name == connection.name
        subtitle = f"{_(_KINDS[connection.kind])} · {connection.address}"
        if connection.model:
            subtitle += f" · {connection.model}"
        if connection.key in _KEYS:
            subtitle += f" · {_(_KEYS[connection.key])}"
        row = rows.action(connection.name, subtitle)
        if is_default:
            mark = Gtk.Image.new_from_icon_name("object-select-symbolic")
            words = _("Used for new sessions")
            mark.set_tooltip_text(words)
            set_accessible_name(mark, words)
            row.add_suffix(mark)
        else:
            words = _("Use {} for new sessions").format(connection.name)
            row.add_suffix(rows.button(_("Use"), words, self._use, connection))
        for icon, words, method in (
            ("document-edit-symbolic", _("Edit {}"), self._open),
            ("user-trash-symbolic", _("Remove {}"), self._remove),
        ):
            name = words.format(connection.name)
            row.add_suffix(rows.icon_suffix(icon, name, method, connection))
        return row

    @as_task
    async def _look(self) -> None:
        self._found.show_rows([rows.action(_("Checking…"))])
        found = await find_servers()
        known = {one.address for one in await asyncio.to_thread(self._store.all)}
        new = [self._found_row(one) for one in found if one.address not in known]
        nothing = rows.action(
            _("No other servers found"),
            _("Start Ollama or llama.cpp, then search again."),
        )
        self._found.show_rows(new or [nothing])

    def _found_row(self, found: FoundServer) -> Adw.ActionRow:
        row = rows.action(found.name, found.address)
        connection = Connection(found.name, found.kind, found.address)
        words = _("Connect to {}").format(found.name)
        row.add_suffix(rows.button(_("Connect"), words, self._connect, connection))
        return row

    def add_connection(self) -> None:
        self._connect(Connection("", ServerKind.OLLAMA, ""))

    def _connect(self, connection: Connection) -> None:
        self._open(connection, is_new=True)

    def _open(self, connection: Connection, *, is_new: bool = False) -> None:
        dialog = ConnectionDialog(window_around(self), self._store, connection, is_new=is_new)
        dialog.connect("saved", weakly(self._on_saved))
        dialog.present()

    def _on_saved(self, dialog: ConnectionDialog, connection: Connection) -> None:
        if dialog.before not in ("", connection.name):
            self.emit("renamed", dialog.before, connection.name)
        self._show_all()
        self._look()
        self.emit("changed")

    def _on_model_chosen(self, _row: DefaultModelRow) -> None:
        self._tasks.start(self._list())
        self.emit("changed")

    @as_task
    async def _use(self, connection: Connection) -> None:
        await asyncio.to_thread(self._store.use, connection.name)
        self._show_all()
        self.emit("changed")

    @as_task
    async def _remove(self, connection: Connection) -> None:
        heading = _("Remove {}?").format(connection.name)
        body = _("Its API key is removed, too.")
        if await confirm(window_around(self), heading, body, _("_Remove")):
            await self._store.remove(connection.name)
            self._show_all()
            self.emit("changed")
