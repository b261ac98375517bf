# SPDX-License-Identifier: GPL-3.0-or-later
"""web_fetch over TLS connects to the resolved address and verifies the name."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.timing import PATIENCE
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.permission.request import Answer
from ollmsandbox.tools.base import Outcome
from ollmsandbox.tools.web.web_fetch import WebFetch

pytestmark = pytest.mark.anybody

# Made for these tests, for site.example, and good for a hundred years.
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgqeJOxaqlGRfLvb0f
usjTf2iOy8p+ehuZnxGpxAw2eQihRANCAAQZFSqmVbKfE2JaVJt3YGsO+3uNWDFk
4rC3z4Z44+eygbp/Vbvop9rNTAA1J/JNpy+qfPhGMVYbfpUQPDnSMbk2
-----END PRIVATE KEY-----
"""
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBajCCARCgAwIBAgIBATAKBggqhkjOPQQDAjAXMRUwEwYDVQQDDAxzaXRlLmV4
YW1wbGUwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBcxFTATBgNV
BAMMDHNpdGUuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBkVKqZV
sp8TYlpUm3dgaw77e41YMWTisLfPhnjj57KBun9Vu+in2s1MADUn8k2nL6p8+EYx
Vht+lRA8OdIxuTajSzBJMBcGA1UdEQQQMA6CDHNpdGUuZXhhbXBsZTAPBgNVHRMB
Af8EBTADAQH/MB0GA1UdDgQWBBQMfCA9Bsv7eihIIpE8ZzyVhNzchjAKBggqhkjO
PQQDAgNIADBFAiBTbvwTzCFc4vnvXUEAcZCPyj3dAwKk+Bn6D2vAooyjxwIhAJTI
AzzejCvcyDarB9D9PMCyrjUKcp6Dxsso1IFq30zc
-----END CERTIFICATE-----
"""


class Server:
    """Answers each connection once, or with half an answer and then waits until it is left."""

    def __init__(self, folder: Path) -> None:
        self.bundle = folder / "certificate.pem"
        self.bundle.write_text(CERTIFICATE)
        (folder / "key.pem").write_text(KEY)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.bundle, folder / "key.pem")
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.stalls = False
        self.asked = 0
        self.reached, self.left = threading.Event(), threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        # Whoever waits to accept is woken.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(plain, server_side=True) as one:
                    self._answer(one)
            except OSError:
                # They did not like the certificate, or have gone.
                self.left.set()

    def _answer(self, one: ssl.SSLSocket) -> None:
        while not one.recv(65536).endswith(b"\r\n\r\n"):
            pass
        self.asked += 1
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhi")
        if self.stalls:
            self.reached.set()
            one.recv(1)
            self.left.set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def agent_for(person: Person, **environ: str) -> Agent:
    agent = Agent(person, allow_private=True, environ=environ)
    agent.asker.answer = Answer.ALLOW
    return agent


def fetch(agent: Agent, server: Server, host: str = "site.example") -> Outcome:
    tool = WebFetch(agent.tool_context, lambda *_: ["127.0.0.1"])
    return agent.call(tool, url=f"https://{host}:{server.port}/")


def test_the_right_name_is_fetched(person: Person, server: Server) -> None:
    agent = agent_for(person, REQUESTS_CA_BUNDLE=str(server.bundle))
    outcome = fetch(agent, server)
    assert outcome.ok
    assert outcome.text.endswith("hi")


def test_another_name_is_not(person: Person, server: Server) -> None:
    agent = agent_for(person, REQUESTS_CA_BUNDLE=str(server.bundle))
    outcome = fetch(agent, server, "other.example")
    assert not outcome.ok
    assert "is not trusted" in outcome.text
    assert server.asked == 0


def test_an_untrusted_certificate_is_not_accepted(person: Person, server: Server) -> None:
    outcome = fetch(agent_for(person), server)
    assert "is not trusted" in outcome.text
    assert server.asked == 0


def test_stopping_it_closes_the_connection(person: Person, server: Server) -> None:
    server.stalls = True
    agent = agent_for(person, REQUESTS_CA_BUNDLE=str(server.bundle))
    tool = WebFetch(agent.tool_context, lambda *_: ["127.0.0.1"])
    request = tool.read({"url": f"https://site.example:{server.port}/"})

    async def run() -> None:
        task = asyncio.ensure_future(request.execute(agent.looking))
        await asyncio.to_thread(server.reached.wait, 60)
        assert not server.left.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(run())
    assert server.left.wait(PATIENCE)
