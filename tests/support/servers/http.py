# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HTTP server on loopback that sends what a test tells it to, byte for byte."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from support.timing import PATIENCE


class Stall:
    """Sends nothing more until the client closes the connection."""


class Reset:
    """Closes the connection as a crash does."""


Part = bytes | Stall | Reset | threading.Event


@dataclass(frozen=True)
class Reply:
    """A reply whose `parts` are sent one by one; at an Event the server waits until it is set."""

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = True
    # Sent as it is, without a head.
    raw: bool = False
    # The end of the chunks is left out.
    broken: bool = False


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


Answer = Reply | Callable[[Seen], Reply]


class Replay:
    """Replies by path: a list is used up one by one, and its last reply is repeated."""

    def __init__(
        self, routes: Mapping[str, Answer | Sequence[Answer]], context: ssl.SSLContext | None = None
    ) -> None:
        self._routes = {
            path: list(answers) if isinstance(answers, Sequence) else [answers]
            for path, answers in routes.items()
        }
        self._context = context
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self.seen: list[Seen] = []
        # How many lines the other side cut while it was being answered.
        self.hung_up = 0
        self.port: int = self._listener.getsockname()[1]
        scheme = "https" if context else "http"
        self.address = f"{scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._begin(self._listen)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop.set()
        # Wakes who waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE)

    def set(self, path: str, *answers: Answer) -> None:
        with self._lock:
            self._routes[path] = list(answers)

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    def _begin(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="replay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        try:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            seen = _read_request(connection)
            if seen is None:
                return
            with self._lock:
                self.seen.append(seen)
                reply = self._choose(seen)
            self._send(connection, reply)
            _hang_up(connection)
        except (OSError, ssl.SSLError):
            with self._lock:
                self.hung_up += 1
        finally:
            connection.close()

    def _choose(self, seen: Seen) -> Reply:
        answers = self._routes.get(seen.path) or self._routes.get("*")
        if not answers:
            return Reply([b"404 page not found"], 404)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer if isinstance(answer, Reply) else answer(seen)

    def _send(self, connection: socket.socket, reply: Reply) -> None:
        if not reply.raw:
            connection.sendall(_head(reply))
        for part in reply.parts:
            if isinstance(part, Stall):
                self._wait_for_end(connection)
                return
            if isinstance(part, Reset):
                # Unsent data is dropped, and the connection is reset.
                option = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
                connection.close()
                return
            if isinstance(part, threading.Event):
                part.wait(PATIENCE)
            elif part:
                chunk = reply.chunked and not reply.raw
                connection.sendall(b"%x\r\n%b\r\n" % (len(part), part) if chunk else part)
        if reply.chunked and not reply.raw and not reply.broken:
            connection.sendall(b"0\r\n\r\n")

    def _wait_for_end(self, connection: socket.socket) -> None:
        until = time.monotonic() + PATIENCE
        while not self._stop.is_set() and time.monotonic() < until:
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and not connection.recv(4096):
                raise ConnectionAbortedError


def _hang_up(connection: socket.socket) -> None:
    """Read the rest before closing: unread data would reset the connection."""
    if connection.fileno() == -1:
        return
    try:
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    except OSError:
        pass  # the other side was first


def _read_request(connection: socket.socket) -> Seen | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Seen(method, path, headers, body)


def _head(reply: Reply) -> bytes:
    headers = {"Connection": "close", **reply.headers}
    if reply.chunked:
        headers["Transfer-Encoding"] = "chunked"
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{n}: {v}" for n, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


# What the servers send.


def ndjson(*documents: object, **named: object) -> Reply:
    lines = [json.dumps(document).encode() + b"\n" for document in documents]
    headers = {"Content-Type": "application/x-ndjson"}
    return Reply(lines, headers=headers, **named)  # type: ignore[arg-type]


def events(*documents: object, done: bool = True) -> list[bytes]:
    found = [b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents]
    return [*found, b"data: [DONE]\n\n"] if done else found


def sse(*documents: object, done: bool = True) -> Reply:
    return stream(events(*documents, done=done))


def stream(parts: Iterable[Part], **named: object) -> Reply:
    headers = {"Content-Type": "text/event-stream"}
    return Reply(list(parts), headers=headers, **named)  # type: ignore[arg-type]


def document(found: object, status: int = 200, **headers: str) -> Reply:
    body = json.dumps(found).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([body], status, {"Content-Type": "application/json", **named})


def delta(**what: object) -> dict[str, object]:
    """Return a chunk in OpenAI's format."""
    return {"choices": [{"index": 0, "delta": what, "finish_reason": None}]}


def finish(reason: str = "stop") -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def in_pieces(data: bytes, size: int) -> list[bytes]:
    """Split bytes anywhere: inside characters, inside JSON, inside line ends."""
    return [data[start : start + size] for start in range(0, len(data), size)]
