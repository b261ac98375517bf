# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules as YAML that a person can read and edit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..errors import OllmSandboxError
from .request import Answer
from .rules import Rule, Target

RULES = "rules"
HEADER = """\
# What you answered with "always". You may edit this file.
#   answer   allow or deny
#   tool     run_command, edit_file, web_fetch, ...
#   project  the full path of the project folder
#   command  for run_command: this command, no more words and no fewer
#   folder   where the command starts, if that is not the project folder
#   target   for other tools: the file or the host
"""


class RuleFileError(OllmSandboxError):
    """Line and key, and what is wrong there."""


@dataclass(frozen=True)
class Entry:
    rule: Rule
    # Lines of the file, counted from 0.
    first: int
    last: int


def parse(text: str) -> tuple[Entry, ...]:
    """Raises RuleFileError."""
    # Here, because YAML takes long to load, and mostly there is no such file.
    from .rule_reader import read

    return read(text)


def edited(text: str, gone: Collection[Rule], new: Sequence[Rule]) -> str | None:
    """The same file with some rules taken out and others put at its end, and all else, such as
    comments, as it was. None if it is not laid out so that this can be done. Raises
    UnicodeEncodeError for a name that is no text."""
    entries = parse(text)
    left = [entry for entry in entries if entry.rule not in gone]
    dropped = {
        line
        for entry in entries
        if entry.rule in gone
        for line in range(entry.first, entry.last + 1)
    }
    lines = text.splitlines()
    end = entries[-1].last + 1 if entries else _line_after_rules(lines)
    if end is None:
        return None
    indent = _indent(lines[entries[0].first]) if entries else 2
    kept_before = [line for number, line in enumerate(lines[:end]) if number not in dropped]
    written = [" " * indent + line if line else line for rule in new for line in _lines(rule)]
    result = "\n".join([*kept_before, *written, *lines[end:]]) + "\n"
    try:
        found = [entry.rule for entry in parse(result)]
    except RuleFileError:
        return None
    return result if found == [*(entry.rule for entry in left), *new] else None


def written(found: Sequence[Rule]) -> str:
    """A whole new file."""
    body = "".join(f"  {line}\n" for rule in found for line in _lines(rule))
    return f"{HEADER}{RULES}:\n{body}"


def _lines(rule: Rule) -> Iterator[str]:
    what = rule.key.what
    fields = {"tool": rule.key.tool, "project": _quoted(rule.key.project)}
    if isinstance(what, Target):
        fields["target"] = _quoted(what.name)
    else:
        fields["command"] = _quoted(what.text)
        if what.folder != rule.key.project:
            fields["folder"] = _quoted(what.folder)
    yield f"- answer: {'allow' if rule.answer is Answer.ALLOW_ALWAYS else 'deny'}"
    for key, value in fields.items():
        yield f"  {key}: {value}"


def _quoted(text: str) -> str:
    """As YAML has it between double quotes; what cannot be seen is spelled out."""
    text.encode("utf-8")  # raises UnicodeEncodeError: YAML has no word for half a character
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _line_after_rules(lines: Sequence[str]) -> int | None:
    """Where a list can begin that has nothing in it yet."""
    for number, line in enumerate(lines):
        if line.split("#")[0].rstrip() == f"{RULES}:":
            return number + 1
    return None
