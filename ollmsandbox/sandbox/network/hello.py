# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the server's name in the first bytes of a TLS connection. Nothing is decrypted."""

from __future__ import annotations

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
# A hello may be as large as a record and a bit more.
_LARGEST = 1 << 16


class NotYet(Exception):
    """More bytes are needed."""


def server_name(data: bytes) -> str | None:
    """Return the name that a TLS hello asks for; None if it has none, or if this is not TLS. Raise
    NotYet if only the beginning is there, and ConnectionAbortedError if the server might find a
    name where we cannot: in a hello that is too large or broken."""
    try:
        hello = _hello(data)
        return None if hello is None else _name_in(hello)
    except (IndexError, UnicodeDecodeError):
        raise ConnectionAbortedError from None


def _hello(data: bytes) -> bytes | None:
    """Return the hello without the records around it; None if this is not one."""
    message = b""
    at = 0
    while True:
        head = data[at : at + 5]
        if not b"\x16\x03".startswith(head[:2]):
            # Some servers ignore an alert before the hello, or in it.
            if at or head[:2] == b"\x15\x03":
                raise ConnectionAbortedError
            if head == b"\x15":
                raise NotYet
            return None
        if len(head) < 5:
            raise NotYet
        size = int.from_bytes(head[3:5], "big")
        # Empty records could go on for ever.
        if not size or at > 2 * _LARGEST:
            raise ConnectionAbortedError
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if message and message[0] != _CLIENT_HELLO:
            return None
        if len(message) >= 4:
            whole = 4 + int.from_bytes(message[1:4], "big")
            if whole > _LARGEST:
                raise ConnectionAbortedError
            if len(message) >= whole:
                return message[4:whole]
        if at >= len(data):
            raise NotYet


def _name_in(hello: bytes) -> str | None:
    at = 2 + 32
    at += 1 + hello[at]  # session
    at += 2 + int.from_bytes(hello[at : at + 2], "big")  # ciphers
    at += 1 + hello[at]  # compression
    at += 2
    while at + 4 <= len(hello):
        kind, size = (int.from_bytes(hello[n : n + 2], "big") for n in (at, at + 2))
        at += 4
        if kind == _SERVER_NAME:
            length = int.from_bytes(hello[at + 3 : at + 5], "big")
            # A server may pass over names of another type.
            if hello[at + 2] or size != 5 + length:
                raise ConnectionAbortedError
            return hello[at + 5 : at + 5 + length].decode("ascii").lower().rstrip(".")
        at += size
    return None
