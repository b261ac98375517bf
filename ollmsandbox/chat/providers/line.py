# SPDX-License-Identifier: GPL-3.0-or-later
"""The line to a server, which can be cut from another thread at any moment."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from .address import is_loopback


class CutError(OSError):
    """The line was cut."""


class Line:
    """Holds on to the sockets of one exchange.

    By copies: TLS takes the original's number away, and a number that was closed may already be
    another file.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    def keep(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            if self._is_cut:
                sock.close()
                raise CutError
            self._sockets.append(sock.dup())
        return sock

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for sock in self._sockets:
                with contextlib.suppress(OSError):  # the server was first
                    sock.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Nobody reads any more."""
        with self._lock:
            self._is_cut = True
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()


class _Adapter(HTTPAdapter):
    """Connections whose sockets the line knows from the first moment: a server may take minutes
    before it answers at all."""

    def __init__(self, line: Line) -> None:
        self._pools = _pools(line)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *given: object, **named: object) -> None:
        super().init_poolmanager(*given, **named)  # type: ignore[arg-type]
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **named: object) -> PoolManager:
        manager: PoolManager = super().proxy_manager_for(proxy, **named)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(line: Line) -> dict[str, type[HTTPConnectionPool]]:
    class Http(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return line.keep(super()._new_conn())

    class Https(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return line.keep(super()._new_conn())

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


def _no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def open_session(line: Line, url: str) -> requests.Session:
    session = requests.Session()
    # Without one of its own, requests would send what ~/.netrc has for that host: any program
    # that listens on a local port could ask for it.
    session.auth = _no_login
    # The environment's proxy cannot know what "localhost" is here.
    session.trust_env = not is_loopback(url)
    session.verify = (
        os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    )
    adapter = _Adapter(line)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session
