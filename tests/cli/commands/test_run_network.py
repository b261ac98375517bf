# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run` with `--host`, `--network` and `--publish`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.person import Person
from support.servers.world import in_world

pytestmark = pytest.mark.ordinary

World = Callable[[str], str]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return partial(in_world, tmp_path)


def test_hosts_are_asked_about_at_the_terminal(world: World) -> None:
    world("""
        for answer, is_reached in (("y", True), ("n", False), ("", False)):
            screen = at_terminal(
                ["run", "--network", "-c", "curl -sS http://www.example.org/; echo; echo END"],
                "www.example.org, port 80. Allow it? [y/N] ",
                f"{answer}\\n",
            )
            assert ("hello from 203.0.113.5" in screen) is is_reached, screen
            assert "END" in screen
    """)


def test_nobody_can_be_asked_without_a_terminal(person: Person) -> None:
    done = person.cli("run", "--network", "--", "true")
    assert done.returncode == 125
    assert "--host" in done.stderr and "--network=all" in done.stderr


def test_what_is_not_a_host(person: Person) -> None:
    for host in (
        *("", "*", "*.org", "localhost", "127.0.0.1.5", "a b", "-x", "h\x1b[2J", "a:99999"),
        *("198.18.0.5", "0.0.0.0", "127.0.0.1:80", "169.254.169.254", "224.0.0.1"),
        "255.255.255.255",
    ):
        done = person.cli("run", f"--host={host}", "--json", "--", "true")
        assert done.returncode == 125, host
        assert json.loads(done.stdout)["errors"]
        assert "\x1b" not in done.stdout + done.stderr


def test_what_a_run_reached_is_in_the_history_and_becomes_a_list(world: World) -> None:
    world("""
        import json

        fetch = "curl -sS http://www.example.org/; curl -sS http://other.example.org/ >/dev/null"
        done = cli("run", "--json", "--host", "www.example.org", "-c", fetch)
        run = json.loads(done.stdout)
        refused, allowed = run["hosts"]
        assert (refused["host"], refused["allowed"]) == ("other.example.org", False)
        assert (allowed["host"], allowed["port"], allowed["allowed"]) == (
            "www.example.org", 80, True)
        assert 0 < allowed["sent"] < allowed["received"], allowed
        # It changed nothing, and is on record all the same.
        (known,) = json.loads(cli("history", "--json").stdout)
        assert (known["run_id"], known["hosts"]) == (run["run_id"], run["hosts"])
        assert (known["states"], known["exit_code"]) == ({}, run["exit_code"])
        shown = cli("history").stdout
        assert "no changes" in shown and "other.example.org (refused)" in shown, shown
        assert f"www.example.org ({allowed['sent']} bytes sent, " in shown, shown
        assert "www.example.org (" in cli("changes", run["run_id"]).stdout

        saved = cli("hosts", "save", "web", run["run_id"])
        assert saved.stdout == "@web: www.example.org\\n", saved
        assert json.loads(cli("hosts", "list", "--json").stdout) == {"web": ["www.example.org"]}
        done = cli("run", "--host", "@web", "-c", fetch)
        assert "hello from 203.0.113.5" in done.stdout, done
        assert "The host other.example.org was not allowed." in done.stderr, done
        assert cli("hosts", "remove", "web").returncode == 0
        done = cli("run", "--host", "@web", "--", "true")
        assert done.returncode == 125 and "no list of hosts named 'web'" in done.stderr, done
    """)


def test_a_run_that_changed_something_has_its_hosts_on_record(world: World) -> None:
    world("""
        import json

        cli("run", "-c", "echo >first")
        fetch = "curl -sS http://www.example.org/ >page"
        run = json.loads(cli("run", "--json", "--host", "www.example.org", "-c", fetch).stdout)
        cli("run", "--host", "www.example.org", "-c", "curl -sS http://www.example.org/")
        _last, known, _first = json.loads(cli("history", "--json").stdout)
        assert (known["run_id"], known["states"]) == (run["run_id"], {"applied": 1})
        assert known["hosts"] == run["hosts"] != []
        # The index of runs is made again from their folders.
        before = cli("history", "--json").stdout
        files = [*Path("home/.local/share/ollmchat").glob("ollmsandbox.db*")]
        assert files
        for file in files:
            file.unlink()
        assert cli("history", "--json").stdout == before
        # The last run changed nothing: undoing it is not what the user means.
        assert cli("undo").returncode == 0
        assert not os.path.exists("project/page") and os.path.exists("project/first")
    """)


def test_a_project_cannot_define_lists(world: World) -> None:
    world("""
        for folder in (".", ".ollmsandbox", ".ollmchat", ".config/ollmchat"):
            os.makedirs(f"project/{folder}", exist_ok=True)
            Path(f"project/{folder}/hosts.yaml").write_text("web: [www.example.org]")
        config = "~/.config/ollmchat"
        cli("run", "-c", f"mkdir -p {config}; echo 'web: [a.example]' >{config}/hosts.yaml")
        listed = cli("hosts", "list").stdout
        assert "You have no lists" in listed and ".config/ollmchat/hosts.yaml" in listed, listed
        done = cli("run", "--host", "@web", "--", "true")
        assert done.returncode == 125 and "no list of hosts named 'web'" in done.stderr, done
    """)


def test_a_port_is_published_or_another_one_that_is_named(world: World) -> None:
    world("""
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
                assert said.startswith("ollmsandbox: Port 3000 is not free here."), said
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
    """)


def test_what_cannot_be_published_is_refused(person: Person) -> None:
    for port in ("0", "65536", "-1", "http", "٣", "3000:80"):
        done = person.cli("run", f"--publish={port}", "--", "true")
        assert done.returncode == 2
        assert "is not a port" in done.stderr
    for option, remedy in (
        ("--network=all", "Leave --publish out"),
        # Each connection would open another one, until nothing is left.
        ("--host=localhost:3000", "Leave --publish or --host out"),
    ):
        done = person.cli("run", "--publish=3000", option, "--", "true")
        assert done.returncode == 125
        assert remedy in done.stderr
