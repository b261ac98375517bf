# SPDX-License-Identifier: GPL-3.0-or-later
"""Reaches hosts through the proxy that the user's environment names. It gets a host's name, and
looks the address up."""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ...net.addresses import Address, proxy_for

# Yields what to send to the proxy, is sent what it answers, and returns what follows after that.
Handshake = Generator[bytes, bytes, bytes]

_SCHEMES = {80: "http", 443: "https"}
_PORTS = {"http": 80, "socks": 1080, "socks5": 1080, "socks5h": 1080}
_LARGEST = 1 << 16
_SOCKS, _CONNECT, _BY_NAME = 5, 1, 3
_NO_LOGIN, _LOGIN = 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4


class ProxyError(Exception):
    """The proxy does not connect."""


class Proxy(NamedTuple):
    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @classmethod
    def find(cls, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
        """Return the proxy for a host, or None to connect directly."""
        # For other ports, the one that is for all protocols.
        url = proxy_for(Address(_SCHEMES.get(port, "tcp"), host, port, "/"), environ)
        if not url:
            return None
        try:
            parts = urlsplit(url)
            number = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            return cls("", url[:80], 0)
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
        return cls(parts.scheme, parts.hostname or "", number, *login)

    def __str__(self) -> str:
        """Return its name for the user, without the password."""
        return f"{self.host}:{self.port}"

    def handshake(self, host: str, port: int) -> Handshake:
        """Have the proxy connect to a host. Raise ProxyError if it does not."""
        if self.scheme == "http":
            return self._ask_http(host, port)
        if self.scheme in _PORTS:
            return self._ask_socks(host, port)
        raise ProxyError

    def _ask_http(self, host: str, port: int) -> Handshake:
        lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {login}")
        answer = yield "\r\n".join([*lines, "", ""]).encode()
        while b"\r\n\r\n" not in answer:
            answer = yield from _more(answer)
        head, _end, rest = answer.partition(b"\r\n\r\n")
        if head.split()[1:2] != [b"200"]:
            raise ProxyError
        return rest

    def _ask_socks(self, host: str, port: int) -> Handshake:
        methods = [_NO_LOGIN, _LOGIN] if self.user else [_NO_LOGIN]
        answer = yield bytes([_SOCKS, len(methods), *methods])
        answer = yield from _at_least(answer, 2)
        if answer[1] == _LOGIN and self.user:
            user, password = self.user.encode()[:255], self.password.encode()[:255]
            answer = yield b"\x01%c%b%c%b" % (len(user), user, len(password), password)
            answer = yield from _at_least(answer, 2)
        if answer[1] != 0:
            raise ProxyError
        name = host.encode()
        start = bytes([_SOCKS, _CONNECT, 0, _BY_NAME, len(name)])
        answer = yield start + name + port.to_bytes(2, "big")
        answer = yield from _at_least(answer, 5)
        sizes = {_IPV4: 4, _NAME: 1 + answer[4], _IPV6: 16}
        if answer[1] != 0 or answer[3] not in sizes:
            raise ProxyError
        end = 4 + sizes[answer[3]] + 2
        return (yield from _at_least(answer, end))[end:]


def _at_least(answer: bytes, size: int) -> Handshake:
    while len(answer) < size:
        answer = yield from _more(answer)
    return answer


def _more(answer: bytes) -> Handshake:
    if len(answer) > _LARGEST:
        raise ProxyError
    return answer + (yield b"")
