# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections there are, what their servers offer, and which model a session uses."""

from __future__ import annotations

import asyncio

from gi.repository import GObject

from ...chat.providers.base import Model, Server
from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import TOUR, Connection
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ..widgets.signals import signals
from .chooser import ConnectionItem, Link


class ModelChoice(GObject.Object):
    __gtype_name__ = "OllmModelChoice"

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
        """Reads the connections and asks all servers, side by side."""
        if self._looking is not None:
            self._looking.cancel()
        task = self._looking = asyncio.ensure_future(self._look())
        try:
            await task
        except asyncio.CancelledError:
            # A newer look has begun, and tells what it finds.
            if not task.cancelled():
                raise

    def default(self) -> tuple[str, str]:
        """A connection and its model to begin with; empty if there is nothing to begin with."""
        connection = self.store.default()
        if connection is None:
            return "", ""
        return connection.name, connection.model or self._first_model(connection.name)

    def model(self, connection: str, model: str) -> Model | None:
        """None if there is no such connection, or no longer."""
        known = {one.name: one for one in (*self.store.all(), TOUR)} if model else {}
        found = known.get(connection)
        return self._server(found).model(model) if found else None

    def forget_servers(self) -> None:
        """A key may be another one, which a connection does not tell."""
        self._servers.clear()

    def why_none(self) -> str:
        """What is in the way of talking to a model, and what can be done without one."""
        failed = [item for item in self.items if item.link is Link.FAILED]
        if failed and not any(item.models for item in self.items):
            return _("{} does not answer. !commands work without a model.").format(failed[0].name)
        return _("Choose or connect a model to talk to. !commands work without one.")

    def remember(self, connection: str, model: str) -> None:
        """For the next session."""
        self.store.use(connection, None if connection == TOUR.name else model)

    def _first_model(self, name: str) -> str:
        item = self._items.get(name)
        return item.models[0] if item and item.models else ""

    def _server(self, connection: Connection) -> Server:
        """The same as before, as long as nothing about the connection is other."""
        known = self._servers.get(connection.name)
        if known is None or known[0] != connection:
            known = self._servers[connection.name] = (connection, self.store.server(connection))
        return known[1]

    async def _look(self) -> None:
        connections = await asyncio.to_thread(self.store.all)
        self._items = {
            connection.name: ConnectionItem(connection.name, Link.LOOKING)
            for connection in connections
        }
        self.emit("changed")
        await asyncio.gather(*map(self._ask, connections))

    async def _ask(self, connection: Connection) -> None:
        try:
            models = await self._server(connection).models()
            item = ConnectionItem(connection.name, Link.READY, tuple(m.name for m in models))
        except OllmSandboxError as error:
            kept = (connection.model,) if connection.model else ()
            item = ConnectionItem(connection.name, Link.FAILED, kept, localized(error.message))
        self._items[connection.name] = item
        self.emit("changed")
