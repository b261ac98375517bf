# SPDX-License-Identifier: GPL-3.0-or-later
"""Every failed request ends in a sentence that a user understands, which never has the key in
it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.provider import (
    KEY,
    ask,
    fails,
    ollama,
    openai,
    openai_server,
    said,
    thought,
    tls_server,
)
from support.servers.http import (
    Answer,
    Replay,
    Reply,
    Reset,
    Stall,
    delta,
    document,
    events,
    finish,
    ndjson,
    sse,
    stream,
)
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.chat.providers import client
from ollmsandbox.chat.providers.base import Model, RetryPiece
from ollmsandbox.errors import NetError
from ollmsandbox.net.http import Exchange, Request

pytestmark = pytest.mark.anybody

CHAT = "/v1/chat/completions"
FINE = sse(delta(content="fine"), finish())


def test_a_server_that_is_not_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    error = fails(openai(f"127.0.0.1:{port}"))
    assert f"http://127.0.0.1:{port}" in error.message
    assert "start the server" in error.remedy


def test_an_unknown_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    error = fails(openai("http://no-such-host.invalid"))
    assert "no-such-host.invalid" in error.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not accept the key"),
        (403, "does not accept the key"),
        (404, "does not support this request"),
        (418, "refused the request (418)"),
        (501, "failed (501)"),
    ],
)
def test_a_status_becomes_a_sentence(status: int, words: str) -> None:
    with Replay({CHAT: document({"error": {"message": "because"}}, status)}) as server:
        error = fails(openai(server.address))
        assert len(server.seen) == 1
    assert words in error.message
    assert "because" in error.message


@pytest.mark.parametrize(
    "body",
    [
        {"error": "because"},
        {"error": {"message": "because", "type": "x"}},
        {"detail": "because"},
        {"detail": [{"loc": ["body"], "msg": "because"}]},
        {"object": "error", "message": "because"},
        [{"error": {"code": 400, "message": "because"}}],
    ],
)
def test_servers_say_why_each_in_its_own_way(body: object) -> None:
    with Replay({CHAT: document(body, 400)}) as server:
        assert fails(openai(server.address)).message.endswith("It says: because.")


def test_a_wrong_address_and_a_missing_model_have_different_messages() -> None:
    missing = document({"object": "error", "message": "The model `m` does not exist."}, 404)
    with Replay({CHAT: missing}) as server:
        assert "has no model 'm'" in fails(openai(server.address)).message
    with Replay({}) as server:
        assert "Check the address" in fails(openai(server.address)).remedy


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
@pytest.mark.parametrize("asked", [openai, ollama])
def test_a_server_that_fails_is_asked_again(status: int, asked: Callable[[str], Model]) -> None:
    busy = document({"error": {"message": "Loading model"}}, status)
    fine = FINE if asked is openai else ndjson({"message": {"content": "fine"}, "done": True})
    routes: dict[str, Answer | list[Answer]] = {
        "/api/show": document({}),
        "*": [busy, busy, busy, fine],
    }
    with Replay(routes) as server:
        pieces = ask(asked(server.address))
    assert said(pieces) == "fine"
    waits = [piece for piece in pieces if isinstance(piece, RetryPiece)]
    assert len(waits) == 3
    assert all("Loading model" in str(piece.why) for piece in waits)


def test_a_server_that_stays_overloaded_is_given_up() -> None:
    with Replay({CHAT: document({}, 503)}) as server:
        error = fails(openai(server.address))
        assert len(server.seen) == 1 + len(client.RETRY_DELAYS)
    assert "is overloaded" in error.message
    assert error.can_retry


def test_a_server_that_always_fails_in_the_same_way_is_asked_less_often() -> None:
    """Local servers say 500 to what will never work."""
    with Replay({CHAT: document({"error": {"message": "template error"}}, 500)}) as server:
        assert "template error" in fails(openai(server.address)).message
        assert len(server.seen) == 4


def test_the_time_that_a_server_names_is_waited_for() -> None:
    busy = document({}, 429, Retry_After="0.01")
    with Replay({CHAT: [busy, FINE]}) as server:
        waits = [p.seconds for p in ask(openai(server.address)) if isinstance(p, RetryPiece)]
    assert waits == [0.01]


def test_an_overload_that_is_reported_inside_an_answer_is_tried_again() -> None:
    overloaded = sse({"error": {"message": "Overloaded", "code": 529}})
    with Replay({CHAT: [overloaded, FINE]}) as server:
        assert said(ask(openai(server.address))) == "fine"


def test_a_server_that_asks_for_an_hour_is_given_up() -> None:
    with Replay({CHAT: document({}, 429, Retry_After="3600")}) as server:
        error = fails(openai(server.address))
        assert len(server.seen) == 1
    assert "3600" in error.remedy
    assert error.can_retry


def test_a_line_that_breaks_before_anything_was_shown_is_tried_again() -> None:
    lost = Reply([Reset()], raw=True)
    with Replay({CHAT: [lost, stream([b": hello\n\n", Reset()]), FINE]}) as server:
        assert said(ask(openai(server.address))) == "fine"
    with Replay({CHAT: lost}) as server:
        error = fails(openai(server.address))
        assert len(server.seen) == 1 + len(client.RETRY_DELAYS)
    assert error.can_retry
    assert server.address in error.message


def test_nothing_is_asked_again_once_something_was_shown() -> None:
    shown = stream([*events(delta(content="a"), done=False), Stall()])
    with Replay({CHAT: [shown, FINE]}) as server:
        # The stall ends in silence that is too long; the words before it were shown.
        error = fails(openai(server.address, idle=0.3))
        assert len(server.seen) == 1
    assert "sent nothing for" in error.message


@pytest.mark.parametrize("parts", [[], [b"HTTP/1.1 200"]], ids=["no head", "half a head"])
def test_a_server_that_stalls_is_given_up(parts: list[bytes]) -> None:
    with Replay({CHAT: Reply([*parts, Stall()], raw=True)}) as server:
        error = fails(openai(server.address, idle=0.3))
        assert len(server.seen) == 1
    assert "sent nothing" in error.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xff\xfe\x00garbage",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_a_reply_that_is_not_http_is_an_ordinary_error(raw: bytes) -> None:
    with Replay({CHAT: Reply([raw], raw=True)}) as server:
        assert server.address in fails(openai(server.address)).message


def test_a_redirection_is_not_followed() -> None:
    with Replay({"*": FINE}) as elsewhere:
        there = f"{elsewhere.address}/steal"
        with Replay({CHAT: Reply(status=307, headers={"Location": there})}) as server:
            error = fails(openai(server.address, key=True))
        assert elsewhere.seen == []
    assert there in error.message


def test_a_certificate_that_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, certificate = tls_server(tmp_path)
    with Replay({CHAT: FINE}, context) as server:
        error = fails(openai(server.address, key=True))
        assert server.seen == []
        assert "is not trusted" in error.message
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert said(ask(openai(server.address, key=True))) == "fine"


def test_https_to_a_server_without_it_is_reported() -> None:
    def answer() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            with contextlib.suppress(OSError):  # the other side may be faster
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        error = fails(openai(f"https://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join(PATIENCE)
    assert "secure connection" in error.message


def test_the_key_is_sent_and_never_shown() -> None:
    echoed = [delta(reasoning_content=f"key {KEY[:9]}"), delta(reasoning_content=f"{KEY[9:]}!")]
    echoed += [delta(content=letter) for letter in f"It is {KEY}, or {KEY[:6]}"]
    with Replay({CHAT: sse(*echoed, finish())}) as server:
        pieces = ask(openai(server.address, key=True))
        assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert said(pieces) == f"It is [key], or {KEY[:6]}"
    assert thought(pieces) == "key [key]!"
    assert KEY not in repr(pieces)


@pytest.mark.parametrize("status", [200, 302, 401, 404, 429, 500])
def test_the_key_is_in_no_error(status: int) -> None:
    refused = document(
        {"error": {"message": f"Incorrect API key provided: {KEY}"}},
        status,
        Location=f"http://127.0.0.1/?{KEY}",
        Retry_After="3600",
    )
    with Replay({CHAT: refused}) as server:
        error = fails(openai(server.address, key=True))
    assert KEY not in f"{error} {error!r} {error.args} {error.__cause__}"


def test_a_key_with_a_line_in_it_is_refused_without_showing_it() -> None:
    async def source() -> str:
        return f"{KEY}\nX-Evil: yes"

    with Replay({CHAT: FINE}) as server:
        error = fails(openai_server(server.address, key=source).model("m"))
        assert server.seen == []
    assert KEY not in str(error)


def use_proxy(patch: pytest.MonkeyPatch, proxy: Replay) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        patch.setenv(name, proxy.address)
    for name in ("no_proxy", "NO_PROXY"):
        patch.delenv(name, raising=False)


def test_no_other_logins_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\ndefault login a password b\n")
    netrc.chmod(0o600)
    with Replay({"*": FINE}) as server:
        monkeypatch.setenv("NETRC", str(netrc))
        ask(openai(server.address))
        # Another host, by way of the same server as a proxy.
        use_proxy(monkeypatch, server)
        ask(openai("http://models.example"))
        assert len(server.seen) == 2
        assert all("authorization" not in seen.headers for seen in server.seen)


def test_only_other_machines_are_reached_by_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Replay({"*": FINE}) as proxy, Replay({CHAT: FINE}) as server:
        use_proxy(monkeypatch, proxy)
        ask(openai(server.address))
        ask(openai(f"http://localhost:{server.port}"))
        assert proxy.seen == []
        assert said(ask(openai("http://models.example"))) == "fine"
        assert proxy.paths() == ["http://models.example/v1/chat/completions"]
    # The proxy has ended.
    assert "proxy" in fails(openai("http://models.example")).message


def test_a_line_without_an_end_is_cut() -> None:
    with Replay({CHAT: stream([b"data: "] + [b"x" * (1 << 20)] * 6)}) as server:
        assert "more than 4 MiB" in fails(openai(server.address)).message


def test_an_answer_without_an_end_is_cut() -> None:
    async def read() -> None:
        request = Request("GET", f"{server.address}/x")
        async with Exchange(request, limit=1 << 20) as exchange:
            while await exchange.read():
                pass

    with (
        Replay({"/x": Reply([b"x" * 65536] * 40)}) as server,
        pytest.raises(NetError, match="more than 1 MiB"),
    ):
        loop.run(read())
