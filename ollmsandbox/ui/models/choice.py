# SPDX-License-Identifier: GPL-3.0-or-later
"""Knows the connections, the models of their servers, and which model a session uses."""

from __future__ import annotations

import asyncio

from gi.repository import GObject

from ...chat.providers.base import Model, Server
from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import TOUR, Connection
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ..widgets.signals import signals
from .chooser import ConnectionItem, ConnectionState


class ModelChoice(GObject.Object):
    __gsignals__ = signals({"changed": ()})

    def __init__(self, store: ConnectionStore) -> None:
        super().__init__()
        self.store = store
        self._items: dict[str, ConnectionItem] = {}
        self._servers: dict[str, tuple[Connection, Server]] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def items(self) -> list[ConnectionItem]:
        return list(self._items.values())

    async def refresh(self) -> None:
        """Read the connections and ask all servers at the same time."""
        if self._looking is not None:
            self._looking.cancel()
        task = self._looking = asyncio.ensure_future(self._look())
        await asyncio.wait({task})
        # If it was cancelled, a newer call is running, and reports what it finds.
        if not task.cancelled():
            task.result()

    def default(self) -> tuple[str, str]:
        """Return the connection and model for a new session; empty if there is none."""
        connection = self.store.default()
        if connection is None:
            return "", ""
        item = self._items.get(connection.name)
        return connection.name, connection.model or next(iter(item.models if item else ()), "")

    def model(self, connection: str, model: str) -> Model | None:
        """Return the model of a connection; None if there is no such connection."""
        known = {one.name: one for one in (*self.store.all(), TOUR)} if model else {}
        found = known.get(connection)
        return self._server(found).model(model) if found else None

    def forget_servers(self) -> None:
        """Drop the server objects: a key may have changed, which a connection does not show."""
        self._servers.clear()

    def state_of(self, connection: str) -> ConnectionState:
        item = self._items.get(connection)
        return item.state if item else ConnectionState.UNKNOWN

    def missing_model_text(self) -> str:
        """Describe why there is no model, and what works without one."""
        failed = [item for item in self.items if item.state is ConnectionState.FAILED]
        if failed and not any(item.models for item in self.items):
            return _("Cannot reach {}. !commands work without a model.").format(failed[0].name)
        return _("Choose or connect a model. !commands work without one.")

    def remember(self, connection: str, model: str) -> None:
        self.store.use(connection, None if connection == TOUR.name else model)

    def _server(self, connection: Connection) -> Server:
        """Return the server of a connection; a new one only if the connection has changed."""
        known = self._servers.get(connection.name)
        if known is None or known[0] != connection:
            known = self._servers[connection.name] = (connection, self.store.server(connection))
        return known[1]

    async def _look(self) -> None:
        connections = await asyncio.to_thread(self.store.all)
        # Until they answer, what is known stays.
        self._items = {
            connection.name: self._items.get(connection.name)
            or ConnectionItem(connection.name, ConnectionState.CONNECTING)
            for connection in connections
        }
        self.emit("changed")
        await asyncio.gather(*map(self._ask, connections))

    async def _ask(self, connection: Connection) -> None:
        try:
            models = await self._server(connection).models()
            item = ConnectionItem(
                connection.name, ConnectionState.READY, tuple(m.name for m in models)
            )
        except OllmSandboxError as error:
            kept = (connection.model,) if connection.model else ()
            item = ConnectionItem(
                connection.name, ConnectionState.FAILED, kept, localized(error.message)
            )
        self._items[connection.name] = item
        self.emit("changed")
