# SPDX-License-Identifier: GPL-3.0-or-later
"""Completions for shells, made from the parsers: `completions.py bash|zsh|fish` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from parsers import Argument, Command, Kind, program

_HEADER = "# SPDX-License-Identifier: GPL-3.0-or-later\n# Made by build-aux/completions.py.\n"
_WHOLE_VALUE = "playground"
# Of zsh; no command has such a name.
_PLACE = "_ollmsandbox__place"

Path = tuple[str, ...]


# --- bash ---------------------------------------------------------------------------------------


def bash(top: Command) -> Iterator[str]:
    yield _HEADER
    yield "_ollmsandbox() {"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= i"
    yield "    COMPREPLY=()"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield "        # What follows is a command line of its own."
    yield '        if [[ ${COMP_WORDS[i]} == -- && $path == " run" ]]; then'
    yield "            if declare -F _command_offset >/dev/null; then"
    yield "                _command_offset $((i + 1))"
    yield "            else"
    yield '                mapfile -t COMPREPLY < <(compgen -c -- "$word")'
    yield "            fi"
    yield "            return"
    yield "        fi"
    yield '        case "$path ${COMP_WORDS[i]}" in'
    paths = [" " + " ".join(path) for path, _ in top.below() if path]
    yield f'            {" | ".join(map(_quoted, paths))}) path+=" ${{COMP_WORDS[i]}}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$path $before" in'
    for path, command in top.below():
        for option in command.options:
            if option.kind is not Kind.NOTHING:
                places = " | ".join(_quoted(" ".join(("", *path, f))) for f in option.flags)
                yield f"        {places}) {_bash_values(option)}; return ;;"
    yield "    esac"
    yield "    case $path in"
    for path, command in top.below():
        flags = [flag for option in command.options for flag in option.flags]
        words = [sub.name for sub in command.commands]
        words += [choice for operand in command.operands for choice in operand.choices]
        yield f"        {_quoted(''.join(f' {word}' for word in path))})"
        yield "            if [[ $word == -* ]]; then"
        yield f'                mapfile -t COMPREPLY < <(compgen -W "{" ".join(flags)}" -- "$word")'
        yield "            else"
        yield f"                {_bash_operands(command, words)}"
        yield "            fi"
        yield "            ;;"
    yield "    esac"
    yield "}"
    yield "complete -F _ollmsandbox ollmsandbox"


def _bash_values(option: Argument) -> str:
    if option.choices:
        return f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.choices)}" -- "$word")'
    if option.kind is Kind.FOLDER:
        extra = f' -W "{_WHOLE_VALUE}"' if _WHOLE_VALUE in option.value else ""
        return f'compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d{extra} -- "$word")'
    if option.kind is Kind.FILE:
        return 'compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word")'
    return ":"


def _bash_operands(command: Command, words: list[str]) -> str:
    kinds = {operand.kind for operand in command.operands if not operand.choices}
    how = f' -W "{" ".join(words)}"' if words else ""
    if Kind.FILE in kinds:
        how += " -f"
    # A folder that is named alone is the window's project.
    elif Kind.FOLDER in kinds or command.name == "ollmsandbox":
        how += " -d"
    if not how:
        return ":"
    return f'compopt -o filenames; mapfile -t COMPREPLY < <(compgen{how} -- "$word")'


def _quoted(text: str) -> str:
    return f'"{text}"'


# --- zsh ----------------------------------------------------------------------------------------


def zsh(top: Command) -> Iterator[str]:
    yield "#compdef ollmsandbox"
    yield _HEADER
    yield f"{_PLACE}() {{"
    yield f"    _alternative 'places:place:({_WHOLE_VALUE})' 'directories:folder:_directories'"
    yield "}"
    yield ""
    for path, command in top.below():
        yield f"{_function(path)}() {{"
        yield "    local curcontext=$curcontext state line"
        # -S: after -- there are no more options, and it is not a word itself.
        yield "    _arguments -C -s -S \\"
        for option in command.options:
            yield f"        {_zsh_option(option)} \\"
        for operand in command.operands:
            yield f"        {_zsh_operand(operand)} \\"
        if command.commands:
            yield "        '1: :->command' '*:: :->arguments' && return"
            yield from _zsh_commands(path, command)
        else:
            yield "        && return"
        yield "}"
        yield ""
    yield '_ollmsandbox "$@"'


def _zsh_commands(path: Path, command: Command) -> Iterator[str]:
    yield "    case $state in"
    yield "        command)"
    yield "            local -a commands=("
    for sub in command.commands:
        yield f"                {_zsh(f'{sub.name}:{sub.help}')}"
    yield "            )"
    yield "            _describe -t commands command commands"
    if not path:
        yield "            _directories"
    yield "            ;;"
    yield "        arguments)"
    yield "            case $line[1] in"
    for sub in command.commands:
        yield f"                {sub.name}) {_function((*path, sub.name))} ;;"
    yield "            esac"
    yield "            ;;"
    yield "    esac"


def _zsh_option(option: Argument) -> str:
    text = f"[{_bracketed(option.help)}]"
    if option.kind is not Kind.NOTHING:
        text += f":{_bracketed(option.value)}:{_zsh_values(option)}"
    if len(option.flags) == 1:
        return _zsh(option.flags[0] + text)
    both = " ".join(option.flags)
    return f"{_zsh(f'({both})')}{{{','.join(option.flags)}}}{_zsh(text)}"


def _zsh_operand(operand: Argument) -> str:
    if operand.kind is Kind.COMMAND:
        return "'*::: :_normal'"
    place = "*" if operand.is_many else ":" if operand.is_optional else ""
    return _zsh(f"{place}:{_bracketed(operand.value)}:{_zsh_values(operand)}")


def _zsh_values(argument: Argument) -> str:
    if argument.choices:
        return f"({' '.join(argument.choices)})"
    folders = _PLACE if _WHOLE_VALUE in argument.value else "_directories"
    files = {Kind.FOLDER: folders, Kind.FILE: "_files"}
    return files.get(argument.kind, " ")


def _function(path: Path) -> str:
    return "_".join(("_ollmsandbox", *path))


def _bracketed(text: str) -> str:
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, f"\\{special}")
    return text


def _zsh(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"


# --- fish ---------------------------------------------------------------------------------------


def fish(top: Command) -> Iterator[str]:
    yield _HEADER
    yield "# Whether the words typed so far, options left out, begin with exactly these."
    yield "function __ollmsandbox_at"
    yield "    set -l words (commandline -opc)[2..]"
    yield "    set -l plain (string match -v -- '-*' $words)"
    yield "    set -l count (count $argv)"
    yield "    test (count $plain) -ge $count; or return 1"
    yield "    test $count -eq 0; and return 0"
    yield '    test "$plain[1..$count]" = "$argv"'
    yield "end"
    yield "function __ollmsandbox_first"
    yield "    __ollmsandbox_at $argv"
    yield "    and test (count (string match -v -- '-*' (commandline -opc)[2..])) -eq (count $argv)"
    yield "end"
    yield "complete -c ollmsandbox -f"
    yield "complete -c ollmsandbox -n __ollmsandbox_first -a '(__fish_complete_directories)'"
    for path, command in top.below():
        at = " ".join(("__ollmsandbox_at", *path)) if path else "__ollmsandbox_first"
        first = " ".join(("__ollmsandbox_first", *path))
        for sub in command.commands:
            yield f"complete -c ollmsandbox -n '{first}' -a {sub.name} -d {_fish(sub.help)}"
        for option in command.options:
            yield f"complete -c ollmsandbox -n '{at}' {_fish_option(option)}"
        for operand in command.operands:
            if operand.kind is Kind.COMMAND:
                # It begins after our own words, the options among them with their values.
                given = [f for o in command.options if o.kind is not Kind.NOTHING for f in o.flags]
                # The - ends what fish would take for options of its own.
                words = " ".join((f"--fcs-skip={1 + len(path)}", "-", *given))
                yield (
                    f"complete -c ollmsandbox -n '{at}' -a '(__fish_complete_subcommand {words})'"
                )
            elif values := _fish_values(operand):
                yield f"complete -c ollmsandbox -n '{at}' {values}"


def _fish_option(option: Argument) -> str:
    parts = [f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags]
    if option.kind is not Kind.NOTHING:
        parts.append(f"-x {_fish_values(option)}".strip())
    return " ".join((*parts, "-d", _fish(option.help)))


def _fish_values(argument: Argument) -> str:
    if argument.choices:
        return f"-a {_fish(' '.join(argument.choices))}"
    place = f"echo {_WHOLE_VALUE}; " if _WHOLE_VALUE in argument.value else ""
    values = {
        Kind.FOLDER: f"-a '({place}__fish_complete_directories)'",
        Kind.FILE: "-a '(__fish_complete_path)'",
    }
    return values.get(argument.kind, "")


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}

if __name__ == "__main__":
    print("\n".join(SHELLS[sys.argv[1]](program())))
