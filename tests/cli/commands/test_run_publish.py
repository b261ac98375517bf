# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run --publish`"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.person import Person
from support.servers.world import in_world


def test_a_port_is_published_or_another_one_that_is_named(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import os, re, socket, threading, urllib.request
        folder = os.getcwd() + "/project"
        for is_taken in (False, True):
            if is_taken:
                taken = socket.create_server(("127.0.0.1", 3000))
            out = subprocess.Popen(
                [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox"), "run", "--quiet",
                 "--publish", "3000", "-c",
                 "echo hi >f; echo ready; python3 -m http.server -b 127.0.0.1 3000 2>/dev/null"],
                cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True)
            port = 3000
            if is_taken:
                said = out.stderr.readline()
                assert said.startswith("ollmsandbox: Port 3000 is in use here."), said
                port = int(re.search(r"http://localhost:([0-9]+)", said)[1])
                assert port != 3000
            assert out.stdout.readline() == "ready\\n"
            while True:
                try:
                    page = urllib.request.urlopen(f"http://localhost:{port}/f", timeout=20).read()
                    break
                except OSError:
                    # It does not listen yet.
                    assert out.poll() is None
            assert page == b"hi\\n"
            out.terminate()
            assert out.wait() == 143
            assert socket.socket().connect_ex(("127.0.0.1", port)) != 0
        """,
    )


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "٣", "3000:80"])
def test_a_number_that_is_no_port(person: Person, port: str) -> None:
    done = person.cli("run", f"--publish={port}", "--", "true")
    assert done.returncode == 2
    assert "is not a port" in done.stderr


def test_with_the_whole_network_there_is_nothing_to_publish(person: Person) -> None:
    done = person.cli("run", "--publish=3000", "--network=all", "--", "true")
    assert done.returncode == 125
    assert "Leave --publish out" in done.stderr


def test_a_port_of_the_command_s_is_not_also_this_computer_s(person: Person) -> None:
    """Each connection would open another one, until nothing is left."""
    done = person.cli("run", "--publish=3000", "--host=localhost:3000", "--", "true")
    assert done.returncode == 125
    assert "Leave --publish or --host out" in done.stderr
