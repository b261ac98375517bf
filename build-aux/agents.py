# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs real agents in the sandbox with a fake model: at a terminal, where they change files that
are then undone; with --tools, where their own write fails and ours works; and outside the sandbox,
with our tools as an MCP server.

    build-aux/test-agents [NAME...]
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
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.servers.agent_model import OURS, OWN, SAID, ModelServer, Step  # noqa: E402

from ollmsandbox.sandbox.profile.agent import AgentSetup  # noqa: E402
from ollmsandbox.sandbox.profile.file import read_profile  # noqa: E402

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
        """Write our settings, and those with which agents start without questions of their own."""
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

    def once(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Let the agent do its work without a terminal."""
        reach = ("--host", f"localhost:{self.model.port}")
        if self.agent.has_connection:
            reach = ("--connection", "fake")
        return self.cli(self.name, *reach, *options, "--", *self.agent.once)

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


def try_as_a_whole(name: str, home: Path) -> None:
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
        assert not reach or "sk-REAL-KEY" in one.model.asked[0].key
    finally:
        screen.close()
        one.close()


def try_with_tools(name: str, home: Path) -> None:
    """The agent's own write fails, and ours works."""
    one = Try(name, home, [Step(OWN, "echo evil > evil"), Step(OURS, "echo ours > ours")])
    try:
        done = one.once("--tools")
        offered = one.model.missing
        assert not (one.project / "evil").exists(), done
        assert (one.project / "ours").exists(), f"{done}\noffered: {offered}"
        assert "echo ours" in one.cli("history").stdout
    finally:
        one.close()


def try_through_mcp(name: str, home: Path) -> None:
    """The agent runs outside the sandbox, and our tools are in it: each call is a run."""
    one = Try(name, home, [Step(OURS, "echo ours > ours")])
    agent = read_profile(name, home / "none").agent
    assert agent is not None
    setup = AgentSetup()
    if agent.connection is not None and one.agent.has_connection:
        url = f"http://localhost:{one.model.port}"
        setup = agent.connection.filled({"URL": url, "MODEL": "fake"})
    try:
        installed = one.cli("mcp", "install", name, "--yes")
        assert installed.returncode == 0, installed
        done = subprocess.run(
            [name, *agent.always.arguments, *setup.arguments, *one.agent.once],
            cwd=one.project,
            env={**one.environ, **dict(setup.environment), **_CLAUDE},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        offered = one.model.missing
        assert (one.project / "ours").exists(), f"{done}\noffered: {offered}"
        assert "echo ours" in one.cli("history").stdout
        undone = one.cli("undo")
        assert undone.returncode == 0 and not (one.project / "ours").exists(), undone
    finally:
        one.cli("mcp", "uninstall", name, "--yes")
        one.close()


def main(home: Path, names: Sequence[str]) -> int:
    failed = 0
    for name in names or AGENTS:
        version = subprocess.run(
            [home / ".npm-global/bin" / name, "--version"],
            env={**os.environ, "HOME": str(home), "PATH": f"{home}/.npm-global/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{name} {version.stdout.strip()}", flush=True)
        attempts = [try_as_a_whole, try_with_tools]
        if name != "kimi":  # `mcp install` does not know it
            attempts.append(try_through_mcp)
        for attempt in attempts:
            what = attempt.__name__.removeprefix("try_").replace("_", " ")
            begin = time.monotonic()
            try:
                attempt(name, home)
            except (AssertionError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"  FAILED  {what}: {error}", flush=True)
            else:
                print(f"  ok      {what} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
