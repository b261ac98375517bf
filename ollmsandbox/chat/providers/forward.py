# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes the requests of an agent in a sandbox on to a model server, and adds the key: the agent
never holds it."""

from __future__ import annotations

import re
import socket
import threading
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

from ...errors import NetError, in_words
from ...net.http import Request, open_response, read_pieces
from .base import is_azure
from .connections_file import Connection, ServerKind

# The interfaces that agents use. No others: the key may allow more, such as reading stored files.
_PATHS = re.compile(
    r"/v1/(chat/completions|completions|embeddings|responses|messages|messages/count_tokens"
    r"|models(/[\w.:@/-]+)?)"
)
_REQUEST_HEADERS = (
    *("accept", "anthropic-beta", "anthropic-version", "content-encoding", "content-type"),
    *("openai-beta", "user-agent"),
)
# The bytes of one request, and of all at once: no limit of the sandbox counts them.
_LARGEST_BODY, _MOST_BODIES = 64 << 20, 256 << 20


class ModelForwarder:
    """Serves connections from a sandbox with one of the user's connections to a model server."""

    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key
        self._room = _MOST_BODIES
        self._lock = threading.Lock()

    def __call__(self, client: socket.socket) -> None:
        """Serve one connection until it ends."""
        server: Any = SimpleNamespace(forwarder=self)
        _Handler(client, ("", 0), server)

    def take_room(self, size: int) -> bool:
        """Take room for the body of a request, if there is some. A negative size gives it back."""
        with self._lock:
            if size > self._room:
                return False
            self._room -= size
            return True

    def request(self, method: str, path: str, sent: dict[str, str], body: bytes) -> Request:
        """Return the request for the model server. Only `path` and `body` are the agent's own."""
        connection = self._connection
        root, mark, query = connection.address.partition("?")
        if connection.kind is ServerKind.OLLAMA:
            root += "/v1"
        headers = {name: sent[name] for name in _REQUEST_HEADERS if name in sent}
        if self._key and is_azure(root):
            headers["api-key"] = self._key
        elif self._key:
            headers["Authorization"] = f"Bearer {self._key}"
            if "anthropic-version" in sent:
                headers["x-api-key"] = self._key
        headers |= dict(connection.headers)
        url = f"{root}{path.removeprefix('/v1')}{mark}{query}"
        return Request(
            method,
            url,
            body or None,
            headers,
            connect_timeout=connection.connect,
            idle_timeout=connection.idle,
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._forward(b"")

    def do_POST(self) -> None:
        given = self.headers.get("Content-Length", "")
        # At most as many digits as the largest has.
        size = int(given) if given.isdecimal() and len(given) <= 8 else _LARGEST_BODY + 1
        forwarder: ModelForwarder = self.server.forwarder  # type: ignore[attr-defined]
        if size > _LARGEST_BODY:
            self._refuse(411, "The length of the request is missing or too large.")
        elif not forwarder.take_room(size):
            self._refuse(503, "Too many large requests at once.")
        else:
            try:
                self._forward(self.rfile.read(size))
            finally:
                forwarder.take_room(-size)

    def _forward(self, body: bytes) -> None:
        path = self.path.partition("?")[0]
        if not _PATHS.fullmatch(path) or ".." in path:
            self._refuse(403, f"{path} is not available through this connection.")
            return
        sent = {name.lower(): value for name, value in self.headers.items()}
        forwarder: ModelForwarder = self.server.forwarder  # type: ignore[attr-defined]
        request = forwarder.request(self.command, path, sent, body)
        try:
            with open_response(request) as response:
                self._head(response.status_code, response.headers.get("Content-Type", ""))
                for piece in read_pieces(request, response, decode=True):
                    self.wfile.write(piece)
        except NetError as error:
            # Its text names the server, and no key. After the head, the end of the connection has
            # to be enough.
            if not self._has_head:
                self._refuse(502, in_words(error))

    _has_head = False

    def _head(self, status: int, kind: str) -> None:
        self._has_head = True
        self.close_connection = True
        self.send_response_only(status)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Connection", "close")
        self.end_headers()

    def _refuse(self, status: int, why: str) -> None:
        self._head(status, "text/plain; charset=utf-8")
        self.wfile.write(f"{why}\n".encode())

    def log_message(self, *_arguments: object) -> None:
        """Print nothing: the terminal is the agent's."""
