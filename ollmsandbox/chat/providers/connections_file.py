# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the file of connections, which users may edit; errors name the line and key."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

import yaml

from ... import N_
from ...config.yaml_reader import Value, YamlSource, parse_yaml
from .base import DEFAULT_CONTEXT, ProviderError, Timeouts, ollama_root, openai_root
from .keys import KeyStorage
from .tour.model import NAME

_NAME = re.compile(r"[\w][\w .:@+-]{0,63}")
_HEADER = """\
# Connections to model servers. You can edit this file; the program rewrites it when you change
# connections there. API keys are stored elsewhere.
"""


class ServerKind(Enum):
    OLLAMA = "ollama"
    OPENAI = "openai"
    TOUR = "tour"


@dataclass(frozen=True)
class Connection:
    name: str
    kind: ServerKind
    address: str
    # The default model.
    model: str = ""
    key: KeyStorage = KeyStorage.NONE
    # The largest context of a model of Ollama, in tokens.
    room: int = DEFAULT_CONTEXT
    # Seconds without data after which the connection counts as lost.
    idle: float = Timeouts.idle


@dataclass(frozen=True)
class ConnectionList:
    connections: tuple[Connection, ...] = ()
    default: str = ""


TOUR = Connection("tour", ServerKind.TOUR, "", NAME)


class ConnectionsFileError(ProviderError):
    """The file of connections has a mistake."""


SOURCE = YamlSource(ConnectionsFileError)


def read(text: str) -> ConnectionList:
    """Return the list of connections. Raise ConnectionsFileError if the file has a mistake."""
    root = parse_yaml(text, SOURCE)
    if root is None:
        return ConnectionList()
    entries = root.mapping(("default", "connections"))
    default = entries["default"].text() if "default" in entries else ""
    listed = entries["connections"].mapping() if "connections" in entries else {}
    connections = tuple(_connection(name, value) for name, value in listed.items())
    if default and default not in (TOUR.name, *(c.name for c in connections)):
        why = N_("there is no connection {default}.")
        raise entries["default"].fail(why, default=repr(default))
    return ConnectionList(connections, default)


def _connection(name: str, value: Value) -> Connection:
    entries = value.mapping(("kind", "address", "model", "key", "room", "idle"))
    try:
        check_name(name)
    except ProviderError as error:
        raise value.fail(error.message) from None
    for key in ("kind", "address"):
        if key not in entries:
            raise value.missing(key)
    kind = ServerKind(entries["kind"].choice("ollama", "openai"))
    try:
        address = normal_address(kind, entries["address"].text())
    except ProviderError as error:
        raise entries["address"].fail(error.message) from None
    found = Connection(name, kind, address)
    if "model" in entries:
        found = replace(found, model=entries["model"].text())
    if "key" in entries:
        found = replace(
            found, key=KeyStorage(entries["key"].choice(*(k.value for k in KeyStorage)))
        )
    if "room" in entries:
        found = replace(found, room=int(entries["room"].number(1024, 1 << 24)))
    if "idle" in entries:
        found = replace(found, idle=entries["idle"].number(1, 86400))
    return found


def write(listing: ConnectionList) -> str:
    document: dict[str, object] = {"default": listing.default} if listing.default else {}
    document["connections"] = {c.name: _entry(c) for c in listing.connections}
    return _HEADER + yaml.safe_dump(document, allow_unicode=True, sort_keys=False)


def _entry(connection: Connection) -> dict[str, object]:
    entry: dict[str, object] = {"kind": connection.kind.value, "address": connection.address}
    if connection.model:
        entry["model"] = connection.model
    if connection.key is not KeyStorage.NONE:
        entry["key"] = connection.key.value
    if connection.room != DEFAULT_CONTEXT:
        entry["room"] = connection.room
    if connection.idle != Timeouts.idle:
        entry["idle"] = connection.idle
    return entry


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name == TOUR.name:
        raise ProviderError(
            N_("{name} is not a valid name for a connection."),
            N_(
                "Use up to 64 letters, digits, spaces, hyphens, underscores or periods. The "
                "name “tour” is reserved."
            ),
            name=repr(name[:80]),
        )


def normal_address(kind: ServerKind, address: str) -> str:
    return openai_root(address) if kind is ServerKind.OPENAI else ollama_root(address)
