# SPDX-License-Identifier: GPL-3.0-or-later
"""What a sandboxed agent can make us hold while we pass its requests on; the rest is tested with
whole agents."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.providers.forward import ModelForwarder

pytestmark = pytest.mark.anybody

LARGEST = 64 << 20


@contextlib.contextmanager
def asking(forwarder: ModelForwarder, length: str) -> Iterator[socket.socket]:
    """Send the head of a request, and no body."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, contextlib.suppress(OSError):
            forwarder(theirs)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with ours:
        ours.settimeout(20)
        ours.sendall(f"POST /v1/messages HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        yield ours
    thread.join()


def forwarder() -> ModelForwarder:
    return ModelForwarder(Connection("mine", ServerKind.OPENAI, "http://127.0.0.1:9/v1"), "key")


def status(client: socket.socket) -> str:
    return client.recv(100).decode().split()[1]


@pytest.mark.parametrize(
    "length", ["", "-1", "x", str(LARGEST + 1), "9" * 30, "0" * 20 + "1000000000"]
)
def test_a_body_of_any_size_is_not_read(length: str) -> None:
    with asking(forwarder(), length) as client:
        assert status(client) == "411"


def test_large_bodies_are_not_all_read_at_once() -> None:
    one = forwarder()
    with contextlib.ExitStack() as open_:
        for _ in range(4):
            open_.enter_context(asking(one, str(LARGEST)))
        while one.take_room(1):  # until all four are being read
            one.take_room(-1)
            time.sleep(0.01)
        with asking(one, "1") as client:
            assert status(client) == "503"
    with asking(one, "1") as client:
        client.sendall(b"x")
        # There is no server.
        assert status(client) == "502"
