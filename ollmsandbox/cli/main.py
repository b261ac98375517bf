# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: arguments in, engine calls, text or JSON out.

What a sub-command does not need it does not import: `run` shall start as quickly as it can.

The arguments of `ollmsandbox rootfs`.

The arguments of what has to do with talking to a model.

The command line: arguments in, engine calls, text or JSON out.

What a sub-command does not need it does not import: `run` shall start as quickly as it can.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .types import FAILED

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]
import os
import sys
from collections.abc import Callable, Sequence

from .. import __version__
from ..errors import OllmSandboxError, in_words
from .streams import complain, give_up, open_streams
from .types import count, minutes, readable, seconds

_ROOTFS_HELP = """\
Commands can run in a small Alpine system instead of this machine's own: the same on every machine,
with the project at /workspace. What they change is recorded and can be undone as ever.
"""


def _add_rootfs(commands: _Commands) -> None:
    rootfs = commands.add_parser(
        "rootfs", help="the Alpine system that commands can run in", description=_ROOTFS_HELP
    )
    actions = rootfs.add_subparsers(title="actions", metavar="ACTION", required=True)
    status = actions.add_parser("status", help="what is installed, and what this project uses")
    status.add_argument("--json", action="store_true", help="print one JSON document")
    install = actions.add_parser("install", help="install it, or a newer version of it")
    install.add_argument(
        "--tier",
        type=int,
        choices=(0, 1, 2),
        help="0: the base alone, 1: with bash and Python, 2: with git, Node and others besides "
        "(default: the setting rootfs-tier)",
    )
    install.add_argument(
        "--from", dest="tarball", metavar="FILE", help="a tarball on disk, instead of the mirror's"
    )
    install.add_argument("--quiet", action="store_true", help="say nothing while it goes well")
    actions.add_parser("remove", help="remove it")
    use = actions.add_parser("use", help="choose where this project's commands run")
    use.add_argument("system", choices=("alpine", "host"))
    for action in (status, use):
        action.add_argument("--project", metavar="DIR", help="of this project (default: this one)")
    for name, action in actions.choices.items():
        action.set_defaults(handler=_rootfs, action=name)


def _rootfs(given: argparse.Namespace) -> int:
    from .commands.rootfs import rootfs

    return rootfs(given)


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
    from .commands import connections, permissions

    parser = commands.add_parser("connections", help="where models come from")
    connections.add_arguments(parser)
    parser.set_defaults(handler=connections.connections)
    parser = commands.add_parser("permissions", help="what you answered with always")
    permissions.add_arguments(parser)
    parser.set_defaults(handler=permissions.permissions)


def _agent(given: argparse.Namespace) -> int:
    from .agent.command import agent

    return agent(given)


def _tour(given: argparse.Namespace) -> int:
    from .commands.tour import tour

    return tour(given)


def _sessions(given: argparse.Namespace) -> int:
    from .commands.sessions import sessions

    return sessions(given)


_RUN_HELP = """\
Run a command walled in: it sees this machine read-only and without your secrets, has no network
unless you say --network, and can write to the project and the playground only. What it changes in
the project is recorded and can be undone.
"""
_RUN_NOTES = """\
The exit status is the command's: 126 if it cannot be run, 127 if it is not there, 128+n if signal n
ended it, and 124 if it took too long. It is 125 if the sandbox failed and not the command: a
message says why, and mostly nothing ran. It is 2 if an option is wrong.

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
    open_streams()
    try:
        try:
            return _main(arguments)
        finally:
            # Not left to the end of the program, where nobody hears of an error any more.
            sys.stdout.flush()
    except OllmSandboxError as error:
        complain(str(error))
        give_up()
        return FAILED
    except KeyboardInterrupt:
        give_up()
        return 128 + 2
    except BrokenPipeError:
        # Who read our output has gone; as a program does that SIGPIPE ends.
        give_up()
        return 128 + 13
    except OSError as error:
        if lost := give_up():
            complain(f"The output cannot be written: {lost.strerror}.")
        else:
            complain(in_words(error))
        give_up()
        return FAILED


def _main(arguments: Sequence[str]) -> int:
    if not os.environ.get("HOME"):
        # As a login would: commands look for the playground there.
        from ..paths import home_on_record

        os.environ["HOME"] = home_on_record()
    parser = _parser(arguments[0] if arguments else "")
    if not arguments:
        parser.print_help()
        return 0
    if _spoken_to(parser, arguments[:1]) is parser and os.path.isdir(arguments[0]):
        parser.error(f"no command. To open the folder in the window: ollmsandbox ./{arguments[0]}")
    given, left = parser.parse_known_args(arguments)
    if hasattr(given, "path"):
        # After an option argparse takes the paths for ended: after any before Python 3.12.7, later
        # only if some came before it.
        given.path += [word for word in left if not word.startswith("-")]
        left = [word for word in left if word.startswith("-")]
    if left:
        _spoken_to(parser, arguments).error(f"unrecognized arguments: {' '.join(left)}")
    if "handler" not in given:
        parser.error("no command is named")
    handler: Callable[[argparse.Namespace], int] = given.handler
    return handler(given)


def _spoken_to(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.ArgumentParser:
    """The one whose usage helps: of a command in a command, the inner one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for place, word in enumerate(arguments):
                if word in action.choices:
                    return _spoken_to(action.choices[word], arguments[place + 1 :])
    return parser


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
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="ollmsandbox")
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
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="end the command after this time (default: that of the profile, mostly 10 minutes)",
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
        chosen = "only these files and folders"
        if action != "discard":
            chosen += "; named, they are changed even if somebody else changed them meanwhile"
        parser_.add_argument("path", nargs="*", metavar="PATH", help=chosen)
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
    history.add_argument("--limit", type=count, default=50, metavar="N", help="the last N runs")
    history.add_argument("--json", action="store_true", help="print one JSON document")
    history.set_defaults(handler=_history)


def _add_roots(commands: _Commands) -> None:
    roots = commands.add_parser(
        "roots",
        help="folders outside the project that commands may change, too",
        description="A project may have links to folders outside of it. Commands can change what "
        "is in them only if you agree; what they change there is recorded as in the project.",
        formatter_class=_Formatter,
    )
    roots.add_argument(
        "action",
        choices=("list", "add", "remove"),
        help="show the folders that commands may change, and those that links lead to; agree to "
        "one; or no longer",
    )
    roots.add_argument("folder", nargs="?", metavar="DIR", help="to add or to remove")
    roots.add_argument("--project", metavar="DIR", help="of this project (default: this one)")
    roots.set_defaults(handler=_roots)


def _add_settings(commands: _Commands) -> None:
    settings = commands.add_parser(
        "settings",
        help="how long earlier versions are kept, and where Alpine comes from",
        description="Show the settings, or change one. The window has more in its preferences.",
        formatter_class=_Formatter,
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
        "playground",
        help="the folder for experiments that every command can write",
        description="Every command finds this folder as ~/playground and may write to it. What is "
        "in there is not recorded.",
        formatter_class=_Formatter,
    )
    playground.add_argument(
        "action",
        choices=("path", "size", "clear"),
        help="where it is, how much it holds, or delete all that is in it",
    )
    playground.set_defaults(handler=_playground)


def _run(given: argparse.Namespace) -> int:
    from .commands.run import run

    return run(given)


def _changes(given: argparse.Namespace) -> int:
    from .commands.changes import changes

    return changes(given)


def _act(given: argparse.Namespace) -> int:
    from .commands.changes import act

    return act(given)


def _history(given: argparse.Namespace) -> int:
    from .commands.changes import history

    return history(given)


def _roots(given: argparse.Namespace) -> int:
    from .commands.roots import roots

    return roots(given)


def _settings(given: argparse.Namespace) -> int:
    from .commands.settings import settings

    return settings(given)


def _doctor(given: argparse.Namespace) -> int:
    from .commands.doctor import doctor

    return doctor(as_json=given.json)


def _playground(given: argparse.Namespace) -> int:
    from .commands.playground import playground

    return playground(given.action)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() and 0 < int(text[:5]) < 10000 else otherwise
