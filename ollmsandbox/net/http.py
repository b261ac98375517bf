# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request and its response, on top of requests.

`open_response` blocks; `Exchange` does the same in a thread for a coroutine and can be cancelled
at any moment. Redirects are never followed here: callers decide where a request may go. Failures
are raised as NetError.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import get_auth_from_url
from urllib3 import PoolManager
from urllib3 import exceptions as urllib3_errors
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.connection import create_connection

from .. import N_, __version__
from ..errors import NetError, Sentence
from ..loop import start_daemon
from .addresses import is_loopback, server_of

_PIECE = 64 * 1024
_HEADERS = {
    "User-Agent": f"ollmsandbox/{__version__}",
    "Accept": "*/*",
    # A compressed stream arrives late.
    "Accept-Encoding": "identity",
    "Connection": "close",
}


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    body: bytes | None = field(default=None, repr=False)
    # They may contain an API key.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # In seconds; the second one is for the time between two pieces of the response.
    connect_timeout: float = 10.0
    idle_timeout: float = 300.0
    # "" connects directly; None does what the environment says, but never for this machine.
    proxy: str | None = None
    # A file of certificates; "" takes what the environment says, or the system's.
    ca_bundle: str = ""
    # Returns the only addresses that may be connected to; called before anything is sent.
    lookup: Callable[[], Sequence[str]] | None = field(default=None, repr=False)


# --- blocking ------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_response(
    request: Request, sockets: CancellableSockets | None = None
) -> Iterator[requests.Response]:
    """Send the request and yield the response once its head has arrived. The body is read with
    `read_pieces`; other errors inside the block pass through unchanged."""
    with contextlib.ExitStack() as stack:
        if sockets is None:
            sockets = stack.enter_context(contextlib.closing(CancellableSockets()))
        session = stack.enter_context(requests.Session())
        with net_errors(request):
            response = stack.enter_context(_send(session, request, sockets))
        yield response


def read_pieces(
    request: Request, response: requests.Response, *, decode: bool = False
) -> Iterator[bytes]:
    """Yield the body as it arrives, decompressed if asked to: urllib3 keeps each piece small."""
    with net_errors(request):
        while data := response.raw.read1(_PIECE, decode_content=decode):
            yield data


def _send(
    session: requests.Session, request: Request, sockets: CancellableSockets
) -> requests.Response:
    # The proxy of the environment cannot know what "localhost" is here.
    session.trust_env = request.proxy is None and not is_loopback(request.url)
    # Only a name and password from the address itself. Otherwise requests would send what
    # ~/.netrc has for the host: any program that listens on a local port could ask for it.
    name, password = get_auth_from_url(request.url)
    session.auth = HTTPBasicAuth(name, password) if name else lambda prepared: prepared
    session.headers.clear()
    addresses = request.lookup() if request.lookup else None
    adapter = _Adapter(sockets, addresses)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session.request(
        request.method,
        request.url,
        data=request.body,
        headers={**_HEADERS, **request.headers},
        stream=True,
        allow_redirects=False,
        timeout=(request.connect_timeout, request.idle_timeout),
        proxies={"http": request.proxy, "https": request.proxy} if request.proxy else None,
        verify=request.ca_bundle or ca_bundle(os.environ) or True,
    )


def ca_bundle(environ: Mapping[str, str]) -> str:
    """Return the file of certificates that the environment names, or "" for the system's."""
    return environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or ""


class CancelledExchangeError(OSError):
    """The exchange was cancelled from another thread."""


class CancellableSockets:
    """The sockets of one exchange, which another thread can shut down.

    Keeps duplicates: TLS takes over the original's descriptor, and the number of a closed one may
    already belong to another file.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_cancelled = False

    def add(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            if self.is_cancelled:
                sock.close()
                raise CancelledExchangeError
            self._sockets.append(sock.dup())
        return sock

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            for sock in self._sockets:
                with contextlib.suppress(OSError):  # the server was faster
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self.is_cancelled = True
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()


class _Adapter(HTTPAdapter):
    """Registers each socket as soon as it is connected (a server may take minutes before it sends
    anything), and connects only to the given addresses, if any. TLS still checks the host name."""

    def __init__(self, sockets: CancellableSockets, addresses: Sequence[str] | None) -> None:
        self._sockets = sockets
        self._addresses = addresses
        super().__init__(max_retries=0)

    def init_poolmanager(self, *given: object, **named: object) -> None:
        super().init_poolmanager(*given, **named)  # type: ignore[arg-type]
        self.poolmanager.pool_classes_by_scheme = _pools(self._sockets, self._addresses)

    def proxy_manager_for(self, proxy: str, **named: object) -> PoolManager:
        manager: PoolManager = super().proxy_manager_for(proxy, **named)
        if not proxy.lower().startswith("socks"):
            # The address of the proxy is the user's choice.
            manager.pool_classes_by_scheme = _pools(self._sockets, None)
        return manager


def _pools(
    sockets: CancellableSockets, addresses: Sequence[str] | None
) -> dict[str, type[HTTPConnectionPool]]:
    class Http(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            if addresses is None:
                return sockets.add(super()._new_conn())
            return sockets.add(_connect(self, addresses))

    class Https(Http, HTTPSConnection):
        pass

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


def _connect(connection: HTTPConnection, addresses: Sequence[str]) -> socket.socket:
    """Connect to the first of the addresses that accepts."""
    failure = OSError("no address")
    for address in addresses:
        try:
            return create_connection(
                (address, connection.port or 0),
                connection.timeout,
                socket_options=connection.socket_options,
            )
        except OSError as error:
            failure = error
    raise urllib3_errors.NewConnectionError(connection, str(failure)) from failure


# --- for coroutines ------------------------------------------------------------------------------


# The head of the response, then pieces of its body. None: the thread has nothing more to send.
_Item = requests.Response | bytes | NetError | None


class Exchange:
    """`async with` waits for the head of the response. Leaving the block, or cancelling the task
    inside it, closes the connection at once."""

    def __init__(self, request: Request, limit: int = 64 << 20) -> None:
        self._request = request
        self._limit = limit
        self._sockets = CancellableSockets()
        self._room = threading.Condition()
        self._queued = 0
        self._read = 0
        self.status = 0
        self.reason = ""
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> Exchange:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        # A name lookup cannot be interrupted and must not delay the end of the program.
        start_daemon("http", self._work)
        try:
            head = await self._next()
            if not isinstance(head, requests.Response):
                raise connection_lost(self._request.url)
        except BaseException:
            self._cancel()
            raise
        self.status, self.reason = head.status_code, head.reason or ""
        self.headers = dict(head.headers.lower_items())
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._cancel()

    async def read(self) -> bytes:
        """Return the next piece of the body, or b"" at its end."""
        item = await self._next()
        if not isinstance(item, bytes):
            raise connection_lost(self._request.url)
        self._read += len(item)
        if self._read > self._limit:
            raise NetError(
                N_("{where} sent more than {size} MiB."),
                where=server_of(self._request.url),
                size=self._limit >> 20,
            )
        return item

    async def read_all(self, limit: int) -> bytes:
        """Return the body, or only its first `limit` bytes."""
        data = bytearray()
        while len(data) < limit and (piece := await self.read()):
            data += piece
        return bytes(data[:limit])

    async def _next(self) -> _Item:
        item = await self._queue.get()
        with self._room:
            self._queued -= 1
            self._room.notify()
        if isinstance(item, NetError):
            raise item
        return item

    def _cancel(self) -> None:
        self._sockets.cancel()
        with self._room:
            self._room.notify()

    # In the thread.

    def _work(self) -> None:
        try:
            try:
                self._transfer()
            except NetError as error:
                self._post(error)
            finally:
                self._post(None)
        except CancelledExchangeError:
            pass  # nobody reads the rest
        finally:
            self._sockets.close()

    def _transfer(self) -> None:
        with open_response(self._request, self._sockets) as response:
            self._post(response)
            for data in read_pieces(self._request, response, decode=True):
                self._post(data)
            self._post(b"")

    def _post(self, item: _Item) -> None:
        with self._room:
            # If the reader is slow, the thread stops reading, and with it the server stops sending.
            self._room.wait_for(lambda: self._queued < 64 or self._sockets.is_cancelled)
            if self._sockets.is_cancelled:
                raise CancelledExchangeError
            self._queued += 1
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError as error:
            raise CancelledExchangeError from error  # the loop was closed


# --- failures ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Failure:
    """A message for the user, if one of the exceptions is the cause."""

    exceptions: tuple[type[BaseException], ...]
    message: str
    remedy: str = ""
    can_retry: bool = True


_CHECK_NETWORK = N_("Check the address and your network connection.")
# The first that matches counts.
_FAILURES = (
    _Failure(
        (requests.exceptions.ProxyError, urllib3_errors.ProxyError),
        N_("The proxy for {where} does not respond."),
        N_("Check the proxy settings (http_proxy, https_proxy, no_proxy)."),
    ),
    _Failure(
        (ssl.SSLCertVerificationError,),
        N_("The certificate of {where} is not trusted."),
        N_("If it is your own certificate, set REQUESTS_CA_BUNDLE to its file."),
        can_retry=False,
    ),
    _Failure(
        (ssl.SSLError, requests.exceptions.SSLError),
        N_("{where} does not accept a secure connection."),
        N_("Check whether the address should begin with http instead of https."),
        can_retry=False,
    ),
    _Failure(
        (socket.gaierror, urllib3_errors.NameResolutionError),
        N_("The host {host} was not found."),
        _CHECK_NETWORK,
    ),
    _Failure(
        (ConnectionRefusedError,),
        N_("No server is running at {where}."),
        N_("Check the address, or start the server."),
    ),
    # No route, not permitted, ...
    _Failure(
        (urllib3_errors.NewConnectionError,), N_("Cannot connect to {where}{why}."), _CHECK_NETWORK
    ),
    _Failure(
        (requests.ConnectTimeout, urllib3_errors.ConnectTimeoutError),
        N_("{where} did not respond in time."),
        _CHECK_NETWORK,
    ),
    _Failure(
        (requests.ReadTimeout, urllib3_errors.ReadTimeoutError, TimeoutError),
        # Translators: {limit} is a time, such as "5 seconds".
        N_("{where} sent nothing for {limit}."),
        N_("The server may be overloaded or stuck."),
    ),
    _Failure(
        (
            requests.exceptions.InvalidURL,
            requests.exceptions.InvalidSchema,
            urllib3_errors.LocationParseError,
        ),
        N_("The address {where} is not valid."),
        can_retry=False,
    ),
)


@contextlib.contextmanager
def net_errors(request: Request) -> Iterator[None]:
    """Raise a NetError in place of what the libraries raise inside the block."""
    try:
        yield
    except CancelledExchangeError:
        raise
    except (
        requests.RequestException,
        urllib3_errors.HTTPError,
        http.client.HTTPException,
        OSError,
        ValueError,
    ) as error:
        raise _net_error(error, request) from error


def _net_error(error: Exception, request: Request) -> NetError:
    causes = list(_causes(error))
    for failure in _FAILURES:
        if any(isinstance(cause, failure.exceptions) for cause in causes):
            why = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), "")
            return NetError(
                failure.message,
                failure.remedy,
                can_retry=failure.can_retry,
                where=server_of(request.url),
                host=repr(urlsplit(request.url).hostname),
                why=f": {why}" if why else "",
                limit=seconds(request.idle_timeout),
            )
    return connection_lost(request.url)


def connection_lost(url: str) -> NetError:
    return NetError(
        N_("The connection to {where} was lost."),
        can_retry=True,
        was_lost=True,
        where=server_of(url),
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those inside it: every library wraps it once more."""
    left: list[BaseException] = [error]
    seen: set[int] = set()
    while left:
        found = left.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        inner = [getattr(found, "reason", None), found.__cause__, found.__context__, *found.args]
        left += [item for item in inner if isinstance(item, BaseException)]


def seconds(number: float) -> Sentence:
    rounded = max(1, round(number))
    return Sentence(
        N_("{number} second") if rounded == 1 else N_("{number} seconds"), number=rounded
    )
