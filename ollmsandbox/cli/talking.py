# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of what has to do with talking to a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .given import count, minutes, readable

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_AGENT_HELP = """\
Talk to a model that works on the project with tools. Its commands run in the sandbox; you are
asked before anything goes beyond that. With TEXT it is one turn; without, you are asked what to
do, again and again.
"""
_AGENT_NOTES = """\
Ctrl+C stops what goes on and not the program. At the prompt, !COMMAND runs a command in the sandbox
yourself, and /help shows what else there is.

examples:
  ollmsandbox agent "make the tests pass"
  ollmsandbox agent --apply review "update the dependencies"
  ollmsandbox agent --continue
"""


def _add_talking(commands: _Commands) -> None:
    _add_agent(commands)
    tour = commands.add_parser(
        "tour",
        help="see it all on a sample project, without any model",
        description="Make a small sample project and play a scripted session on it: no model is "
        "needed, and nothing of yours is touched.",
    )
    tour.add_argument(
        "--project",
        metavar="DIR",
        help="where to make the sample project (default: ~/OLLM Sandbox Tour)",
    )
    tour.add_argument("--yes-to-nothing", action="store_true", help="ask nothing, deny everything")
    tour.add_argument("--json", action="store_true", help="print one JSON document for each event")
    tour.set_defaults(handler=_tour)
    _add_sessions(commands)
    _add_others(commands)


def _add_agent(commands: _Commands) -> None:
    agent = commands.add_parser(
        "agent",
        help="talk to a model that works on the project",
        description=_AGENT_HELP,
        epilog=_AGENT_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    agent.add_argument(
        "text", nargs="?", type=readable, metavar="TEXT", help="what the model shall do"
    )
    agent.add_argument("--model", type=readable, metavar="M", default="", help="this model")
    agent.add_argument(
        "--connection", metavar="NAME", default="", help="of this connection (or: tour)"
    )
    agent.add_argument("--project", metavar="DIR", help="the project (default: this one)")
    which = agent.add_mutually_exclusive_group()
    which.add_argument("--session", type=readable, metavar="ID", help="go on with this session")
    which.add_argument(
        "--continue", action="store_true", dest="go_on", help="go on with the last session here"
    )
    agent.add_argument(
        "--apply",
        "--mode",
        choices=("auto", "review", "never"),
        default="auto",
        help="what becomes of changes: they go into the project at once (auto), wait for you "
        "(review), or are dropped (never)",
    )
    agent.add_argument(
        "--profile", metavar="NAME", help="what commands may see and use (default: standard)"
    )
    agent.add_argument(
        "--max-turns",
        type=count,
        default=50,
        metavar="N",
        help="answers of the model until it has to stop (default: 50)",
    )
    agent.add_argument("--max-minutes", type=minutes, metavar="N", help="stop after this time")
    agent.add_argument("--max-tokens", type=count, metavar="N", help="stop after so many tokens")
    agent.add_argument(
        "--allow-private",
        action="store_true",
        help="web pages may also come from this machine and its neighbours",
    )
    agent.add_argument(
        "--ask-every-command", action="store_true", help="ask before every command, too"
    )
    agent.add_argument(
        "--yes-to-nothing",
        action="store_true",
        help="ask nothing: what needs your permission is denied",
    )
    agent.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document for each event; nothing is asked then",
    )
    agent.set_defaults(handler=_agent)


def _add_sessions(commands: _Commands) -> None:
    sessions = commands.add_parser("sessions", help="what was said before")
    actions = sessions.add_subparsers(metavar="ACTION", required=True, prog="ollmsandbox sessions")

    def action(name: str, what: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(name, help=what, description=f"{what.capitalize()}.")
        parser.set_defaults(handler=_sessions, action=name)
        return parser

    for name, what in (("list", "list the sessions"), ("search", "find sessions by their words")):
        parser = action(name, what)
        if name == "search":
            parser.add_argument("words", nargs="+", type=readable, metavar="WORD")
        parser.add_argument("--project", metavar="DIR", help="only those of this project")
        parser.add_argument("--limit", type=count, default=50, metavar="N", help="the last N")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
    for name, what in (
        ("show", "show what was said in a session"),
        ("export", "write a session as a document"),
    ):
        parser = action(name, what)
        parser.add_argument(
            "session", type=readable, metavar="ID", help="its id, or the beginning of it"
        )
        parser.add_argument("--json", action="store_true", help="as JSON (default: Markdown)")
        if name == "export":
            parser.add_argument("--output", metavar="FILE", help="into this file, which is new")
    rename = action("rename", "give a session another name")
    rename.add_argument("session", type=readable, metavar="ID")
    rename.add_argument("title", type=readable, metavar="TITLE")
    delete = action("delete", "delete sessions; what was changed in projects stays as it is")
    delete.add_argument("session", nargs="+", type=readable, metavar="ID")


def _add_others(commands: _Commands) -> None:
    from . import connections, permissions

    parser = commands.add_parser("connections", help="where models come from")
    connections.add_arguments(parser)
    parser.set_defaults(handler=connections.connections)
    parser = commands.add_parser("permissions", help="what you answered with always")
    permissions.add_arguments(parser)
    parser.set_defaults(handler=permissions.permissions)


def _agent(given: argparse.Namespace) -> int:
    from .agent import agent

    return agent(given)


def _tour(given: argparse.Namespace) -> int:
    from .tour import tour

    return tour(given)


def _sessions(given: argparse.Namespace) -> int:
    from .sessions import sessions

    return sessions(given)
