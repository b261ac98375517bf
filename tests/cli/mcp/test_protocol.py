# SPDX-License-Identifier: GPL-3.0-or-later
"""Malformed messages, revisions of the protocol, and how soon the server answers."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.person import Person
from support.servers.mcp_client import raw_client

pytestmark = pytest.mark.ordinary

_META = "io.modelcontextprotocol/"
# As JSON-RPC and the protocol have them.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_PROTOCOL_VERSION = -32022

MALFORMED = [
    (b"{", PARSE_ERROR),
    (b"\xff\xfe", PARSE_ERROR),
    (b"[" * 100_000, PARSE_ERROR),
    (b"[]", INVALID_REQUEST),
    (b'"text"', INVALID_REQUEST),
    (b'{"id": 1, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', INVALID_PARAMS),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', INVALID_REQUEST),
    # Longer than a line may be.
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}' + b" " * (17 << 20), INVALID_REQUEST),
]


def test_a_malformed_line_is_answered_with_an_error(person: Person) -> None:
    with raw_client(person) as client:
        for line, code in MALFORMED:
            client.send_line(line)
            assert client.receive()["error"]["code"] == code, line[:100]
            assert client.ask(2, "ping")["result"] == {}


def test_what_nobody_asked_for_is_ignored(person: Person) -> None:
    with raw_client(person) as client:
        client.send_line(b"")
        client.send(id=99, result={"action": "accept", "content": {"answer": "allow"}})
        client.send(method="notifications/cancelled", params={"requestId": 5})
        client.send(method="notifications/cancelled", params={"requestId": {}})
        client.send(method="notifications/unknown")
        client.initialize()
        assert client.ask(1, "no/such")["error"]["code"] == METHOD_NOT_FOUND


def test_a_call_without_a_tool_is_an_error(person: Person) -> None:
    calls: list[dict[str, object]] = [{}, {"name": 5}, {"name": "run_command", "arguments": []}]
    with raw_client(person) as client:
        client.initialize()
        for params in calls:
            answer = client.ask(1, "tools/call", **params)
            assert answer["error"]["code"] == INVALID_PARAMS


def test_the_same_id_twice_and_a_flood_of_requests_are_refused(person: Person) -> None:
    with raw_client(person) as client:
        client.initialize()
        call = {"name": "run_command", "arguments": {"command": "sleep 1000"}}
        for number in [1, 1, *range(2, 102)]:
            client.send(id=number, method="tools/call", params=call)
        refused = [client.receive() for _ in range(2)]
        assert [answer["id"] for answer in refused] == [1, 101]
        assert {answer["error"]["code"] for answer in refused} == {INVALID_REQUEST}
        assert client.leave() == 0


def test_requests_that_are_large_together_are_refused(person: Person) -> None:
    with raw_client(person) as client:
        client.initialize()
        for number in range(9):
            arguments = {"command": "sleep 1000"} | ({"x": "x" * (9 << 20)} if number else {})
            params = {"name": "run_command", "arguments": arguments}
            client.send(id=number, method="tools/call", params=params)
        refused = client.receive()
        assert refused["id"] == 8 and refused["error"]["code"] == INVALID_REQUEST
        assert client.ask("small", "ping")["result"] == {}


def test_a_client_that_does_not_read_is_not_read_either(person: Person) -> None:
    """It would fill the memory with answers otherwise."""
    with raw_client(person) as client:
        client.initialize()
        message = {"jsonrpc": "2.0", "id": "x" * (1 << 20), "method": "ping"}
        line = json.dumps(message).encode()
        sent = 0

        def send() -> None:
            nonlocal sent
            with contextlib.suppress(BrokenPipeError):
                for _ in range(60):
                    client.send_line(line)
                    sent += 1

        sender = threading.Thread(target=send)
        sender.start()
        before = -1
        while sent > before:
            before = sent
            sender.join(1)
        assert 10 < sent < 30
        # It goes on as soon as the client does.
        for _ in range(60):
            assert client.receive()["id"] == message["id"]
        sender.join()
        assert client.ask(1, "ping")["result"] == {}


def test_a_session_bus_that_does_not_answer_is_not_waited_for(person: Person) -> None:
    place = person.home / "bus"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        person.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={place}"
        with raw_client(person) as client:
            client.initialize()
            assert client.ask(1, "tools/list")["result"]["tools"]
            call = {"name": "run_command", "arguments": {"command": "true", "network": True}}
            assert client.ask(2, "tools/call", **call)["result"]["isError"]


@pytest.mark.parametrize(
    ("wanted", "given"),
    [("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"), ("2024-11-05", "2025-11-25")],
)
def test_the_handshake_agrees_on_a_revision(person: Person, wanted: str, given: str) -> None:
    with raw_client(person) as client:
        result = client.initialize(wanted)["result"]
        assert result["protocolVersion"] == given
        assert result["serverInfo"]["name"] == "ollmsandbox"
        call = {"name": "run_command", "arguments": {"command": "echo hello"}}
        text = client.ask(1, "tools/call", **call)["result"]["content"][0]["text"]
        assert "hello" in text


def test_a_revision_without_handshake_that_we_do_not_know_is_refused(person: Person) -> None:
    meta = {f"{_META}protocolVersion": "2099-01-01", f"{_META}clientCapabilities": {}}
    with raw_client(person) as client:
        error = client.ask(1, "server/discover", _meta=meta)["error"]
        assert error["code"] == UNSUPPORTED_PROTOCOL_VERSION
        assert error["data"]["supported"] == ["2026-07-28"]
        del meta[f"{_META}clientCapabilities"]
        error = client.ask(2, "server/discover", _meta=meta)["error"]
        assert error["code"] == INVALID_PARAMS


def test_nothing_but_the_protocol_is_written_to_standard_output(person: Person) -> None:
    """What is printed by mistake, by us or by a library, goes to standard error."""
    with raw_client(person) as client:
        client.initialize()
        call = {"name": "run_command", "arguments": {"command": "echo out; echo err >&2; cat"}}
        result = client.ask(1, "tools/call", **call)["result"]
        # The command does not read the client's messages either.
        assert result["structuredContent"]["exit_status"] == 0
        assert result["content"][0]["text"] == "out\nerr"


def test_the_first_answers_come_before_the_sdk_would_be_loaded(person: Person) -> None:
    """The reason for a protocol written by hand; under a second where nothing else runs."""

    def answered() -> float:
        began = time.monotonic()
        with raw_client(person, is_new=True) as client:
            client.initialize()
            assert client.ask(1, "tools/list")["result"]["tools"]
            return time.monotonic() - began

    def loaded() -> float:
        began = time.monotonic()
        code = "import mcp.server.stdio, mcp.server.lowlevel"
        subprocess.run([sys.executable, "-I", "-c", code], check=True)
        return time.monotonic() - began

    answered()  # the probe, and compiled modules
    assert min(answered(), answered()) < min(loaded(), loaded())


def test_a_line_is_one_message_whatever_is_in_it(person: Person) -> None:
    with raw_client(person) as client:
        client.initialize()
        text = "a\u2028b\u0085c\rd\ud83d\ude00"
        call = {"name": "write_file", "arguments": {"path": "f", "content": text}}
        assert not client.ask(1, "tools/call", **call)["result"]["isError"]
        lone = {"name": "write_file", "arguments": {"path": "f", "content": "\ud800"}}
        client.send_line(
            json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": lone}).encode()
        )
        assert "surrogate" in client.receive()["result"]["content"][0]["text"]
