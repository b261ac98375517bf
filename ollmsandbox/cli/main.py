# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: finds the sub-command, and reports errors.

Each sub-command is in a module of its own, and only the requested one is imported: `run` has to
start quickly. Their arguments are together in arguments.py, because the build makes the manual and
the completions from them with nothing but Python itself.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from .. import __version__
from ..errors import OllmSandboxError, in_words
from ..record import Record
from . import arguments as arguments_of
from .arguments import AGENTS, FAILED, HelpFormatter
from .streams import give_up, open_streams, print_notices


class SubCommand(Record):
    name: str
    help: str
    # The function that runs the command, with its module, relative to this package; and the end of
    # the name of the one that adds its arguments. Without them, both are named after the command.
    handler: str = ""
    arguments: str = ""


COMMANDS = (
    SubCommand("run", "run a command in the sandbox", "commands.run.run_in_sandbox"),
    SubCommand("shell", "open a shell in the sandbox"),
    *(
        SubCommand(
            name, f"run {title} in the sandbox", "commands.run.run_agent_program", "agent_program"
        )
        for name, title in AGENTS.items()
    ),
    SubCommand("changes", "show what a run changed"),
    SubCommand(
        "apply",
        "put pending or undone changes into the project",
        "commands.changes.act_on_changes",
    ),
    SubCommand("discard", "drop pending changes", "commands.changes.act_on_changes"),
    SubCommand("undo", "undo applied changes", "commands.changes.act_on_changes"),
    SubCommand(
        "history",
        "list the runs that changed something or tried to reach hosts",
        "commands.changes.history",
    ),
    SubCommand("project", "record where a project was moved to"),
    SubCommand("roots", "folders outside the project that commands may change"),
    SubCommand("hosts", "lists of hosts for --host"),
    SubCommand("settings", "how long versions and caches are kept, and where Alpine comes from"),
    SubCommand("doctor", "check what this computer can do, and how to fix it"),
    SubCommand("playground", "the folder for experiments that every command can write to"),
    SubCommand(
        "caches", "what commands have downloaded to their own ~/.cache, ~/.npm and the like"
    ),
    SubCommand("rootfs", "the Alpine system that commands can run in"),
    SubCommand("agent", "talk to a model that works on the project", "agent.command.agent"),
    SubCommand("mcp", "give another agent the tools of the sandbox", "mcp.command.mcp"),
    SubCommand("tour", "see everything on a sample project, without a model", "agent.command.tour"),
    SubCommand("sessions", "list, search and export earlier conversations"),
    SubCommand("connections", "connections to model servers"),
    SubCommand("permissions", "list and forget saved answers"),
)


def main(arguments: Sequence[str]) -> int:
    open_streams()
    try:
        try:
            return _main(arguments)
        finally:
            # Not left to the end of the program, where an error would go unnoticed.
            sys.stdout.flush()
    except OllmSandboxError as error:
        print_notices(str(error))
        give_up()
        return FAILED
    except KeyboardInterrupt:
        give_up()
        return 128 + 2
    except BrokenPipeError:
        # Nobody reads our output any more: exit like a program that SIGPIPE kills.
        give_up()
        return 128 + 13
    except OSError as error:
        if lost := give_up():
            print_notices(f"Cannot write the output: {lost.strerror}.")
        else:
            print_notices(in_words(error))
        give_up()
        return FAILED


def _main(arguments: Sequence[str]) -> int:
    if not os.environ.get("HOME"):
        # As a login would: commands look for the playground there.
        from ..paths import home_on_record

        os.environ["HOME"] = home_on_record()
    parser = make_parser(next((word for word in arguments if not word.startswith("-")), ""))
    if not arguments:
        parser.print_help()
        return 0
    if _innermost(parser, arguments[:1]) is parser and os.path.isdir(arguments[0]):
        parser.error(
            f"not a command. To open the folder in the window: ollmsandbox ./{arguments[0]}"
        )
    given, left = parser.parse_known_args(arguments)
    if hasattr(given, "path"):
        # After an option argparse takes no more paths: after any option before Python 3.12.7,
        # later only if some paths came before it.
        given.path += [word for word in left if not word.startswith("-")]
        left = [word for word in left if word.startswith("-")]
    elif len(left) == 1 and left[0][0] != "-" and vars(given).get("folder", "") is None:
        given.folder = left.pop()
    if left:
        _innermost(parser, arguments).error(f"unrecognized arguments: {' '.join(left)}")
    if "handler" not in given:
        parser.error("no command was given")
    handler: Callable[[argparse.Namespace], int] = given.handler
    return handler(given)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Of an option that has a value only sometimes, argparse does not know the values.
        is_network = message.startswith("argument --network: ")
        super().error("argument --network: the only value is 'all'" if is_network else message)


def make_parser(chosen: str = "", *, whole: bool = False) -> argparse.ArgumentParser:
    """Return a parser that knows the arguments of the `chosen` command, or of all (`whole`).

    Of the others it knows only names and help. Importing all modules takes too long for `run`.
    """
    parser = _Parser(
        prog="ollmsandbox",
        description="Let an agent run commands on a real project without fear.",
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"OLLM Sandbox {__version__}")
    # Without `prog`, argparse would format a usage message first.
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", prog="ollmsandbox")
    is_known = any(command.name == chosen for command in COMMANDS)
    for command in COMMANDS:
        if whole or not is_known or command.name == chosen:
            added = parsers.add_parser(
                command.name,
                help=command.help,
                description=f"{command.help[0].upper()}{command.help[1:]}.",
                formatter_class=HelpFormatter,
            )
            if whole or command.name == chosen:
                getattr(arguments_of, f"add_{command.arguments or command.name}_arguments")(added)
            if command.name == chosen:
                where = command.handler or f"commands.{command.name}.{command.name}"
                module, _, function = where.rpartition(".")
                handler = getattr(import_module(f".{module}", __package__), function)
                added.set_defaults(handler=handler)
    return parser


def _innermost(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.ArgumentParser:
    """Return the parser whose usage helps: for a command within a command, the inner one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for place, word in enumerate(arguments):
                if word in action.choices:
                    return _innermost(action.choices[word], arguments[place + 1 :])
    return parser
