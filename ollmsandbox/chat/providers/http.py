# SPDX-License-Identifier: GPL-3.0-or-later
"""One question to a server and its answer, carried by a thread of its own.

The line to a server, which can be cut from another thread at any moment.

One question to a server and its answer, carried by a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ... import N_, __version__
from .address import is_loopback
from .base import ProviderError, Timeouts
from .errors import broke_off, from_exception


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


__all__ = ["Exchange", "Request", "Timeouts"]

# So many pieces may wait for the reader; then the thread waits, and with it the server.
_MOST_WAITING = 64
_PIECE = 64 * 1024
_MOST = 64 << 20


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    body: Mapping[str, object] | None = field(default=None, repr=False)
    # They may hold the key.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class _Head:
    status: int
    headers: Mapping[str, str]


class _Over:
    """The thread has nothing more to say."""


_Item = _Head | bytes | Exception | _Over


class Exchange:
    """`async with` waits for the head of the answer; leaving the block, or cancelling who is in
    it, cuts the line at once."""

    def __init__(self, request: Request, timeouts: Timeouts, most: int = _MOST) -> None:
        self._request = request
        self._timeouts = timeouts
        self._most = most
        self._line = Line()
        self._turn = threading.Condition()
        self._waiting = 0
        self._read = 0
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> Exchange:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        # A daemon: looking up a name cannot be interrupted and must not hold up the program's end.
        threading.Thread(target=self._work, name="model server", daemon=True).start()
        try:
            head = await self._next()
            if not isinstance(head, _Head):
                raise broke_off(self._request.url)
        except BaseException:
            self._cut()
            raise
        self.status, self.headers = head.status, head.headers
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cut()

    async def read(self) -> bytes:
        """What came next; empty at the end."""
        item = await self._next()
        if not isinstance(item, bytes):
            raise broke_off(self._request.url)
        self._read += len(item)
        if self._read > self._most:
            raise ProviderError(
                N_("The server's answer was cut off after {size} MiB."),
                N_("The model may be repeating itself."),
                size=self._most >> 20,
            )
        return item

    async def read_all(self, most: int) -> bytes:
        """As much of it."""
        data = b""
        while len(data) < most and (piece := await self.read()):
            data += piece
        return data[:most]

    async def _next(self) -> _Item:
        item = await self._queue.get()
        with self._turn:
            self._waiting -= 1
            self._turn.notify()
        if isinstance(item, Exception):
            raise from_exception(item, self._request.url, self._timeouts.idle) from None
        return item

    def _cut(self) -> None:
        self._line.cut()
        with self._turn:
            self._turn.notify()

    # In the thread.

    def _work(self) -> None:
        try:
            try:
                self._talk()
            except CutError:
                return
            except (
                requests.RequestException,
                urllib3.exceptions.HTTPError,
                http.client.HTTPException,
                OSError,
                ValueError,
            ) as error:
                self._post(error)
            finally:
                self._post(_Over())
        except CutError:
            pass  # nobody waits for it
        finally:
            self._line.release()

    def _talk(self) -> None:
        request = self._request
        body = None
        headers = {
            "User-Agent": f"OllmSandbox/{__version__}",
            "Accept": "*/*",
            # A compressed stream comes late.
            "Accept-Encoding": "identity",
            **request.headers,
        }
        if request.body is not None:
            body = json.dumps(request.body, ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        with (
            open_session(self._line, request.url) as session,
            session.request(
                request.method,
                request.url,
                data=body,
                headers=headers,
                stream=True,
                # A conversation goes where the person sent it, and nowhere else.
                allow_redirects=False,
                timeout=(self._timeouts.connect, self._timeouts.idle),
            ) as response,
        ):
            self._post(_Head(response.status_code, dict(response.headers.lower_items())))
            while data := response.raw.read1(_PIECE, decode_content=True):
                self._post(data)
            self._post(b"")

    def _post(self, item: _Item) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._waiting < _MOST_WAITING or self._line.is_cut)
            if self._line.is_cut:
                raise CutError
            self._waiting += 1
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError as error:
            raise CutError from error  # the loop was closed
