# SPDX-License-Identifier: GPL-3.0-or-later
"""The man page, its commands taken from the parsers: `manual.py ollmsandbox.1.in` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from parsers import Argument, Command, Kind, program

_COMMANDS = "@COMMANDS@\n"
_VERSION = "@VERSION@"


def main(template: Path) -> str:
    text = template.read_text(encoding="utf-8")
    top = program()
    if text.count(_COMMANDS) != 1:
        sys.exit(f"{template} has to have {_COMMANDS.strip()} once")
    from ollmsandbox import __version__

    commands = "".join(f"{line}\n" for line in _commands(top))
    return text.replace(_COMMANDS, commands).replace(_VERSION, __version__)


def _commands(top: Command) -> Iterator[str]:
    for path, command in top.below():
        if not path:
            continue
        is_sub = len(path) > 1
        if not is_sub:
            yield f".SS {_escaped(' '.join(path))}"
        else:
            yield ".PP"
        # One that only has sub-commands cannot be called by itself.
        if not command.commands:
            yield _usage(path, command)
            yield ".PP"
        yield _escaped(command.description)
        for argument in (*command.operands, *command.options):
            if argument.help and "--help" not in argument.flags:
                yield ".TP"
                yield _heading(argument)
                yield _escaped(_sentence(argument.help))


def _usage(path: tuple[str, ...], command: Command) -> str:
    parts = [f"\\fBollmsandbox {_escaped(' '.join(path))}\\fR"]
    options = [option for option in command.options if "--help" not in option.flags]
    if options:
        parts.append("[\\fIoptions\\fR]")
    for operand in command.operands:
        text = "\\fB\\-\\-\\fR " if operand.kind is Kind.COMMAND else ""
        text += f"\\fI{_escaped(operand.value)}\\fR" + ("..." if operand.is_many else "")
        parts.append(f"[{text}]" if operand.is_optional else text)
    return " ".join(parts)


def _heading(argument: Argument) -> str:
    value = f"\\fI{_escaped(argument.value)}\\fR"
    if not argument.flags:
        return value
    flags = ", ".join(f"\\fB{_escaped(flag)}\\fR" for flag in argument.flags)
    return flags if argument.kind is Kind.NOTHING else f"{flags} {value}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # A line that begins so would be an instruction.
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    print(main(Path(sys.argv[1])), end="")
