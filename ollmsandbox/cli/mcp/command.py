# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox mcp`"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from ...loop import run
from ...paths import Paths
from ...project.opening import check_links
from ..arguments import default_project
from .server import McpServer

if TYPE_CHECKING:
    from .session import AgentSession


def mcp(given: argparse.Namespace) -> int:
    """Serve a client, or write our lines into a client's settings."""
    if given.action is not None:
        from .install import change_client

        return change_client(given)
    if given.project is None:
        given.project = default_project(os.environ)
    else:
        check_links(given.project, Paths.from_environ(os.environ))
    reader, writer = _take_streams()
    return run(_serve(given, reader, writer))


def _take_streams() -> tuple[int, int]:
    """Return copies of standard input and output that nothing else can use: a stray word would
    break the protocol."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return reader, writer


async def _serve(given: argparse.Namespace, reader: int, writer: int) -> int:
    server = McpServer(partial(_open_session, given), reader, writer)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.peer.end)
    await server.serve()
    return 0


def _open_session(given: argparse.Namespace, server: McpServer) -> AgentSession:
    """Load what calls need. This takes half a second, in which the client is answered already."""
    from ...chat.storage.history import new_session_id
    from ...i18n import set_language
    from ...sandbox.profile.profile import DEFAULT_PROFILE
    from ...sandbox.spec import Mode
    from ...tools.context import ToolPreferences
    from ..changes import finish_earlier_runs
    from .asker import AgentAsker
    from .session import AgentSession
    from .window import WindowLink

    # The questions to the user are in their language.
    set_language()
    paths = Paths.from_environ(os.environ)
    finish_earlier_runs(paths)
    session_id = new_session_id()
    project = os.path.realpath(given.project)
    link = WindowLink(session_id, project)
    elicit = None if given.ask_only_in_window else server.elicit
    asker = AgentAsker(server.client_of, paths.shown(project), link.ask, elicit)
    preferences = ToolPreferences(
        mode=Mode(given.apply),
        profile_name=given.profile or DEFAULT_PROFILE,
        ask_every_command=given.ask_every_command,
    )
    return AgentSession(session_id, given.project, preferences, paths, asker, link)
