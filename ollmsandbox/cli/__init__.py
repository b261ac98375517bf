# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: arguments in, engine calls, text or JSON out.

What a sub-command does not need it does not import: `run` shall start as quickly as it can.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import __version__
from ..errors import OllmSandboxError

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

FAILED = 125

_RUN_HELP = """\
Run a command walled in: it sees this machine read-only and without your secrets, has no network
unless you say --network, and can write to the project and the playground only. What it changes in
the project is recorded and can be undone.
"""
_RUN_NOTES = """\
The exit status is the command's: 128+n if signal n ended it, 124 if it took too long, and 125 if
the sandbox could not be started, in which case the command did not run.

The command can read what is piped into `run`, which is read ahead for it: in a loop that reads,
say `</dev/null`. It gets no input from a terminal.

examples:
  ollmsandbox run -- make test
  ollmsandbox run -c 'grep -r import . | wc -l'
  ollmsandbox run --network -- pip download requests
  ollmsandbox run --working-dir playground -- git init scratch
  ollmsandbox run --apply review -- make format
"""
# Their arguments are in a file of their own, which `run` does not load.
_TALKING = ("agent", "tour", "sessions", "connections", "permissions")
_RUN_ID = "a run's id, or its beginning (default: the last run that changed this project)"


def main(arguments: Sequence[str]) -> int:
    try:
        try:
            return _main(arguments)
        finally:
            # Not left to the end of the program, where nobody hears of an error any more.
            if sys.stdout is not None:
                sys.stdout.flush()
    except OllmSandboxError as error:
        print(f"ollmsandbox: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 128 + 2
    except BrokenPipeError:
        # Who read our output has gone; as a program does that SIGPIPE ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13


def _main(arguments: Sequence[str]) -> int:
    parser = _parser(arguments[0] if arguments else "")
    if not arguments:
        parser.print_help()
        return 0
    given = parser.parse_args(arguments)
    handler: Callable[[argparse.Namespace], int] = given.handler
    return handler(given)


class _Formatter(argparse.HelpFormatter):
    """One is made for every argument; asking for the terminal's width each time loads a library."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size(1).columns
        except OSError:
            width = 80
        super().__init__(prog, width=_number(os.environ.get("COLUMNS"), width) - 2)


class _RawFormatter(_Formatter, argparse.RawDescriptionHelpFormatter):
    """For texts that have their lines already."""


def _parser(command: str) -> argparse.ArgumentParser:
    """With the one command that is given, if it is one: making all of them takes a while."""
    parser = argparse.ArgumentParser(
        prog="ollmsandbox",
        description="Let an agent run commands on a real project without fear.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"OLLM Sandbox {__version__}")
    # With its name given it need not be found out, for which more would be loaded.
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, prog="ollmsandbox"
    )
    builders = {
        "run": _add_run,
        "changes": _add_changes,
        "apply": _add_actions,
        "discard": _add_actions,
        "undo": _add_actions,
        "history": _add_history,
        "roots": _add_roots,
        "settings": _add_settings,
        "doctor": _add_doctor,
        "playground": _add_playground,
        "rootfs": _add_rootfs,
        **dict.fromkeys(_TALKING, _add_talking),
    }
    for add in [builders[command]] if command in builders else dict.fromkeys(builders.values()):
        add(commands)
    return parser


def _add_run(commands: _Commands) -> None:
    run = commands.add_parser(
        "run",
        help="run a command in the sandbox",
        usage="ollmsandbox run [options] -- COMMAND...\n       ollmsandbox run [options] -c TEXT",
        description=_RUN_HELP,
        epilog=_RUN_NOTES,
        formatter_class=_RawFormatter,
        allow_abbrev=False,
    )
    run.add_argument("-c", dest="text", metavar="TEXT", help="shell text to run")
    run.add_argument(
        "--project",
        metavar="DIR",
        help="the folder that can be written (default: the git checkout around the current "
        "folder, else the current folder)",
    )
    run.add_argument(
        "--working-dir",
        metavar="DIR|playground",
        help="where the command starts (default: the current folder if it is in the project, "
        "else the project; a relative one counts from the project)",
    )
    run.add_argument("--network", action="store_true", help="let the command use the network")
    run.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="end the command after this time"
    )
    run.add_argument(
        "--profile", metavar="NAME", help="what the command may see and use (default: standard)"
    )
    run.add_argument(
        "--rootfs",
        action=argparse.BooleanOptionalAction,
        help="run it in the Alpine system, or not (default: what the project uses)",
    )
    run.add_argument(
        "--apply",
        choices=("auto", "review", "never"),
        default="auto",
        help="auto: changes go into the project at once (default); review: they wait until you "
        "apply them, and the next command sees them all the same; never: they are shown, then "
        "dropped",
    )
    run.add_argument("--json", action="store_true", help="print one JSON document at the end")
    run.add_argument("--quiet", action="store_true", help="say nothing besides the command")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    run.set_defaults(handler=_run)


def _add_changes(commands: _Commands) -> None:
    changes = commands.add_parser(
        "changes", help="show what a run changed", formatter_class=_Formatter
    )
    changes.add_argument("run", nargs="?", metavar="RUN", help=_RUN_ID)
    changes.add_argument("--all", action="store_true", help="all runs of which something waits")
    changes.add_argument("--diff", action="store_true", help="show the lines that changed")
    changes.add_argument("--json", action="store_true", help="print one JSON document")
    changes.set_defaults(handler=_changes)


def _add_actions(commands: _Commands) -> None:
    actions = {
        "apply": "put what waits, or was undone, into the project",
        "discard": "drop what waits",
        "undo": "take back what was applied",
    }
    for action, what in actions.items():
        parser_ = commands.add_parser(
            action,
            help=what,
            description=f"{what.capitalize()}.",
            formatter_class=_Formatter,
        )
        parser_.add_argument("run", nargs="?", metavar="RUN", help=_RUN_ID)
        parser_.add_argument(
            "path",
            nargs="*",
            metavar="PATH",
            help="only these files and folders; named, they are changed even if somebody else "
            "changed them meanwhile",
        )
        if action != "undo":
            parser_.add_argument("--all", action="store_true", help="everything that waits")
        parser_.add_argument("--json", action="store_true", help="print one JSON document")
        parser_.set_defaults(handler=_act, action=action, all=False)


def _add_history(commands: _Commands) -> None:
    history = commands.add_parser(
        "history", help="list the runs that changed something", formatter_class=_Formatter
    )
    history.add_argument("--project", metavar="DIR", help="of this project (default: this one)")
    history.add_argument("--all", action="store_true", help="of all projects")
    history.add_argument("--limit", type=int, default=50, metavar="N", help="the last N runs")
    history.add_argument("--json", action="store_true", help="print one JSON document")
    history.set_defaults(handler=_history)


def _add_roots(commands: _Commands) -> None:
    roots = commands.add_parser(
        "roots",
        help="folders outside the project that commands may change, too",
        description="A project may have links to folders outside of it. Commands can change what "
        "is in them only if you agree; what they change there is recorded as in the project.",
    )
    roots.add_argument("action", choices=("list", "add", "remove"))
    roots.add_argument("folder", nargs="?", metavar="DIR")
    roots.add_argument("--project", metavar="DIR", help="of this project (default: this one)")
    roots.set_defaults(handler=_roots)


def _add_settings(commands: _Commands) -> None:
    settings = commands.add_parser(
        "settings", help="how long earlier versions are kept", formatter_class=_Formatter
    )
    settings.add_argument("name", nargs="?", metavar="NAME", help="show this one (default: all)")
    settings.add_argument("value", nargs="?", metavar="VALUE", help="set it")
    settings.set_defaults(handler=_settings)


def _add_doctor(commands: _Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="tell what this machine can do, and what to mend", formatter_class=_Formatter
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON document")
    doctor.set_defaults(handler=_doctor)


def _add_playground(commands: _Commands) -> None:
    playground = commands.add_parser(
        "playground", help="the folder for experiments that every command can write"
    )
    playground.add_argument("action", choices=("path", "size", "clear"))
    playground.set_defaults(handler=_playground)


def _add_rootfs(commands: _Commands) -> None:
    from .rootfs_arguments import add

    add(commands)


def _add_talking(commands: _Commands) -> None:
    from .talking import add

    add(commands)


def _run(given: argparse.Namespace) -> int:
    from .run import run

    return run(given)


def _changes(given: argparse.Namespace) -> int:
    from .review import changes

    return changes(given)


def _act(given: argparse.Namespace) -> int:
    from .review import act

    return act(given)


def _history(given: argparse.Namespace) -> int:
    from .review import history

    return history(given)


def _roots(given: argparse.Namespace) -> int:
    from .roots import roots

    return roots(given)


def _settings(given: argparse.Namespace) -> int:
    from .settings import settings

    return settings(given)


def _doctor(given: argparse.Namespace) -> int:
    from .doctor import doctor

    return doctor(as_json=given.json)


def _playground(given: argparse.Namespace) -> int:
    from .playground import playground

    return playground(given.action)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() and 0 < int(text) < 10000 else otherwise


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
