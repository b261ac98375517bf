# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the arguments of every command, with their types and help formatters."""

from __future__ import annotations

import argparse
import math
import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping

from ..errors import SandboxError
from ..paths import Paths
from ..project.opening import check_links, current_folder

# The exit status if we failed, and not the command.
FAILED = 125
THIS_PROJECT = (
    "the project's folder (default: the git checkout you are in, else the current folder)"
)


class HelpFormatter(argparse.HelpFormatter):
    """Finds the terminal's width without importing shutil, which argparse would do each time."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size(1).columns
        except OSError:
            width = 80
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and 0 < int(columns[:5]) < 10000:
            width = int(columns)
        super().__init__(prog, width=width - 2)


class RawHelpFormatter(HelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the description and the epilog."""


def parse_count(text: str) -> int:
    # Cut off first: Python reads no number of many thousand digits.
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:20]) < 1_000_000_000:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def parse_time(unit: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not 0 < (given := _number(text)) < math.inf:
            raise ArgumentTypeError(f"{text!r} is not a number of {unit}")
        return given

    return parse


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 1 << 16):
        raise ArgumentTypeError(f"{text!r} is not a port, a number from 1 to 65535")
    return int(text)


def parse_between(smallest: float, largest: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not smallest <= (given := _number(text)) <= largest:
            raise ArgumentTypeError(
                f"{text!r} is not a number from {smallest:,.0f} to {largest:,.0f}"
            )
        return given

    return parse


def parse_header(text: str) -> str:
    if not text.partition(":")[0].strip() or ":" not in text:
        raise ArgumentTypeError(f"{text!r} is not NAME:VALUE")
    return valid_unicode(text)


def valid_unicode(text: str) -> str:
    """Return valid Unicode: an argument may hold any bytes, a database and a model take text."""
    return os.fsencode(text).decode("utf-8", "replace")


def default_project(environ: Mapping[str, str]) -> str:
    """Return the git checkout around the current folder, else the current folder.

    Found by looking, not by asking git: git would run programs named in the project's config.
    """
    try:
        current = current_folder(environ)
    except FileNotFoundError as error:
        raise SandboxError(
            "The current folder no longer exists.", "Change to another folder."
        ) from error
    check_links(current, Paths.from_environ(environ))
    current = os.getcwd()
    home = os.path.realpath(environ.get("HOME") or "/")
    folder = current
    while folder not in ("/", home):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = os.path.dirname(folder)
    return current


def find_given_project(named: str | None, paths: Paths) -> str:
    """Return the folder of the project that the user named, else of the default one; raise if it
    cannot be used."""
    from ..sandbox.plan.folders import find_project  # `run` starts a process before it loads this

    named = named if named is not None else default_project(os.environ)
    check_links(named, paths)
    return find_project(named, paths)


# --- the arguments of each command ---------------------------------------------------------------


def _add_flag(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    parser.add_argument(name, action="store_true", help=help)


_RUN_DESCRIPTION = """\
Run a command in the sandbox: it sees this computer read-only and without your secrets, has no
network access unless you name hosts with --host, and can write only to the project, the playground
and caches of its own.
Its changes to the project are recorded, and you can undo them.
"""
_RUN_NOTES = """\
The exit status is the command's: 126 if it cannot be executed, 127 if it is not found, 128+n if
signal n killed it, and 124 if it took too long. 125 means that the sandbox failed, or refused what
you asked for: a message says why, and usually nothing ran. 2 means that an option is unknown or its
value cannot be read.

If standard input and output are a terminal, the command gets a terminal of its own. Otherwise it
can read what you pipe into `run`. `run` reads ahead: inside a `while read` loop, add
`</dev/null`. Its output is passed on unchanged, except to a terminal.

examples:
  ollmsandbox run -- make test
  ollmsandbox run -c 'grep -r import . | wc -l'
  ollmsandbox run --host example.org -- curl https://example.org
  ollmsandbox run --working-dir playground -- git init scratch
  ollmsandbox run --apply review -- make format
"""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "ollmsandbox run [options] -- COMMAND...\n       ollmsandbox run [options] -c TEXT"
    )
    parser.description, parser.epilog = _RUN_DESCRIPTION, _RUN_NOTES
    parser.add_argument("-c", dest="text", metavar="TEXT", help="shell text to run")
    _add_sandbox_options(
        parser,
        "stop the command after this time (default: none if it has a terminal, else the profile's, "
        "usually 10 minutes); while it is suspended, the clock stops",
    )
    parser.add_argument(
        "--tty",
        action=argparse.BooleanOptionalAction,
        help="give the command a terminal of its own, or not (default: if standard input and "
        "output are a terminal)",
    )
    _add_flag(parser, "--json", "print one JSON document at the end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(title="")


_SHELL_DESCRIPTION = """\
Open your shell in the sandbox, as set in SHELL, else bash or sh. It sees this computer read-only
and without your secrets, has no network access unless you name hosts with --host, and can write
only to the project, the playground and caches of its own. When it ends, its changes to the project
are listed.
"""


def add_shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _SHELL_DESCRIPTION
    _add_sandbox_options(parser, "end the shell after this time (default: no limit)")
    parser.set_defaults(timeout=float("inf"), text=None, tty=None, json=False)


# The agents that have a profile and a command of their own.
AGENTS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "opencode",
    "qwen": "Qwen Code",
    "kimi": "Kimi Code",
}

_AGENT_DESCRIPTION = """\
Run {title} in the sandbox: it can write only to the project, the playground and caches of its own,
and reach only the hosts of its model, which you are asked about before it starts. Of its changes to
its own settings, only a new login is kept.
When it ends, its changes to the project are recorded, and you can undo them.
"""

_AGENT_NOTES = """\
examples:
  ollmsandbox {name}
  ollmsandbox {name} --apply review -- ARGUMENTS...
  ollmsandbox {name} --tools                the project is read-only, and only our tools write
  ollmsandbox {name} --connection NAME      with the model of one of your connections
"""


def add_agent_program_arguments(parser: argparse.ArgumentParser) -> None:
    name = parser.prog.split()[-1]
    parser.usage = f"ollmsandbox {name} [options] [-- ARGUMENTS...]"
    parser.description = _AGENT_DESCRIPTION.format(title=AGENTS[name])
    parser.epilog = _AGENT_NOTES.format(name=name)
    _add_sandbox_options(parser, "end it after this time (default: no limit)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    parser.set_defaults(
        program=name, profile=name, title="", text=None, tty=None, json=False, rootfs=False
    )


def _add_sandbox_options(parser: argparse.ArgumentParser, timeout: str) -> None:
    parser.formatter_class = RawHelpFormatter
    parser.allow_abbrev = False
    parser.add_argument(
        "--project",
        metavar="DIR",
        help="the folder that the command may change (default: the git checkout around the "
        "current folder, else the current folder)",
    )
    parser.add_argument(
        "--working-dir",
        metavar="DIR|playground",
        help="where the command starts; relative to the project (default: the current folder if "
        "it is in the project, else the project)",
    )
    _add_network_options(parser)
    parser.add_argument("--timeout", type=parse_time("seconds"), metavar="SECONDS", help=timeout)
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="the rules for what the command may see and use (default: standard)",
    )
    parser.add_argument(
        "--rootfs",
        action=argparse.BooleanOptionalAction,
        help="run the command in Alpine, or not (default: as set for the project)",
    )
    _add_flag(
        parser,
        "--raw",
        "let the command control your whole terminal: it can change its title, read and "
        "write the clipboard, and make it answer as if you had typed",
    )
    parser.add_argument(
        "--apply",
        choices=("auto", "review", "never"),
        default="auto",
        help="auto: apply changes right away (default); review: keep them pending until you apply "
        "them, but let the next command see them; never: show them, then drop them",
    )
    _add_flag(parser, "--quiet", "print only the command's output")
    _add_flag(
        parser,
        "--tools",
        "for an agent: the project is read-only, and only our tools, which it gets as an MCP "
        "server, change it",
    )
    parser.add_argument(
        "--connection",
        metavar="NAME",
        help="for an agent: use the model of this connection; the agent does not see its key",
    )


def _add_network_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        dest="hosts",
        metavar="NAME[:PORT]",
        help="let the command reach this host (example.org, *.example.org, example.org:8443; "
        "localhost:5432 is a service of this computer; @NAME is a list of yours, see "
        "`ollmsandbox hosts`); may be given several times",
    )
    parser.add_argument(
        "--network",
        action="store_const",
        const="ask",
        help="ask about each host that the command tries to reach; --network=all opens the whole "
        "network to it, with all services of this computer and of your local network",
    )
    # For argparse, an option has a value always or never. So this is one of its own.
    parser.add_argument(
        "--network=all", action="store_const", const="all", dest="network", help=argparse.SUPPRESS
    )
    _add_flag(
        parser,
        "--ssh-agent",
        "let the command log in with your ssh-agent at hosts that it may reach; your key "
        "files stay hidden",
    )
    parser.add_argument(
        "--publish",
        action="append",
        default=[],
        type=parse_port,
        metavar="PORT",
        help="let programs of this computer reach this port of the command, at localhost and while "
        "it runs; may be given several times",
    )


_RUN_HELP = "a run's id, or its beginning (default: the last run that changed this project)"
_PATH_HELP = "only these files and folders"
_FORCED_HELP = f"{_PATH_HELP}, even if they have been changed since"


def add_changes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help=_RUN_HELP)
    _add_flag(parser, "--all", "all runs with pending changes")
    _add_flag(parser, "--diff", "show the lines that changed")
    _add_json(parser)


def add_apply_arguments(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser, _FORCED_HELP)
    _add_flag(parser, "--all", "all pending changes")
    _add_flag(
        parser,
        "--both",
        "where you and the command changed the same lines of PATH, keep both versions",
    )
    _add_json(parser)
    parser.set_defaults(action="apply")


def add_discard_arguments(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser, _PATH_HELP)
    _add_flag(parser, "--all", "all pending changes")
    _add_json(parser)
    parser.set_defaults(action="discard")


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser, _FORCED_HELP)
    _add_flag(parser, "--later", "first undo what later runs did to the same files")
    parser.add_argument(
        "--since",
        metavar="RUN",
        help="this run and all later ones in its project: undo what is applied, and discard what "
        "is pending",
    )
    _add_json(parser)
    parser.set_defaults(action="undo", all=False)


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", metavar="DIR", help=THIS_PROJECT)
    _add_flag(parser, "--all", "all projects")
    parser.add_argument(
        "--limit", type=parse_count, default=50, metavar="N", help="the last N runs"
    )
    _add_json(parser)


def _add_selection(parser: argparse.ArgumentParser, path_help: str) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help=_RUN_HELP)
    parser.add_argument("path", nargs="*", metavar="PATH", help=path_help)


def _action_adder(
    parser: argparse.ArgumentParser, *, required: bool = True
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Return a function that adds an action, by its name and what it does."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=required)

    def add(name: str, what: str) -> argparse.ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        action = actions.add_parser(name, help=what, description=description)
        action.set_defaults(action=name)
        return action

    return add


def _add_json(parser: argparse.ArgumentParser) -> None:
    _add_flag(parser, "--json", "print one JSON document")


_MOVE_HELP = """\
Tell OLLM Sandbox that you have moved or renamed a project's folder. Its history, pending changes,
sessions and saved answers move along. Move the folder itself first, and close the project's
sessions.
"""


def add_project_arguments(parser: argparse.ArgumentParser) -> None:
    move = _action_adder(parser)("move", "record the new place of a folder that you moved")
    move.description = _MOVE_HELP
    move.add_argument("old", metavar="OLD", help="where the project's folder was")
    move.add_argument("new", metavar="NEW", help="where it is now")


def add_roots_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A project may have links to folders outside it. Commands can change what is in them only "
        "after you have added them here. Their changes are recorded as in the project itself."
    )
    parser.add_argument(
        "action",
        choices=("list", "add", "remove"),
        help="list the folders that commands may change, and those that links lead to; add one; "
        "or remove one",
    )
    parser.add_argument("folder", nargs="?", metavar="DIR", help="the folder to add or remove")
    parser.add_argument("--project", metavar="DIR", help=THIS_PROJECT)


def add_hosts_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A list of hosts saves typing: `--host @NAME` names all hosts of a list, and a model can "
        "use it, too. You are still asked about a model's commands."
    )
    add = _action_adder(parser)
    _add_json(add("list", "show your lists"))
    save = add(
        "save", "make a list, or replace one, with the hosts that a run was allowed to reach"
    )
    for action in (save, add("remove", "remove a list")):
        action.add_argument("name", metavar="NAME", help="the name of the list")
    save.add_argument("run", metavar="RUN", help="a run's id in `ollmsandbox history`")


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the settings, or change one. The window's preferences have more."
    parser.add_argument("name", nargs="?", metavar="NAME", help="the setting (default: all)")
    parser.add_argument("value", nargs="?", metavar="VALUE", help="its new value")


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    instead = parser.add_mutually_exclusive_group()
    _add_flag(
        instead, "--attack", "attack the sandbox from inside, harmlessly, and show that it holds"
    )
    _add_flag(instead, "--repair", "list earlier runs again that are missing from the records")
    _add_json(parser)


def add_playground_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Every command finds this folder as ~/playground and may write to it. Changes in it are "
        "not recorded."
    )
    parser.add_argument(
        "action",
        choices=("path", "size", "clear"),
        help="print its path, print its size, or delete everything in it",
    )


def add_caches_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Commands can write to ~/.cache, ~/.npm, ~/.cargo and the like. What they write is kept "
        "for each project, apart from your own caches, which commands only read."
    )
    parser.add_argument(
        "action",
        choices=("size", "clear"),
        help="print the size of what commands have written, or delete it",
    )
    parser.add_argument(
        "--project", metavar="DIR", help="only those of this project (default: all)"
    )


_ROOTFS_HELP = """\
Commands can run in a small Alpine system instead of using this computer's programs: the same on
every computer, with the project at /workspace. Their changes are recorded and can be undone as
usual.
"""


def add_rootfs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = _ROOTFS_HELP
    add = _action_adder(parser)
    status = add("status", "show what is installed, and what this project uses")
    _add_json(status)
    install = add("install", "install Alpine, or update it")
    install.add_argument(
        "--tier",
        type=int,
        choices=(0, 1, 2, 3),
        help="0: only the base system; 1: with bash and Python; 2: also with git, Node and others; "
        "3: also with compilers (default: the setting rootfs-tier)",
    )
    install.add_argument(
        "--from", dest="tarball", metavar="FILE", help="a local tarball, instead of the mirror's"
    )
    _add_flag(install, "--quiet", "print only errors")
    add("remove", "remove Alpine")
    use = add("use", "choose where this project's commands run")
    use.add_argument("system", choices=("alpine", "host"))
    for action in (status, use):
        action.add_argument("--project", metavar="DIR", help=THIS_PROJECT)


_AGENT_HELP = """\
Talk to a model that works on the project with tools. Its commands run in the sandbox, and you are
asked before anything goes beyond that. With TEXT, it is one turn; without, you get a prompt.
"""
_AGENT_NOTES = """\
Ctrl+C stops the current turn, not the program. At the prompt, !COMMAND runs a command of yours in
the sandbox, and /help lists what else you can type.

examples:
  ollmsandbox agent "make the tests pass"
  ollmsandbox agent --apply review "update the dependencies"
  ollmsandbox agent --continue
"""


def add_agent_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _AGENT_HELP, _AGENT_NOTES
    parser.formatter_class = RawHelpFormatter
    parser.allow_abbrev = False
    parser.add_argument(
        "text", nargs="?", type=valid_unicode, metavar="TEXT", help="what the model should do"
    )
    parser.add_argument(
        "--model", type=valid_unicode, metavar="M", default="", help="the model to use"
    )
    parser.add_argument(
        "--connection", metavar="NAME", default="", help="the connection to use (or: tour)"
    )
    parser.add_argument("--project", metavar="DIR", help=THIS_PROJECT)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", type=valid_unicode, metavar="ID", help="continue this session")
    which.add_argument(
        "--continue", action="store_true", dest="go_on", help="continue the last session here"
    )
    _add_tool_options(parser, "--apply", "--mode")
    _add_turn_limits(parser)
    _add_flag(
        parser, "--allow-private", "also allow web pages from this computer and the local network"
    )
    _add_flag(parser, "--yes-to-nothing", "ask nothing, and deny whatever needs your permission")
    _add_flag(
        parser,
        "--json",
        "print one JSON document per event; with TEXT, read answers and further messages as "
        "JSON from standard input",
    )


def _add_tool_options(parser: argparse.ArgumentParser, *apply: str) -> None:
    """Add the options for a model's commands; `apply` are the names of the first one."""
    parser.add_argument(
        *apply,
        choices=("auto", "review", "never"),
        default="auto",
        help="apply changes right away (auto), keep them pending until you apply them (review), or "
        "drop them (never)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="the rules for what commands may see and use (default: standard)",
    )
    _add_flag(parser, "--ask-every-command", "ask before every command")


def _add_turn_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-turns",
        type=parse_count,
        default=50,
        metavar="N",
        help="stop after this many answers of the model (default: 50)",
    )
    parser.add_argument(
        "--max-minutes", type=parse_time("minutes"), metavar="N", help="stop after this time"
    )
    parser.add_argument(
        "--max-tokens", type=parse_count, metavar="N", help="stop after this many tokens"
    )


_MCP_HELP = """\
Serve the tools of the sandbox to another agent, over the Model Context Protocol on standard input
and output. The agent starts this itself. Each command that it runs is recorded: you can review and
undo what it changed. Questions appear in the window if it is open, else in the agent.
"""
_MCP_NOTES = """\
examples:
  ollmsandbox mcp install claude --project
  ollmsandbox mcp install codex
  ollmsandbox mcp uninstall codex
"""


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _MCP_HELP, _MCP_NOTES
    parser.formatter_class = RawHelpFormatter
    parser.allow_abbrev = False
    parser.add_argument("--project", metavar="DIR", help=THIS_PROJECT)
    _add_tool_options(parser, "--apply")
    _add_flag(
        parser, "--ask-only-in-window", "never ask through the agent, which could answer for you"
    )
    parser.set_defaults(action=None)
    add = _action_adder(parser, required=False)
    for action in (
        add("install", "add the tools of the sandbox to an agent's settings"),
        add("uninstall", "remove them from an agent's settings"),
    ):
        action.formatter_class = HelpFormatter
        action.add_argument("client", metavar="CLIENT", help="the agent, such as claude or codex")
        where = action.add_mutually_exclusive_group()
        where.add_argument(
            "--project",
            action="store_const",
            const="project",
            dest="scope",
            help="in this project's settings",
        )
        where.add_argument(
            "--user",
            action="store_const",
            const="user",
            dest="scope",
            help="in your own settings, for all projects (default)",
        )
        _add_flag(action, "--yes", "do not ask before writing")
        action.set_defaults(scope="user")


def add_tour_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Create a small sample project and play a scripted session on it. It needs no model and "
        "does not touch your files."
    )
    parser.add_argument(
        "--project",
        metavar="DIR",
        help="where to create the sample project (default: ~/OLLM Sandbox Tour)",
    )
    _add_flag(parser, "--yes-to-nothing", "ask nothing, deny everything")
    _add_flag(parser, "--json", "print one JSON document per event")


def add_sessions_arguments(parser: argparse.ArgumentParser) -> None:
    add = _action_adder(parser)
    for name, what in (
        ("list", "list the sessions"),
        ("search", "find sessions by their words and commands"),
    ):
        action = add(name, what)
        if name == "search":
            action.add_argument("words", nargs="+", type=valid_unicode, metavar="WORD")
        action.add_argument("--project", metavar="DIR", help="only sessions of this project")
        action.add_argument(
            "--limit", type=parse_count, default=50, metavar="N", help="at most N of them"
        )
        _add_json(action)
    for name, what in (("show", "show a session"), ("export", "write a session as a document")):
        action = add(name, what)
        action.add_argument(
            "session", type=valid_unicode, metavar="ID", help="its id, or the beginning of it"
        )
        _add_flag(action, "--json", "as JSON (default: Markdown)")
        if name == "export":
            action.add_argument("--output", metavar="FILE", help="write to this new file")
    rename = add("rename", "rename a session")
    rename.add_argument("session", type=valid_unicode, metavar="ID")
    rename.add_argument("title", type=valid_unicode, metavar="TITLE")
    delete = add("delete", "delete sessions; the changes they made stay")
    delete.add_argument("session", nargs="+", type=valid_unicode, metavar="ID")


def add_connections_arguments(parser: argparse.ArgumentParser) -> None:
    add_action = _action_adder(parser)

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = add_action(name, what)
        _add_json(action)
        return action

    add("list", "list the connections to model servers")
    _add_connection_settings(add("add", "add or change a connection"))
    add("remove", "remove a connection and its key").add_argument("name", metavar="NAME")
    test = add("test", "check a connection, and list the server's models")
    test.add_argument(
        "name", nargs="?", metavar="NAME", help="the connection (default: the default one)"
    )
    default = add("default", "choose the default connection")
    default.add_argument("name", metavar="NAME")
    default.add_argument(
        "model", nargs="?", type=valid_unicode, metavar="MODEL", help="its default model"
    )
    add("find", "look for servers on this computer")


def _add_connection_settings(new: argparse.ArgumentParser) -> None:
    new.add_argument("name", metavar="NAME")
    new.add_argument("address", metavar="ADDRESS", help="such as http://localhost:11434")
    new.add_argument(
        "--kind",
        choices=("ollama", "openai"),
        help="the server's API (default: found by asking the server)",
    )
    new.add_argument("--model", type=valid_unicode, metavar="MODEL", help="the model to use first")
    for option, least, most, what in (
        (
            "--context TOKENS",
            1024,
            1 << 24,
            "the size of the model's context (default: what the server says)",
        ),
        ("--answer TOKENS", 1, 1 << 24, "the longest answer of the model"),
        ("--temperature NUMBER", 0, 5, "how random answers are: 0 for not at all"),
        ("--connect-timeout SECONDS", 1, 3600, "how long to wait for a connection (default: 10)"),
        ("--idle-timeout SECONDS", 1, 86400, "how long the server may send nothing (default: 300)"),
    ):
        name, metavar = option.split()
        new.add_argument(name, type=parse_between(least, most), metavar=metavar, help=what)
    new.add_argument(
        "--effort",
        choices=("none", "minimal", "low", "medium", "high", "max", "default"),
        help="how much the model should think, if the server lets you choose",
    )
    new.add_argument(
        "--header",
        action="append",
        type=parse_header,
        metavar="NAME:VALUE",
        help="a header to send with each request, in place of earlier ones; may be repeated",
    )
    new.add_argument(
        "--seeing",
        action="append",
        type=valid_unicode,
        metavar="MODEL",
        help="a model that sees pictures, if the server does not say so; may be repeated",
    )
    new.add_argument(
        "--price",
        nargs=2,
        type=parse_between(0, 1 << 20),
        metavar=("INPUT", "OUTPUT"),
        help="the price of a million tokens, to show what answers cost",
    )
    _add_flag(new, "--reset", "first forget all settings that the connection has")
    _add_flag(
        new,
        "--key-from-stdin",
        "read the API key from standard input, and store it in the keyring or in a file that "
        "only you can read",
    )


def add_permissions_arguments(parser: argparse.ArgumentParser) -> None:
    add = _action_adder(parser)
    _add_json(add("list", "list your saved answers"))
    forget = add("forget", "remove saved answers, so that you are asked again")
    forget.add_argument(
        "number", nargs="*", type=int, metavar="NUMBER", help="the number in `permissions list`"
    )
    forget.add_argument("--project", metavar="DIR", help="all saved answers for this project")
    _add_flag(forget, "--all", "all saved answers")
