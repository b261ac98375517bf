# SPDX-License-Identifier: GPL-3.0-or-later
"""`build-aux/browser.py` shows the window in a browser, to its user alone, until the program
ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.timing import PATIENCE, wait_for

pytestmark = pytest.mark.ordinary

IN_BROWSER = Path(__file__).resolve().parents[2] / "build-aux/browser.py"
# Of the protocol: any text of this kind will do.
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def start(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start it with a shell command in the place of the program."""
    return subprocess.Popen(
        [sys.executable, "-I", IN_BROWSER, "sh", "-c", text],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


class Window:
    """The program, and the address that it printed."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        told = ""
        while "broadway is here" not in told:
            line = program.stdout.readline()
            assert line
            told += line
        address = re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/", told)
        assert address is not None
        self.port, self.token = int(address[1]), address[2]

    def get(self, path: str, **fields: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=fields)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    @contextmanager
    def opened(self, token: str, host: str = "", origin: str | None = None) -> Iterator[str]:
        """Open the window as a browser does; give the first line of the answer."""
        host = host or f"127.0.0.1:{self.port}"
        origin = f"http://127.0.0.1:{self.port}" if origin is None else origin
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as made:
            made.sendall(
                f"GET /{token}/socket HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: broadway\r\n"
                f"Origin: {origin}\r\n\r\n".encode()
            )
            yield made.recv(1 << 16).decode("latin-1").partition("\r\n")[0]


HERE = 'echo "$GDK_BACKEND is here"; exec sleep 600'


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with start(tmp_path, HERE) as program:
        yield Window(program)
        program.terminate()


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        # In the moment of its end.
        pass
    return False


def test_a_signal_ends_the_program_and_the_page(tmp_path: Path) -> None:
    with start(tmp_path, HERE) as program:
        window = Window(program)
        status, page = window.get(f"/{window.token}/")
        assert status == 200
        assert "broadway.js" in page
        program.terminate()
        assert program.wait(PATIENCE) < 0
    wait_for(lambda: is_closed(window.port))
    wait_for(lambda: not any(tmp_path.iterdir()))


def test_nobody_gets_in_without_the_token(window: Window) -> None:
    wrong = window.token[:-1] + ("a" if window.token[-1] != "a" else "b")
    for path in ("/", "/socket", "/broadway.js", "//", f"/{wrong}/", f"/{window.token}", "/../"):
        assert window.get(path)[0] == 403
    with window.opened(wrong) as answer:
        assert " 403 " in answer
    with window.opened(window.token) as answer:
        assert " 101 " in answer


def test_other_sites_pages_do_not_get_in(window: Window) -> None:
    there = {"Origin": "http://example.org"}
    assert window.get(f"/{window.token}/", **there)[0] == 403
    assert window.get(f"/{window.token}/", Host="example.org")[0] == 403
    for origin in ("http://example.org", "", "null", f"https://127.0.0.1:{window.port}"):
        with window.opened(window.token, origin=origin) as answer:
            assert " 403 " in answer
    with window.opened(window.token, host=f"evil.example:{window.port}") as answer:
        assert " 403 " in answer


def test_only_one_browser_gets_in_at_a_time(window: Window) -> None:
    with window.opened(window.token) as first:
        assert " 101 " in first
        with window.opened(window.token) as second:
            assert " 403 " in second

    def is_free() -> bool:
        with window.opened(window.token) as third:
            return " 101 " in third

    wait_for(is_free)


def test_an_open_connection_takes_one_request(window: Window) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", window.port, timeout=PATIENCE)
    connection.request("GET", f"/{window.token}/")
    connection.getresponse().read()
    connection.auto_open = 0
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/")
        connection.getresponse().read()
    connection.close()


def test_the_token_is_in_no_list_of_processes(window: Window) -> None:
    token = window.token.encode()
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert token not in (process / name).read_bytes()


def test_the_status_is_the_program_s_and_nothing_is_left(tmp_path: Path) -> None:
    with start(tmp_path, "exit 7") as program:
        # To the end of the stream: no other process holds it open.
        assert "http://127.0.0.1:" in program.communicate(timeout=PATIENCE)[0]
        assert program.returncode == 7
    wait_for(lambda: not any(tmp_path.iterdir()))
