# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON-RPC over two descriptors, one message per line.

Written by hand: importing the SDK of the protocol takes 1.2 seconds, all of this 0.05.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import queue
from collections.abc import Awaitable, Callable, Mapping

from ...loop import start_daemon

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
_LONGEST_LINE = 16 << 20
# The requests that may run at once, and their bytes. A sandboxed agent may be the client: nothing
# else limits the memory that it takes here.
_MOST_REQUESTS, _MOST_ASKED = 100, 64 << 20
# While the client has so many bytes to read, notifications are dropped, or we do not read either.
_FEW_UNREAD, _MOST_UNREAD = 1 << 18, 16 << 20
# The seconds that a client has at the end to read the last answers.
_PATIENCE = 2

Id = str | int
Params = Mapping[str, object]


class RpcError(Exception):
    """An error to answer a request with, or the client's answer to one of ours."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


# Answers a request: its method and its parameters.
Handler = Callable[[str, Params], Awaitable[Params]]


class RpcPeer:
    """The client at the other end. Use it only on the loop's own thread."""

    def __init__(self, reader: int, writer: int, handle: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handle = handle
        self._rest = bytearray()
        # Whether the rest of a line that is too long is being skipped.
        self._is_skipping = False
        self._ended = asyncio.Event()
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._running_size = 0
        # Our own requests.
        self._numbers = itertools.count(1)
        self._asked: dict[Id, asyncio.Future[Params]] = {}
        self._unread: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Bytes: the first number is the loop's, the second the writing thread's.
        self._sent = self._written = 0
        # Whether reading waits until the client has read.
        self._is_waiting = False
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        """Answer requests until the client has gone, then cancel those that are running."""
        written = asyncio.Event()
        start_daemon("mcp writer", self._write_all, written)
        self._loop.add_reader(self._reader, self._read)
        try:
            await self._ended.wait()
        finally:
            self._loop.remove_reader(self._reader)
            for future in self._asked.values():
                future.cancel()
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            self._unread.put(None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(written.wait(), _PATIENCE)

    def end(self) -> None:
        self._ended.set()

    def notify(self, method: str, params: Params) -> None:
        """Send a notification; drop it if the client is slow to read."""
        if self._sent - self._written < _FEW_UNREAD:
            self._send({"method": method, "params": params})

    async def request(self, method: str, params: Params) -> Params:
        """Send a request and return its result; raise RpcError if the client refuses it."""
        number = next(self._numbers)
        answer: asyncio.Future[Params] = self._loop.create_future()
        self._asked[number] = answer
        self._send({"id": number, "method": method, "params": params})
        try:
            return await answer
        except asyncio.CancelledError:
            self.notify("notifications/cancelled", {"requestId": number})
            raise
        finally:
            del self._asked[number]

    # --- reading -------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            if self._is_skipping:
                self._is_skipping = False
            elif whole.strip():
                self._take_line(whole)
        if not self._is_skipping:
            self._rest += rest
        if len(self._rest) > _LONGEST_LINE:
            self._rest.clear()
            self._is_skipping = True
            self._send_error(None, RpcError(INVALID_REQUEST, "The line is too long."))
        if self._has_much_unread():
            self._is_waiting = True
            self._loop.remove_reader(self._reader)
            self._read_on()

    def _has_much_unread(self) -> bool:
        return self._sent - self._written > _MOST_UNREAD

    def _read_on(self) -> None:
        """Read again, if the client has read enough meanwhile."""
        if self._is_waiting and not self._has_much_unread() and not self._ended.is_set():
            self._is_waiting = False
            self._loop.add_reader(self._reader, self._read)

    def _take_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._send_error(None, RpcError(PARSE_ERROR, "The line is not valid JSON."))
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            why = "The line is not a JSON-RPC 2.0 message."
            self._send_error(None, RpcError(INVALID_REQUEST, why))
            return
        self._take(message, len(line))

    def _take(self, message: Mapping[str, object], size: int) -> None:
        method, params, id_ = message.get("method"), message.get("params"), message.get("id")
        if params is None:
            params = {}
        if "id" in message and (not isinstance(id_, Id) or isinstance(id_, bool)):
            error = RpcError(INVALID_REQUEST, "`id` must be a text or a whole number.")
            self._send_error(None, error)
        elif isinstance(id_, Id) and ("result" in message or "error" in message):
            self._take_answer(id_, message)
        elif not isinstance(method, str) or not isinstance(params, dict):
            error = RpcError(INVALID_REQUEST, "`method` must be a text, `params` an object.")
            self._send_error(id_ if isinstance(id_, Id) else None, error)
        elif isinstance(id_, Id):
            self._begin(id_, method, params, size)
        elif method == "notifications/cancelled":
            cancelled = params.get("requestId")
            task = self._running.get(cancelled) if isinstance(cancelled, Id) else None
            if task is not None:
                task.cancel()

    def _begin(self, id_: Id, method: str, params: Params, size: int) -> None:
        known = id_ in self._running
        is_much = self._running_size + size > _MOST_ASKED
        if known or is_much or len(self._running) >= _MOST_REQUESTS:
            why = "A request with this `id` is running." if known else "Too many requests."
            self._send_error(id_, RpcError(INVALID_REQUEST, why))
            return
        self._running[id_] = task = asyncio.ensure_future(self._answer(id_, method, params))
        self._running_size += size

        def end(_task: asyncio.Task[None]) -> None:
            del self._running[id_]
            self._running_size -= size

        task.add_done_callback(end)

    async def _answer(self, id_: Id, method: str, params: Params) -> None:
        """Answer a request, unless it is cancelled."""
        try:
            self._send({"id": id_, "result": await self._handle(method, params)})
        except RpcError as error:
            self._send_error(id_, error)
        except Exception as error:  # noqa: BLE001 - a mistake in one tool must not end the rest
            self._loop.call_exception_handler({"message": "Internal error", "exception": error})
            self._send_error(id_, RpcError(INTERNAL_ERROR, "Internal error."))

    def _take_answer(self, id_: Id, message: Mapping[str, object]) -> None:
        answer = self._asked.get(id_)
        if answer is None or answer.done():
            return
        result = message.get("result")
        if isinstance(result, dict):
            answer.set_result(result)
        else:
            answer.set_exception(RpcError(INVALID_REQUEST, "The client refused the request."))

    # --- writing -------------------------------------------------------------------------------

    def _send_error(self, id_: Id | None, error: RpcError) -> None:
        document: dict[str, object] = {"code": error.code, "message": str(error)}
        if error.data is not None:
            document["data"] = error.data
        self._send({"id": id_, "error": document})

    def _send(self, message: Params) -> None:
        # ASCII has no line ends of Unicode, nor lone surrogates, in a line.
        data = f"{json.dumps({'jsonrpc': '2.0', **message})}\n".encode("ascii")
        self._sent += len(data)
        self._unread.put(data)

    def _write_all(self, written: asyncio.Event) -> None:
        """Write what is sent, on a thread of its own: a client may stop reading."""
        try:
            while (data := self._unread.get()) is not None:
                while data:
                    count = os.write(self._writer, data)
                    data = data[count:]
                    self._written += count
                    if self._is_waiting and not self._has_much_unread():
                        self._loop.call_soon_threadsafe(self._read_on)
        except OSError:
            pass  # the client has gone
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._loop.call_soon_threadsafe(written.set)
