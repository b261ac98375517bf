# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the file of connections, which users may edit; errors name the line and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from ... import N_
from ...config.yaml_reader import Value, YamlSource, parse_yaml
from .base import Effort, Price, ProviderError, Usage, ollama_root, openai_root
from .keys import KeyStorage
from .tour import NAME

_NAME = re.compile(r"[\w][\w .:@+-]{0,63}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
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
    """How to reach a model server."""

    name: str
    kind: ServerKind
    address: str
    # The default model.
    model: str = ""
    key: KeyStorage = KeyStorage.NONE
    # The size of the context and the longest answer, in tokens; None leaves them to the server.
    room: int | None = None
    answer: int | None = None
    effort: Effort | None = None
    temperature: float | None = None
    # Names and values of headers that go with each request.
    headers: tuple[tuple[str, str], ...] = ()
    price: Price | None = None
    # Models that see pictures although the server does not say so.
    seeing: tuple[str, ...] = ()
    # Seconds until a server has to accept a connection, and without data after which the connection
    # counts as lost: a model may think for minutes before it answers.
    connect: float = 10.0
    idle: float = 300.0

    def usage(self, prompt: int, reply: int) -> Usage:
        return Usage(prompt, reply, self.price.of(prompt, reply) if self.price else None)


@dataclass(frozen=True)
class ConnectionList:
    """The connections in the file, and the name of the default one."""

    connections: tuple[Connection, ...] = ()
    default: str = ""


TOUR = Connection("tour", ServerKind.TOUR, "", NAME)
# With all settings as they are unless the file says otherwise.
_UNSET = Connection("", ServerKind.OLLAMA, "")


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
    entries = value.mapping(("kind", "address", *_SETTINGS))
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
    settings = {key: parse(entries[key]) for key, parse in _SETTINGS.items() if key in entries}
    return Connection(name, kind, address, **settings)  # type: ignore[arg-type]


def _headers(value: Value) -> tuple[tuple[str, str], ...]:
    headers = tuple((name, text.text()) for name, text in value.mapping().items())
    try:
        check_headers(headers)
    except ProviderError as error:
        raise value.fail(error.message) from None
    return headers


def _price(value: Value) -> Price:
    prices = value.mapping(("input", "output"))
    for key in ("input", "output"):
        if key not in prices:
            raise value.missing(key)
    return Price(prices["input"].number(0, 1 << 20), prices["output"].number(0, 1 << 20))


_SETTINGS: dict[str, Callable[[Value], object]] = {
    "model": Value.text,
    "key": lambda value: KeyStorage(value.choice(*(storage.value for storage in KeyStorage))),
    "room": lambda value: int(value.number(1024, 1 << 24)),
    "answer": lambda value: int(value.number(1, 1 << 24)),
    "effort": lambda value: Effort(value.choice(*(effort.value for effort in Effort))),
    "temperature": lambda value: value.number(0, 5),
    "headers": _headers,
    "price": _price,
    "seeing": Value.texts,
    "connect": lambda value: value.number(1, 3600),
    "idle": lambda value: value.number(1, 86400),
}


# What is not written as it is.
_WRITERS: dict[str, Callable[[Any], object]] = {
    "key": attrgetter("value"),
    "effort": attrgetter("value"),
    "headers": dict,
    "price": lambda price: {"input": price.prompt, "output": price.reply},
    "seeing": list,
}


def write(listing: ConnectionList) -> str:
    document: dict[str, object] = {"default": listing.default} if listing.default else {}
    document["connections"] = {c.name: _entry(c) for c in listing.connections}
    import yaml  # takes 25 ms, and the window does not need it to open

    return _HEADER + yaml.safe_dump(document, allow_unicode=True, sort_keys=False)


def _entry(connection: Connection) -> dict[str, object]:
    entry: dict[str, object] = {"kind": connection.kind.value, "address": connection.address}
    for name in _SETTINGS:
        value = getattr(connection, name)
        if value != getattr(_UNSET, name):
            entry[name] = _WRITERS[name](value) if name in _WRITERS else value
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


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    for name, value in headers:
        is_text = value.isprintable() and value.isascii() and value == value.strip()
        if not _HEADER_NAME.fullmatch(name) or not is_text:
            raise ProviderError(
                N_("{name} is not a valid header."),
                N_("Write it as NAME: VALUE, in ASCII."),
                name=repr(f"{name}: {value}"[:80]),
            )


def normal_address(kind: ServerKind, address: str) -> str:
    return openai_root(address) if kind is ServerKind.OPENAI else ollama_root(address)
