# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to a model server, with the key, and splits its response into lines and events."""

from __future__ import annotations

import asyncio
import codecs
import io
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace

from ... import N_
from ...errors import NetError
from ...net.http import Exchange, Request
from .base import Piece, ProviderError, RefusedError, RetryPiece, is_azure
from .connections_file import Connection, normal_address
from .errors import from_message, from_status, not_a_model_server
from .json_reader import read_json
from .mask import KeyMask

# Returns the key. It is in a keyring, which may ask for a password each time.
KeySource = Callable[[], Awaitable[str]]

# Seconds before each new attempt.
RETRY_DELAYS = (0.5, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 120.0)
_LIST_LIMIT = 16 << 20
_LONGEST_LINE = 4 << 20
_SHORT_CONNECT, _SHORT_IDLE = 5.0, 15.0


class Client:
    """Requests to one server, with its key."""

    def __init__(self, connection: Connection, key: KeySource | None = None) -> None:
        # As it is in the file, or as the user just typed it.
        address = normal_address(connection.kind, connection.address)
        self.connection = replace(connection, address=address)
        # A query is added to each request.
        self.root, mark, query = address.partition("?")
        self._query = mark + query
        self._find_key = key
        self._key: str | None = None
        self.mask = KeyMask()

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, object], model: str
    ) -> AsyncIterator[Exchange]:
        """Send a request and yield its response, to be read piece by piece."""
        request = await self._request("POST", path, body)
        with _provider_errors():
            async with Exchange(request) as exchange:
                await self._check(exchange, request.url, model)
                yield exchange

    async def ask(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        model: str = "",
        root: str = "",
    ) -> Mapping[str, object]:
        """Return the JSON object that the server answers. For requests that need no thinking: the
        time-outs are short."""
        method = "GET" if body is None else "POST"
        request = await self._request(method, path, body, root)
        request = replace(
            request,
            connect_timeout=min(request.connect_timeout, _SHORT_CONNECT),
            idle_timeout=min(request.idle_timeout, _SHORT_IDLE),
        )
        with _provider_errors():
            async with Exchange(request, _LIST_LIMIT) as exchange:
                await self._check(exchange, request.url, model)
                data = await exchange.read_all(_LIST_LIMIT)
        text = self.mask.whole(data.decode("utf-8", "replace"))
        try:
            found = read_json(text)
        except ValueError:
            raise not_a_model_server(request.url) from None
        if not isinstance(found, dict):
            raise not_a_model_server(request.url)
        if found.get("error"):
            raise self.failed(text, model)
        return found

    def failed(self, text: str, model: str) -> ProviderError:
        """Return the error for a JSON text in which the server reports one."""
        return from_message(self.mask.whole(text), self.root, model)

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        root: str = "",
    ) -> Request:
        key = self._key
        if key is None:
            key = self._key = await self._find_key() if self._find_key else ""
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ProviderError(
                N_("The API key contains invalid characters."),
                N_("Enter it again, on one line."),
            )
        self.mask = KeyMask(key)
        headers: dict[str, str] = {}
        if key:
            is_at_azure = is_azure(self.connection.address)
            own = {"api-key": key} if is_at_azure else {"Authorization": f"Bearer {key}"}
            headers.update(own)
        headers.update(self.connection.headers)
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        return Request(
            method,
            f"{root or self.root}{path}{self._query}",
            data,
            headers,
            connect_timeout=self.connection.connect,
            idle_timeout=self.connection.idle,
        )

    async def _check(self, exchange: Exchange, url: str, model: str) -> None:
        if exchange.status == 200:
            return
        try:
            data = await exchange.read_all(64 * 1024)
        except NetError:
            data = b""  # the status says enough
        body = self.mask.whole(data.decode("utf-8", "replace"))
        headers = {name: self.mask.whole(value) for name, value in exchange.headers.items()}
        error = from_status(exchange.status, headers, body, url, model)
        if isinstance(error, RefusedError):
            # Look it up again the next time: the user may have stored another one by then.
            self._key = None
        raise error


@contextmanager
def _provider_errors() -> Iterator[None]:
    try:
        yield
    except NetError as error:
        # The cause is hidden: it may show the key.
        raise ProviderError.from_net(error) from None


async def retried(
    make: Callable[[], AsyncGenerator[Piece, None]],
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces; try again after a temporary error, if nothing was shown before it."""
    for number in itertools.count():
        shown = False
        try:
            async with aclosing(make()) as pieces:
                async for piece in pieces:
                    shown = True
                    yield piece
            return
        except ProviderError as error:
            if shown or number >= min(error.retries, len(RETRY_DELAYS)):
                raise
            pause = RETRY_DELAYS[number] if error.again_after is None else error.again_after
            retry = RetryPiece(pause, error)
        if pause:
            yield retry
        await asyncio.sleep(pause)


class LineReader:
    """Splits the response into lines, which end in LF, CR or both."""

    def __init__(self, read: Callable[[], Awaitable[bytes]]) -> None:
        self._read = read
        # A piece may end in the middle of a character, or between CR and LF.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._lines: deque[str] = deque()
        self._rest: list[str] = []
        self._rest_size = 0
        self._ended = False

    async def next(self) -> str | None:
        """Return the next line, or None at the end."""
        while not self._lines and not self._ended:
            data = await self._read()
            self._take(self._decoder.decode(data, final=not data))
            self._ended = not data
            if self._ended and self._rest_size:
                self._take("\n")
        return self._lines.popleft() if self._lines else None

    def _take(self, text: str) -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self._lines.append("".join(self._rest))
                self._rest, self._rest_size = [], 0
            self._rest.append(part)
            self._rest_size += len(part)
            if self._rest_size > _LONGEST_LINE:
                raise ProviderError(
                    N_("The server sent a line of more than {size} MiB."),
                    N_("It may not be a model server."),
                    size=_LONGEST_LINE >> 20,
                )


class EventReader:
    """Returns the data of server-sent events, and skips all else, such as keep-alive comments."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines

    async def next(self) -> str | None:
        data: list[str] = []
        while (line := await self._lines.next()) is not None:
            if not line:
                if data:
                    break
                continue
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name == "error":
                # Older versions of llama.cpp report errors in such a line.
                data.append(f'{{"error": {value}}}')
            elif name.lstrip().startswith("{"):
                # Plain JSON instead of an event: mostly an error.
                data.append(line)
        return "\n".join(data) if data else None
