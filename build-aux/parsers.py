# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line as data: what the manual and the completions of shells are made from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """What a value is, as far as a shell can offer some."""

    NOTHING = "nothing"
    TEXT = "text"
    FOLDER = "folder"
    FILE = "file"
    COMMAND = "command"


@dataclass(frozen=True)
class Argument:
    flags: tuple[str, ...]  # none for one that is known by its place
    value: str  # as the help names it
    kind: Kind
    choices: tuple[str, ...]
    help: str
    is_optional: bool
    is_many: bool


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    description: str
    options: tuple[Argument, ...]
    operands: tuple[Argument, ...]
    commands: tuple[Command, ...]

    def below(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
        """Itself and all sub-commands, with the words that lead to them."""
        yield path, self
        for command in self.commands:
            yield from command.below((*path, command.name))


def program() -> Command:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from ollmsandbox.cli.main import make_parser

    return _command("ollmsandbox", "", make_parser(whole=True))


def _command(name: str, what: str, parser: argparse.ArgumentParser) -> Command:
    arguments = []
    commands: list[Command] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands += [_command(n, helps.get(n, ""), p) for n, p in action.choices.items()]
        elif action.help != argparse.SUPPRESS:
            arguments.append(_argument(action))
    return Command(
        name=name,
        help=what,
        description=" ".join((parser.description or f"{what[:1].upper()}{what[1:]}.").split()),
        options=tuple(argument for argument in arguments if argument.flags),
        operands=tuple(argument for argument in arguments if not argument.flags),
        commands=tuple(commands),
    )


def _argument(action: argparse.Action) -> Argument:
    value = str(action.metavar or action.dest.upper())
    choices = tuple(str(choice) for choice in action.choices or ())
    if action.nargs == argparse.REMAINDER:
        kind = Kind.COMMAND
    elif action.nargs == 0:
        kind = Kind.NOTHING
    elif value.startswith("DIR") or value in ("OLD", "NEW"):
        kind = Kind.FOLDER
    elif value in ("FILE", "PATH"):
        kind = Kind.FILE
    else:
        kind = Kind.TEXT
    return Argument(
        flags=tuple(action.option_strings),
        value="|".join(choices) or value,
        kind=kind,
        choices=choices,
        help=(action.help or "").replace("%%", "%"),
        is_optional=action.nargs in ("?", "*"),
        is_many=action.nargs in ("*", "+", argparse.REMAINDER),
    )
