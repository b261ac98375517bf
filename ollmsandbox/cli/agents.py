# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks about the hosts of a whole agent, and gives it our tools and connections."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import loop
from ..engine.agents import MODEL_HOST, TOOLS_HOST, agent_command
from ..engine.run import load_profile
from ..errors import SandboxError
from ..paths import Paths
from ..sandbox.profile.agent import AgentRules
from ..sandbox.spec import AgentOptions, RunSpec
from .commands.playground import confirmed

if TYPE_CHECKING:
    from ..sandbox.network.relay import Service

_MOST_SERVERS = 4


def prepare_front(
    given: argparse.Namespace, spec: RunSpec, paths: Paths, command: str | Sequence[str]
) -> tuple[RunSpec, dict[str, Service]]:
    """Return the spec with the hosts that the agent of the profile may reach, and the names that
    we serve in its sandbox. Raise if the agent is not installed, or if the user does not allow the
    hosts."""
    agent = load_profile(paths, spec).agent
    agent_command(agent, command, os.environ)
    services: dict[str, Service] = {}
    options = AgentOptions(tools=given.tools)
    if given.tools:
        services[TOOLS_HOST] = _ToolsService(spec.project, given.apply)
    if given.connection is not None:
        model, services[MODEL_HOST] = _open_connection(given.connection, paths)
        options = options._replace(model=model)
    spec = spec._replace(agent=options)
    if agent is None or given.hosts or given.network == "all" or given.connection is not None:
        return spec, services
    if given.json:
        raise _nobody_asked(agent)
    if not _may_reach(agent):
        raise SandboxError("{agent} was not started.", agent=agent.title)
    return spec._replace(network=True, by_host=True, hosts=agent.hosts), services


def _may_reach(agent: AgentRules) -> bool:
    """Ask at the terminal whether the agent may reach its hosts."""
    if not os.isatty(0) or not os.isatty(2):
        raise _nobody_asked(agent)
    hosts = _listed(agent.hosts)
    return confirmed(f"ollmsandbox: {agent.title} will be able to reach {hosts}. Start it?")


def _nobody_asked(agent: AgentRules) -> SandboxError:
    return SandboxError(
        "Nobody can be asked which hosts {agent} may reach.",
        "Name them: {options}",
        agent=agent.title,
        options=" ".join(f"--host {host}" for host in agent.hosts),
    )


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _open_connection(name: str, paths: Paths) -> tuple[str, Service]:
    """Return the model of a connection, and what serves it."""
    # Not at the top: it takes a while, and is rarely needed.
    from ..chat.providers.connections import ConnectionStore
    from ..chat.providers.connections_file import ServerKind
    from ..chat.providers.forward import ModelForwarder

    store = ConnectionStore(paths, os.environ)
    connection = store.find(name)
    if connection.kind is ServerKind.TOUR:
        raise SandboxError("The tour has no server that an agent could use.")
    if not connection.model:
        raise SandboxError(
            "The connection {name} has no model.",
            "Choose one: ollmsandbox connections default {name} MODEL",
            name=name,
        )
    return connection.model, ModelForwarder(connection, loop.run(store.key_of(connection)))


class _ToolsService:
    """Starts an MCP server outside the sandbox for each connection from inside."""

    def __init__(self, project: str, apply: str) -> None:
        # Each takes memory outside the sandbox, where no limit of the run counts.
        self._free = threading.Semaphore(_MOST_SERVERS)
        # The agent is inside, so it must not answer for the user.
        self._arguments = ["mcp", "--project", project, "--apply", apply, "--ask-only-in-window"]

    def __call__(self, client: socket.socket) -> None:
        if self._free.acquire(blocking=False):
            try:
                self._serve(client)
            finally:
                self._free.release()

    def _serve(self, client: socket.socket) -> None:
        # The launcher that started us, and not by a name that the project could have.
        program = [sys.executable, "-I", os.path.abspath(sys.argv[0])]
        subprocess.run(
            [*program, *self._arguments],
            stdin=client.fileno(),
            stdout=client.fileno(),
            # The terminal is the agent's.
            stderr=subprocess.DEVNULL,
            cwd="/",
            check=False,
        )
