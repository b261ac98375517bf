# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers a sandbox's DNS queries. Each name gets an address that only means something inside, and
no query leaves this computer."""

from __future__ import annotations

import ipaddress
import re
import struct

from ...net.addresses import is_local_name

# For tests of networks, so no server has an address of it (RFC 2544).
RANGE = ipaddress.ip_network("198.18.0.0/15")
MASK = str(RANGE.netmask)

_MOST_NAMES = 20_000
_TTL = 600
_A, _ANY, _INTERNET = 1, 255, 1
_NO_ERROR, _FORMAT_ERROR, _SERVER_FAILURE, _NO_SUCH_NAME, _REFUSED = 0, 1, 2, 3, 5
_HEADER = struct.Struct(">6H")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


class Names:
    """The names that a command asked for, and the address of each."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str | None:
        """Return the address of a name; None if there are too many names."""
        if name not in self._addresses:
            if len(self._addresses) >= _MOST_NAMES:
                return None
            address = str(RANGE[2 + len(self._addresses)])
            self._addresses[name] = address
            self._names[address] = name
        return self._addresses[name]

    def add(self, address: str, name: str) -> None:
        """Let a real address stand for a name, or for itself."""
        self._names[address] = name

    def name_of(self, address: str) -> str | None:
        return self._names.get(address)

    def answer(self, query: bytes) -> bytes | None:
        """Return the answer to a DNS query; None if it is not even a query."""
        if len(query) < _HEADER.size:
            return None
        number, flags, questions, *_others = _HEADER.unpack_from(query)
        if flags & 0x8000:
            return None
        found = _read_question(query) if questions == 1 and not flags & 0x7800 else None
        if found is None:
            return _HEADER.pack(number, 0x8180 | _FORMAT_ERROR, 0, 0, 0, 0)
        name, kind, class_, question = found
        code, records = self._look_up(name, kind, class_)
        # Recursion was desired, and is available.
        flags = 0x8180 | code
        return _HEADER.pack(number, flags, 1, len(records), 0, 0) + question + b"".join(records)

    def _look_up(self, name: str, kind: int, class_: int) -> tuple[int, list[bytes]]:
        if class_ != _INTERNET:
            return _REFUSED, []
        if not is_host_name(name) or name.endswith(".arpa") or is_local_name(name):
            return _NO_SUCH_NAME, []
        if kind not in (_A, _ANY):
            return _NO_ERROR, []
        address = self.address_of(name)
        if address is None:
            return _SERVER_FAILURE, []
        packed = ipaddress.IPv4Address(address).packed
        # The name is that of the question, at byte 12.
        return _NO_ERROR, [struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, _TTL, 4) + packed]


def is_host_name(name: str) -> bool:
    """Return whether a text is a host's name in ASCII and lower case, not an address."""
    labels = name.split(".")
    is_short = len(name) <= 253 and all(_LABEL.fullmatch(label) for label in labels)
    # A program would take 1.2 or 0x7f.1 for an address.
    return is_short and not re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1])


def _read_question(query: bytes) -> tuple[str, int, int, bytes] | None:
    """Return the name, type and class of the question, and its bytes."""
    labels: list[str] = []
    at = _HEADER.size
    while at < len(query) and (size := query[at]):
        if size > 63 or at + size >= len(query):
            return None
        labels.append(query[at + 1 : at + 1 + size].decode("latin-1").lower())
        at += 1 + size
    end = at + 5
    if not labels or end > len(query):
        return None
    kind, class_ = struct.unpack_from(">HH", query, at + 1)
    return ".".join(labels), kind, class_, query[_HEADER.size : end]
