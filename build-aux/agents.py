# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs real agents in the sandbox with a fake model: at a terminal, where they change files that
are then undone; with --tools, where their own write fails and ours works; and with one of our
connections. Then outside the sandbox, with our tools as an MCP server, where a user answers in the
real window.

    build-aux/test-agents [NAME...] [whole] [tools] [connection] [mcp]
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gi

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
gi.require_version("Gtk", "4.0")

from support.desktop import AT_REST, Outside, is_not, program  # noqa: E402
from support.person import Person  # noqa: E402
from support.servers.agent_model import OURS, OWN, SAID, ModelServer, Step  # noqa: E402

from ollmsandbox.paths import Paths  # noqa: E402
from ollmsandbox.sandbox.profile.agent import AgentRules, AgentSetup  # noqa: E402
from ollmsandbox.sandbox.profile.file import read_profile  # noqa: E402
from ollmsandbox.tools.questions import WITH_NETWORK  # noqa: E402

# opencode takes a minute until its first request on a slow machine, in a sandbox or not.
_PATIENCE = 240.0
_PROGRAM = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
# Else it begins without the tools, and refuses to run everything for root.
_CLAUDE = {"MCP_CONNECTION_NONBLOCKING": "false", "IS_SANDBOX": "1"}
_KEY = "sk-ant-fakefakefakefakefakefake"


class Agent(NamedTuple):
    """How an agent is started, and what is typed to leave it."""

    # At a terminal, and without questions of its own.
    at_terminal: tuple[str, ...]
    leave: tuple[str, ...]
    # With one answer.
    once: tuple[str, ...]
    # Whether it uses a connection of ours, and else its own variables.
    has_connection: bool = True
    # What has to be confirmed first: a text on the screen, and the keys to press then.
    confirm: tuple[str, ...] = ()


_QUIT = ("C-c", "C-c")
AGENTS = {
    "claude": Agent(
        ("--dangerously-skip-permissions", "do it"),
        ("/exit", "Enter"),
        ("--dangerously-skip-permissions", "-p", "do it"),
        has_connection=False,
    ),
    "codex": Agent(
        ("do it",),
        ("/quit", "Enter"),
        ("exec", "--skip-git-repo-check", "do it"),
        confirm=("Trust and continue", "Enter"),
    ),
    "gemini": Agent(
        ("--yolo", "--skip-trust", "-i", "do it"),
        ("/quit", "Enter", "Enter"),
        ("--yolo", "--skip-trust", "-p", "do it"),
        has_connection=False,
    ),
    "opencode": Agent(("--prompt", "do it"), _QUIT, ("run", "do it")),
    "qwen": Agent(("--yolo", "-i", "do it"), ("/quit", "Enter"), ("--yolo", "-p", "do it")),
    "kimi": Agent(
        ("--auto",),
        ("/exit", "Enter"),
        ("-p", "do it"),
        confirm=("Trust this folder?", "Enter", "do it", "Enter"),
    ),
}


class Try:
    """One agent, in a new project, with a fake model."""

    def __init__(self, name: str, home: Path, plan: Sequence[Step]) -> None:
        self.name, self.home, self.agent = name, home, AGENTS[name]
        self.model = ModelServer(plan)
        self.project = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home.parent))
        subprocess.run(["git", "init", "-q", self.project], check=True)
        url = f"http://localhost:{self.model.port}"
        path = f"{home}/.npm-global/bin:{ROOT}/build:{os.environ['PATH']}"
        self.environ = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
        self.environ["TERM"] = "xterm-256color"
        if not self.agent.has_connection:
            self.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": _KEY}
            self.environ |= {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": _KEY}
        self._write_settings(url)

    def _write_settings(self, url: str) -> None:
        """Write our settings, and those with which agents start without questions of their own.
        Nothing else of earlier attempts is left."""
        paths = Paths.from_environ(self.environ)
        for folder in (paths.data, paths.cache, paths.config):
            shutil.rmtree(folder, ignore_errors=True)
        known = {
            "hasCompletedOnboarding": True,
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [_KEY[-20:]]},
            "projects": {str(self.project): {"hasTrustDialogAccepted": True}},
        }
        texts = {
            ".claude.json": json.dumps(known),
            ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
            f".config/ollmchat/profiles/{self.name}.yaml": "agent:"
            f" {{ hosts: ['localhost:{self.model.port}'] }}",
            ".config/ollmchat/keys.yaml": "fake: sk-REAL-KEY",
            ".config/ollmchat/connections.yaml": "connections: { fake: { kind: openai, key: file,"
            f" model: fake, address: '{url}/v1' }} }}",
        }
        for path, text in texts.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_PROGRAM, *arguments],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def made(self) -> set[str]:
        """Return the names of the files in the project."""
        return {path.name for path in self.project.iterdir()} - {".git"}

    def once(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Let the agent do its work without a terminal."""
        reach = ("--host", f"localhost:{self.model.port}")
        if self.agent.has_connection:
            reach = ("--connection", "fake")
        return self.cli(self.name, *reach, *options, "--", *self.agent.once)

    @contextmanager
    def outside(self) -> Iterator[subprocess.Popen[str]]:
        """Start the agent outside the sandbox, without a terminal, and end it in any case."""
        rules, setup = _rules(self.name), AgentSetup()
        if rules.connection is not None and self.agent.has_connection:
            values = {"URL": f"http://localhost:{self.model.port}", "MODEL": "fake"}
            setup = rules.connection.filled(values)
        bus = {"DBUS_SESSION_BUS_ADDRESS": os.environ["DBUS_SESSION_BUS_ADDRESS"]}
        process = subprocess.Popen(
            [self.name, *rules.always.arguments, *setup.arguments, *self.agent.once],
            cwd=self.project,
            env={**self.environ, **dict(setup.environment), **_CLAUDE, **bus},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def close(self) -> None:
        self.model.close()
        shutil.rmtree(self.project)


class Screen:
    """A terminal with an agent in it."""

    def __init__(self, one: Try, arguments: Sequence[str]) -> None:
        self._one = one
        self._tmux = ["tmux", "-S", f"{one.project}.tmux", "-f", os.devnull]
        line = f"{shlex.join([*_PROGRAM, *arguments])}; echo STATUS=$?; exec cat"
        size = ("-x", "120", "-y", "40")
        self._control("new-session", "-d", *size, "-c", str(one.project), "bash", "-c", line)

    def _control(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words],
            env=self._one.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    @property
    def text(self) -> str:
        # The program's lines may be longer than the screen is wide.
        return self._control("capture-pane", "-p", "-J")

    def wait_for(self, *texts: str) -> str:
        """Return the first of the texts that appears."""
        end = time.monotonic() + _PATIENCE
        while True:
            shown = self.text
            for text in texts:
                if text in shown:
                    return text
            assert time.monotonic() < end, f"{' or '.join(texts)} does not appear:\n{shown}"
            time.sleep(0.2)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._control("send-keys", key)
            time.sleep(1.0)  # some take keys that come together for pasted text

    def close(self) -> None:
        self._control("kill-server")


def try_as_a_whole(name: str, home: Path) -> str:
    """The agent changes a file at a terminal, and the change is undone."""
    one = Try(name, home, [Step(OWN, "echo made > made")])
    reach = ("--connection", "fake") if one.agent.has_connection else ()
    screen = Screen(one, [name, *reach, "--", *one.agent.at_terminal])
    try:
        if not reach:
            screen.wait_for("Start it? [y/N]")
            screen.press("y", "Enter")
        confirm = one.agent.confirm
        if confirm and screen.wait_for(confirm[0], SAID) != SAID:
            screen.press(*confirm[1:])
        screen.wait_for(SAID)
        assert not (one.project / "made").exists(), "it is in the project before the end"
        screen.press(*one.agent.leave)
        screen.wait_for("STATUS=")
        assert (one.project / "made").read_text() == "made\n", screen.text
        undone = one.cli("undo")
        assert undone.returncode == 0 and not (one.project / "made").exists(), undone
    finally:
        screen.close()
        one.close()
    return "changed and undone"


def try_with_tools(name: str, home: Path) -> str:
    """The agent's own write fails, and ours works."""
    one = Try(name, home, [Step(OWN, "echo evil > evil"), Step(OURS, "echo ours > ours")])
    try:
        done = one.once("--tools")
        offered = one.model.missing
        # It tried, and was told that it failed.
        assert one.model.heard("Read-only file system"), done
        assert not (one.project / "evil").exists(), done
        assert (one.project / "ours").exists(), f"{done}\noffered: {offered}"
        assert "echo ours" in one.cli("history").stdout
    finally:
        one.close()
    return "its own write failed, ours worked"


def try_with_connection(name: str, home: Path) -> str:
    """The agent uses the model of a connection, and does not hold the key."""
    one = Try(name, home, [Step(OWN, "env | sort > seen")])
    try:
        done = one.cli(name, "--connection", "fake", "--", *one.agent.once)
        if _rules(name).connection is None:
            assert done.returncode == 125 and "cannot be pointed at" in done.stderr, done
            return "refused, as documented"
        assert one.model.asked, done
        assert all("sk-REAL-KEY" in asked.key for asked in one.model.asked)
        seen = (one.project / "seen").read_text()
        assert "sk-REAL-KEY" not in seen and _KEY not in seen, seen
    finally:
        one.close()
    return "used, and the key stayed outside"


def try_through_mcp(name: str, home: Path) -> str:
    """The agent runs outside the sandbox with our tools, each call is a run, and a user at the real
    window allows one question and denies another."""
    plan = [
        Step(OURS, "echo ours > ours"),
        Step(OURS, "echo allowed > allowed", {"network": True, "hosts": ["example.org"]}),
        Step(OURS, "echo denied > denied", {"network": True}),
    ]
    one = Try(name, home, plan)
    person = Person(home, one.project, one.environ)
    try:
        installed = one.cli("mcp", "install", name, "--yes")
        assert installed.returncode == 0, installed
        with program(person, f"{one.project}/", notifications=False) as window:
            with one.outside() as agent:
                _answer_questions(window)
                output = agent.communicate(timeout=_PATIENCE)[0]
            window.close()
        told = f"{output}\noffered: {one.model.missing}"
        assert one.made() == {"ours", "allowed"}, f"{one.made()} {told}"
        assert one.model.heard("denied by the user"), told
        runs = {
            run["command"]: run["run_id"] for run in json.loads(one.cli("history", "--json").stdout)
        }
        assert set(runs) == {step.command for step in plan[:2]}, runs
        undone = one.cli("undo", "--since", runs[plan[0].command])
        assert undone.returncode == 0 and one.made() == set(), undone
    finally:
        one.cli("mcp", "uninstall", name, "--yes")
        one.close()
    return "recorded and undone, allowed and denied in the window"


def _answer_questions(window: Outside) -> None:
    """Open the session of the agent in the window, allow its first question and deny the second."""
    waiting: list[str] = []

    def look() -> bool:
        named = (node.name for node in window.read() if node.role == "list item")
        waiting[:] = [name for name in named if name.endswith(", needs your answer")]
        return bool(waiting)

    window.until(look, "the sidebar has a session with a question", _PATIENCE)
    for command, button in (("echo allowed > allowed", "Allow Once"), ("echo denied", "Deny")):
        is_asked = partial(window.reads, WITH_NETWORK.format(command=command).rstrip("?"))
        if waiting:
            window.click("list item", waiting.pop(), then=is_asked)
        window.until(is_asked, f"there is a question about {command!r}", _PATIENCE)
        window.click("button", button, then=partial(is_not, is_asked), still=AT_REST)


ATTEMPTS = {
    "whole": try_as_a_whole,
    "tools": try_with_tools,
    "connection": try_with_connection,
    "mcp": try_through_mcp,
}


def _rules(name: str) -> AgentRules:
    rules = read_profile(name, ROOT / "none").agent
    assert rules is not None
    return rules


def _version(name: str, home: Path) -> str:
    done = subprocess.run(
        [home / ".npm-global/bin" / name, "--version"],
        env={**os.environ, "HOME": str(home), "PATH": f"{home}/.npm-global/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip()


def _try_all(name: str, home: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Return what was seen in each attempt; what failed begins with FAILED."""
    seen: dict[str, str] = {}
    for what in wanted:
        begin = time.monotonic()
        try:
            seen[what] = f"{ATTEMPTS[what](name, home)} ({time.monotonic() - begin:.0f} s)"
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            seen[what] = f"FAILED: {error}"
        print(f"{name} {what}: {seen[what]}", flush=True)
    return seen


def main(home: Path, words: Sequence[str]) -> int:
    names = [name for name in AGENTS if name in words] or list(AGENTS)
    wanted = [what for what in ATTEMPTS if what in words] or list(ATTEMPTS)
    unknown = set(words) - set(AGENTS) - set(ATTEMPTS)
    if unknown:
        sys.exit(f"There is no {', '.join(sorted(unknown))}: {', '.join([*AGENTS, *ATTEMPTS])}")
    rows = [(name, _version(name, home), _try_all(name, home, wanted)) for name in names]
    print()
    for name, version, seen in rows:
        print(f"{name} {version}")
        for what, text in seen.items():
            print(f"  {what:<10}  {text.splitlines()[0][:100]}")
    failed = sum(text.startswith("FAILED") for _, _, seen in rows for text in seen.values())
    print(f"\n{sum(len(seen) for *_, seen in rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
