# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores the connections to model servers and which one is the default."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TypeVar

from ... import N_
from ...config.settings_file import SettingsFile
from ...errors import Sentence
from ...net.addresses import is_loopback
from ...paths import Paths
from . import connections_file
from .base import ProviderError, Server
from .connections_file import TOUR, Connection, ConnectionList, ServerKind
from .keys import KeyStorage, KeyStore

T = TypeVar("T")


class ConnectionStore:
    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        say: Callable[[str], str] = str,
    ) -> None:
        """`say` translates the texts of the tour."""
        self._say = say
        self.file = paths.config / "connections.yaml"
        self._keys = KeyStore(paths, environ)
        self._settings = SettingsFile(
            self.file, connections_file.SOURCE, connections_file.read, ConnectionList()
        )
        self._under_way: set[object] = set()

    def take_notices(self) -> list[str]:
        return self._settings.take_notices()

    def all(self) -> list[Connection]:
        return list(self._settings.read().connections)

    def find(self, name: str) -> Connection:
        found = {connection.name: connection for connection in (*self.all(), TOUR)}
        if name not in found:
            choice = ", ".join(found)
            raise ProviderError(
                N_("There is no connection called {name}."),
                N_("Choose one of: {choice}."),
                name=repr(name),
                choice=choice,
            )
        return found[name]

    def default(self) -> Connection | None:
        """Return the chosen connection, or else the only one."""
        listing = self._settings.read()
        if listing.default == TOUR.name:
            return TOUR
        chosen = [c for c in listing.connections if c.name == listing.default]
        if chosen:
            return chosen[0]
        return listing.connections[0] if len(listing.connections) == 1 else None

    async def put(
        self, connection: Connection, *, before: str | None = None, key: str | None = None
    ) -> Connection:
        """Add a connection, or replace the one with its name. With `before`, replace the one of
        that name, or none if it is empty; raise an error if the new name belongs to another one.
        A key is stored; "" removes the stored one, and None keeps it."""
        before = connection.name if before is None else before
        self._check_free(before, connection.name, self._settings.read())
        return await self._shielded(self._put(before, connection, key))

    async def _shielded(self, work: Coroutine[object, object, T]) -> T:
        """Finish the work even if the caller is cancelled: otherwise a key could be left behind."""
        task = asyncio.ensure_future(work)
        # The loop keeps only a weak reference to a task.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _put(self, before: str, connection: Connection, key: str | None) -> Connection:
        name = connection.name
        connections_file.check_name(name)
        connections_file.check_headers(connection.headers)
        address = connections_file.normal_address(connection.kind, connection.address)
        # What cannot be read again would make the file useless.
        wanted = ConnectionList((replace(connection, address=address),))
        connections_file.read(connections_file.write(wanted))
        old = next((c for c in self.all() if c.name == before), None)
        old_place = place = old.key if old else KeyStorage.NONE
        is_renamed = old is not None and before != name
        if key is None and is_renamed and place is not KeyStorage.NONE:
            # Keys are stored by the name of their connection.
            key = await self._keys.get(before, place)
        if key is not None:
            place = await self._keys.put(name, key) if key else KeyStorage.NONE
        connection = replace(connection, address=address, key=place)
        # In a thread: another program may have locked the file, and disks may be slow.
        await asyncio.to_thread(self._save, before, connection)
        if is_renamed or place is not old_place:
            await self._forget(before, old_place)
        if key and address.startswith("http:") and not is_loopback(address):
            notice = N_("The key is sent to {address} unencrypted. Use https if you can.")
            self._settings.notices.append(Sentence(notice, address=address))
        return connection

    def _save(self, before: str, connection: Connection) -> None:
        name = connection.name
        with self._settings.changing() as listing:
            self._check_free(before, name, listing)
            names = [c.name for c in listing.connections]
            if before in names:
                others = tuple(connection if c.name == before else c for c in listing.connections)
            else:
                others = (*listing.connections, connection)
            # The only connection was the default; it stays so when a second one is added.
            default = listing.default or (names[0] if len(names) == 1 else "")
            self._write(ConnectionList(others, name if default and default == before else default))

    def _check_free(self, before: str, name: str, listing: ConnectionList) -> None:
        if name != before and name in [c.name for c in listing.connections]:
            raise ProviderError(
                N_("A connection called {name} already exists."),
                N_("Choose another name."),
                name=name,
            )

    async def remove(self, name: str) -> None:
        connection = self.find(name)
        if connection.kind is ServerKind.TOUR:
            raise ProviderError(N_("The tour cannot be removed."))

        async def remove() -> None:
            await asyncio.to_thread(self._delete, name)
            await self._forget(name, connection.key)

        await self._shielded(remove())

    def _delete(self, name: str) -> None:
        with self._settings.changing() as listing:
            rest = tuple(c for c in listing.connections if c.name != name)
            default = "" if listing.default == name else listing.default
            self._write(ConnectionList(rest, default))

    def use(self, name: str, model: str | None = None) -> None:
        """Make a connection, and one of its models, the default."""
        self.find(name)
        with self._settings.changing() as listing:
            connections = tuple(
                replace(c, model=model) if c.name == name and model is not None else c
                for c in listing.connections
            )
            self._write(ConnectionList(connections, name))

    def set_seeing(self, name: str, model: str, *, sees: bool) -> None:
        """Save the user's word on whether a model sees pictures."""
        with self._settings.changing() as listing:
            connections = list(listing.connections)
            for number, one in enumerate(connections):
                if one.name == name:
                    others = tuple(seeing for seeing in one.seeing if seeing != model)
                    connections[number] = replace(one, seeing=(*others, model) if sees else others)
            self._write(replace(listing, connections=tuple(connections)))

    async def key_of(self, connection: Connection) -> str:
        """Return the stored key of a connection; "" if it has none."""
        return await self._keys.get(connection.name, connection.key)

    def server(self, connection: Connection, key: str | None = None) -> Server:
        """Return the server of a connection; `key` replaces the stored one."""
        if connection.kind is ServerKind.TOUR:
            from .tour.model import TourServer

            return TourServer(self._say)

        async def find_key() -> str:
            if key is not None:
                return key
            return await self.key_of(connection)

        # Imported late: requests takes a fifth of the time until the window appears.
        from .ollama import OllamaServer
        from .openai import OpenAIServer

        source = find_key if key is not None or connection.key is not KeyStorage.NONE else None
        kind = OpenAIServer if connection.kind is ServerKind.OPENAI else OllamaServer
        return kind(connection, source)

    async def _forget(self, name: str, place: KeyStorage) -> None:
        try:
            await self._keys.remove(name, place)
        except ProviderError as error:
            notice = N_("The old key of {name} could not be removed. {why}")
            self._settings.notices.append(Sentence(notice, name=name, why=error.message))

    def _write(self, listing: ConnectionList) -> None:
        self._settings.write(connections_file.write(listing))
