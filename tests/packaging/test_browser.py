# SPDX-License-Identifier: GPL-3.0-or-later
"""`build-aux/in-browser` shows the window in a browser until the program ends."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.anybody

IN_BROWSER = Path(__file__).resolve().parents[2] / "build-aux/in-browser"
PATIENCE = 60


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def start(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start it with a shell command in the place of the program."""
    return subprocess.Popen(
        [IN_BROWSER, "sh", "-c", text],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def page(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def is_closed(port: int) -> bool:
    try:
        page(port)
    except ConnectionRefusedError:
        return True
    except OSError:
        # In the moment of its end.
        pass
    return False


def test_a_signal_ends_the_program_and_the_page(tmp_path: Path) -> None:
    with start(tmp_path, 'echo "$GDK_BACKEND is here"; exec sleep 600') as program:
        assert program.stdout is not None
        told = ""
        while "broadway is here" not in told:
            line = program.stdout.readline()
            assert line
            told += line
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", told)
        assert address is not None
        port = int(address[1])
        assert "broadway.js" in page(port)
        program.terminate()
        assert program.wait(PATIENCE) < 0
    until(lambda: is_closed(port))
    until(lambda: not any(tmp_path.iterdir()))


def test_the_status_is_the_program_s_and_nothing_is_left(tmp_path: Path) -> None:
    with start(tmp_path, "exit 7") as program:
        # To the end of the stream: no other process holds it open.
        assert "http://127.0.0.1:" in program.communicate(timeout=PATIENCE)[0]
        assert program.returncode == 7
    until(lambda: not any(tmp_path.iterdir()))
