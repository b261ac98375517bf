# SPDX-License-Identifier: GPL-3.0-or-later
"""web_fetch over TLS connects to the resolved address and verifies the name."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.servers.http import Replay, Reply, Stall
from support.timing import wait_for
from support.tools import Agent

from ollmsandbox.permission.request import Answer
from ollmsandbox.tools.base import Outcome
from ollmsandbox.tools.web.web_fetch import WebFetch

pytestmark = pytest.mark.ordinary

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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Replay]:
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    page = Reply([b"hi"], headers={"Content-Type": "text/plain"})
    with Replay({"/": page}, context) as made:
        yield made


def agent_for(person: Person, *, trusts: bool = True) -> Agent:
    bundle = {"REQUESTS_CA_BUNDLE": f"{person.home.parent}/certificate.pem"} if trusts else {}
    agent = Agent(person, allow_private=True, environ=bundle)
    agent.asker.answer = Answer.ALLOW
    return agent


def fetch(agent: Agent, server: Replay, host: str = "site.example") -> Outcome:
    tool = WebFetch(agent.tool_context, lambda *_: ["127.0.0.1"])
    return agent.call(tool, url=f"https://{host}:{server.port}/")


def test_the_right_name_is_fetched_and_no_other(person: Person, server: Replay) -> None:
    agent = agent_for(person)
    outcome = fetch(agent, server, "other.example")
    assert not outcome.ok
    assert "is not trusted" in outcome.text
    assert server.seen == []
    outcome = fetch(agent, server)
    assert outcome.ok
    assert outcome.text.endswith("hi")


def test_an_untrusted_certificate_is_not_accepted(person: Person, server: Replay) -> None:
    outcome = fetch(agent_for(person, trusts=False), server)
    assert "is not trusted" in outcome.text
    assert server.seen == []


def test_stopping_it_closes_the_connection(person: Person, server: Replay) -> None:
    server.set("/", Reply([b"hi", Stall()], headers={"Content-Type": "text/plain"}))
    agent = agent_for(person)
    tool = WebFetch(agent.tool_context, lambda *_: ["127.0.0.1"])
    request = tool.read({"url": f"https://site.example:{server.port}/"})
    agent.stop(request, lambda: len(server.seen) == 1)
    wait_for(lambda: server.hung_up == 1)
