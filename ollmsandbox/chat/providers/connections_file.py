# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of connections: people may write it, every mistake is named by line and key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ... import N_
from .address import ollama_root, openai_root
from .base import ProviderError
from .keys import Place
from .tour import NAME
from .usual import ROOM, Timeouts

_NAME = re.compile(r"[\w][\w .:@+-]{0,63}")
_HEADER = """\
# Where models come from. You can edit this by hand; the program writes it anew when something is
# changed there. API keys are kept elsewhere.
"""


class Kind(Enum):
    OLLAMA = "ollama"
    OPENAI = "openai"
    TOUR = "tour"


@dataclass(frozen=True)
class Connection:
    name: str
    kind: Kind
    address: str
    # The one to begin with.
    model: str = ""
    key: Place = Place.NONE
    # How many tokens a model of Ollama is given at most.
    room: int = ROOM
    # Seconds of silence until it counts as lost.
    idle: float = Timeouts.idle


@dataclass(frozen=True)
class Listing:
    connections: tuple[Connection, ...] = ()
    default: str = ""


TOUR = Connection("tour", Kind.TOUR, "", NAME)


class FileError(ProviderError):
    """The file has a mistake."""


def read(text: str) -> Listing:
    """Raises FileError."""
    # Here, because YAML takes long to load, and at first there is no such file.
    from .connections_reader import read_yaml

    return read_yaml(text)


def write(listing: Listing) -> str:
    import yaml

    document: dict[str, object] = {"default": listing.default} if listing.default else {}
    document["connections"] = {c.name: _entry(c) for c in listing.connections}
    return _HEADER + yaml.safe_dump(document, allow_unicode=True, sort_keys=False)


def _entry(connection: Connection) -> dict[str, object]:
    entry: dict[str, object] = {"kind": connection.kind.value, "address": connection.address}
    if connection.model:
        entry["model"] = connection.model
    if connection.key is not Place.NONE:
        entry["key"] = connection.key.value
    if connection.room != ROOM:
        entry["room"] = connection.room
    if connection.idle != Timeouts.idle:
        entry["idle"] = connection.idle
    return entry


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name == TOUR.name:
        raise ProviderError(
            N_("{name} cannot be the name of a connection."),
            N_("Use letters, digits, spaces and - _ . up to 64 of them, and not the word tour."),
            name=repr(name[:80]),
        )


def normal_address(kind: Kind, address: str) -> str:
    return openai_root(address) if kind is Kind.OPENAI else ollama_root(address)
