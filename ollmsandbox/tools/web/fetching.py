# SPDX-License-Identifier: GPL-3.0-or-later
"""One request to one address, in a thread of its own, that can be given up at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from ... import N_, __version__
from ...errors import Sentence
from ..base import ToolError
from .addresses import Address

MOST = 2 << 20

_CHUNK = 1 << 16
_HEADERS = {
    "User-Agent": f"ollmsandbox/{__version__}",
    "Accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5",
    # What is packed tightly could be far larger than it looks.
    "Accept-Encoding": "identity",
    "Connection": "close",
}
_PACKED = ("gzip", "x-gzip", "deflate")

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    status: int
    reason: str
    kind: str
    location: str
    body: bytes = b""
    # There was more than is read of any page.
    is_cut: bool = False
    size: int | None = None


class Fetch:
    """`numbers` are the only addresses that are connected to; with a proxy, it connects."""

    def __init__(
        self, address: Address, numbers: Sequence[str], *, proxy: str, verify: str | bool
    ) -> None:
        self._address = address
        self._numbers = numbers
        self._proxy = proxy
        self._verify = verify
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._given_up = False

    async def run(self, seconds: float, wanted: Callable[[str], bool]) -> Answer:
        """Only the body of a kind that is wanted is read."""
        until = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                return await in_thread(lambda: self._fetch(until, wanted))
        except TimeoutError as error:
            raise ToolError(N_("ERROR: {host} took too long."), host=self._address.host) from error
        finally:
            self.give_up()

    def give_up(self) -> None:
        """What waits at a socket comes back at once."""
        with self._lock:
            self._given_up = True
            while self._sockets:
                with contextlib.suppress(OSError), self._sockets.pop() as one:
                    one.shutdown(socket.SHUT_RDWR)

    def _fetch(self, until: float, wanted: Callable[[str], bool]) -> Answer:
        with requests.Session() as session:
            # No cookies of others, no password file, and proxies only as they were looked up.
            session.trust_env = False
            session.headers.clear()
            if not self._proxy:
                adapter = _Pinned(self._connect)
                session.mount("http://", adapter)
                session.mount("https://", adapter)
            patience = max(0.1, until - time.monotonic())
            try:
                with session.get(
                    self._address.text,
                    headers=_HEADERS,
                    proxies={self._address.scheme: self._proxy} if self._proxy else {},
                    allow_redirects=False,
                    stream=True,
                    timeout=(min(10.0, patience), patience),
                    verify=self._verify,
                ) as response:
                    return self._read(response, until, wanted)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                raise ToolError(
                    N_("ERROR: {host}: {why}"), host=self._address.host, why=_why(error)
                ) from error
            except (ValueError, zlib.error) as error:
                raise ToolError(
                    N_("ERROR: {host} sent a broken answer."), host=self._address.host
                ) from error

    def _read(
        self, response: requests.Response, until: float, wanted: Callable[[str], bool]
    ) -> Answer:
        headers = response.headers
        kind = headers.get("Content-Type", "")
        told = headers.get("Content-Length", "")
        size = int(told) if told.isascii() and told.isdecimal() and len(told) < 19 else None
        location = headers.get("Location", "") if 300 <= response.status_code < 400 else ""
        answer = Answer(response.status_code, response.reason or "", kind, location, size=size)
        packed = headers.get("Content-Encoding", "").strip().lower()
        if location or not wanted(kind):
            return answer
        if packed not in ("", "identity", *_PACKED):
            raise ToolError(
                N_("ERROR: The page is packed in a way that is not known: {kind}."),
                kind=packed[:20],
            )
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed in _PACKED else None
        body = bytearray()
        while len(body) <= MOST:
            if time.monotonic() > until or self._given_up:
                raise ToolError(N_("ERROR: {host} took too long."), host=self._address.host)
            data = response.raw.read1(_CHUNK) if _HAS_READ1 else response.raw.read(_CHUNK)
            if not data:
                break
            room = MOST + 1 - len(body)
            body += unpack.decompress(data, room) if unpack else data[:room]
        cut = len(body) > MOST
        return Answer(
            answer.status, answer.reason, kind, "", bytes(body[:MOST]), is_cut=cut, size=size
        )

    def _connect(self, port: int, timeout: float | None) -> socket.socket:
        failed: OSError = OSError("There is no address.")
        for number in self._numbers:
            if self._given_up:
                break
            family = socket.AF_INET6 if ":" in number else socket.AF_INET
            made = socket.socket(family, socket.SOCK_STREAM)
            with self._lock:
                # A second one of the same connection: TLS takes the first one over.
                self._sockets.append(made.dup())
            try:
                made.settimeout(timeout)
                made.connect((number, port))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            except OSError as error:
                failed = error
                made.close()
        raise failed


class _Pinned(HTTPAdapter):
    """Connects where it is told. TLS still asks for the name that the address has."""

    def __init__(self, connect: Callable[[int, float | None], socket.socket]) -> None:
        self._connect = connect
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: object, **options: object) -> None:
        super().init_poolmanager(*arguments, **options)  # type: ignore[arg-type]
        connect = self._connect

        def new_connection(connection: HTTPConnection) -> socket.socket:
            timeout = connection.timeout
            try:
                seconds = timeout if isinstance(timeout, int | float) else None
                return connect(int(connection.port or 0), seconds)
            except OSError as error:
                raise NewConnectionError(connection, str(error)) from error

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return new_connection(self)

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return new_connection(self)

        class PlainPool(urllib3.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


_HAS_READ1 = hasattr(urllib3.HTTPResponse, "read1")


async def in_thread(work: Callable[[], T]) -> T:
    """Not of a pool: those are waited for when the program ends, and a look-up may take long."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where this is awaited
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True, name="web-fetch").start()
    return await done


def _why(error: Exception) -> Sentence:
    """In words; the library's own name the objects it is made of."""
    if isinstance(error, requests.exceptions.SSLError):
        return Sentence(N_("the connection is not secure (its certificate was not accepted)."))
    if isinstance(error, requests.exceptions.Timeout | TimeoutError):
        return Sentence(N_("it took too long."))
    if isinstance(error, requests.exceptions.ProxyError):
        return Sentence(N_("the proxy could not be reached, or refused."))
    if isinstance(error, requests.exceptions.ConnectionError):
        return Sentence(N_("no connection, or it broke off."))
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return Sentence(N_("the address, or that of the proxy, cannot be used."))
    return Sentence(N_("the answer broke off or makes no sense."))
