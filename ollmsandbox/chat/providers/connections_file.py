# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the file of connections, which users may edit; errors name the line and key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

import yaml

from ... import N_
from ...errors import sentence
from .base import DEFAULT_CONTEXT, ProviderError, Timeouts, ollama_root, openai_root
from .keys import KeyStorage
from .tour.model import NAME


def read_yaml(text: str) -> ConnectionList:
    """Raise ConnectionsFileError if the file has a mistake."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConnectionsFileError(
            N_("line {line}: {problem}."), line=line, problem=error.problem
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConnectionsFileError(N_("it is not YAML.")) from error
    if root is None or root.tag.endswith(":null"):
        return ConnectionList()
    return _Reader().listing(root)


@dataclass
class _Reader:
    """Reads the nodes, because they know their lines."""

    where: str = field(default="")

    def listing(self, node: yaml.Node) -> ConnectionList:
        default = ""
        connections: list[Connection] = []
        for key, value in self._mapping(node, "").items():
            if key == "default":
                default = self._text(value, key)
            elif key == "connections":
                for name, entry in self._mapping(value, key).items():
                    connections.append(self._connection(name, entry))
            else:
                raise self._wrong(value, key, N_("there is no such key."))
        if default and default not in (TOUR.name, *(c.name for c in connections)):
            raise ConnectionsFileError(
                N_("key default: there is no connection {default}."), default=repr(default)
            )
        return ConnectionList(tuple(connections), default)

    def _connection(self, name: str, node: yaml.Node) -> Connection:
        where = f"connections.{name}"
        entries = self._mapping(node, where)
        try:
            check_name(name)
        except ProviderError as error:
            raise self._wrong(node, where, error.message) from None
        given: dict[str, str] = {}
        for key, value in entries.items():
            if key not in ("kind", "address", "model", "key", "room", "idle"):
                raise self._wrong(value, f"{where}.{key}", N_("there is no such key."))
            given[key] = self._text(value, f"{where}.{key}")
        for key in ("kind", "address"):
            if key not in given:
                raise self._wrong(node, where, N_("{name} is missing."), name=repr(key))

        def fail(key: str, why: str) -> ConnectionsFileError:
            return self._wrong(entries[key], f"{where}.{key}", why)

        if given["kind"] not in ("ollama", "openai"):
            raise fail("kind", N_("expected ollama or openai."))
        if given.get("key", "none") not in [place.value for place in KeyStorage]:
            raise fail("key", N_("expected none, keyring or file."))
        if not _is_number(given.get("room", "1024"), 1024, 1 << 24):
            raise fail("room", N_("expected a number of tokens, at least 1024."))
        if not _is_number(given.get("idle", "1"), 1, 86400):
            raise fail("idle", N_("expected a number of seconds, at most 86400."))
        kind = ServerKind(given["kind"])
        try:
            address = normal_address(kind, given["address"])
        except ProviderError as error:
            raise fail("address", error.message) from None
        return Connection(
            name,
            kind,
            address,
            given.get("model", ""),
            KeyStorage(given.get("key", "none")),
            int(given.get("room", DEFAULT_CONTEXT)),
            float(given.get("idle", Timeouts.idle)),
        )

    def _mapping(self, node: yaml.Node | None, where: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, where, N_("expected keys with values."))
        entries: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self._text(key_node, where)
            if key in entries:
                raise self._wrong(key_node, where, N_("{name} appears twice."), name=repr(key))
            entries[key] = value
        return entries

    def _text(self, node: yaml.Node, where: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
            raise self._wrong(node, where, N_("expected a text."))
        return str(node.value)

    def _wrong(
        self, node: yaml.Node | None, where: str, why: str, **fields: object
    ) -> ConnectionsFileError:
        line = node.start_mark.line + 1 if node is not None else 1
        return ConnectionsFileError(
            N_("line {line}, key {key}: {why}") if where else N_("line {line}: {why}"),
            line=line,
            key=where,
            why=sentence(why, **fields),
        )


def _is_number(text: str, least: int, most: int) -> bool:
    return re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", text) is not None and (
        least <= float(text) <= most
    )


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


def read(text: str) -> ConnectionList:
    """Raise ConnectionsFileError if the file has a mistake."""
    return read_yaml(text)


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
            N_("Use up to 64 letters, digits, spaces and - _ . but not the name tour."),
            name=repr(name[:80]),
        )


def normal_address(kind: ServerKind, address: str) -> str:
    return openai_root(address) if kind is ServerKind.OPENAI else ollama_root(address)
