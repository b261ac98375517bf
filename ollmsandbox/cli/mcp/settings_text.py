# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds an entry to a settings file, or removes it, as a change of its text: comments, order and
spaces stay as they are. The result is read again, and anything unexpected is an error."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import OllmSandboxError

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<sign>[{}\[\]:,])|(?P<word>[^\s{}\[\]:,"/]+)""",
    re.DOTALL,
)
_INDENT = "  "


class SettingsError(OllmSandboxError):
    """The file cannot be changed without the risk of breaking it."""


_UNREADABLE = SettingsError("The file has a mistake, or a form that this program does not know.")


@dataclass
class _Member:
    """A member of an object, with the places of its name and of the end of its value."""

    start: int
    end: int
    value: object
    # If the value is an object.
    node: _Object | None


@dataclass
class _Object:
    start: int
    end: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    # After its last comma; 0 if a member follows none.
    comma: int = 0

    @property
    def value(self) -> dict[str, object]:
        return {name: member.value for name, member in self.members.items()}


class _Reader:
    """Reads JSON with comments and trailing commas, and where its objects are."""

    def __init__(self, text: str) -> None:
        self._tokens = [found for found in _tokens(text) if not found["skipped"]]
        self._at = 0

    def read(self) -> _Object:
        found = self._value()[1]
        if found is None or self._at != len(self._tokens):
            raise _UNREADABLE
        return found

    def _next(self) -> re.Match[str]:
        if self._at == len(self._tokens):
            raise _UNREADABLE
        self._at += 1
        return self._tokens[self._at - 1]

    def _value(self) -> tuple[object, _Object | None, int]:
        """Return a value, the object if it is one, and where it ends."""
        token = self._next()
        if token[0] == "{":
            found = self._object(token)
            return found.value, found, found.end
        if token[0] == "[":
            return self._list()
        try:
            return json.loads(token[0]), None, token.end()
        except ValueError:
            raise _UNREADABLE from None

    def _object(self, opening: re.Match[str]) -> _Object:
        found = _Object(opening.start())
        token = self._next()
        while token[0] != "}":
            if not token["text"] or self._next()[0] != ":":
                raise _UNREADABLE
            name = json.loads(token[0])
            value, node, end = self._value()
            if name in found.members:
                raise _UNREADABLE
            found.members[name] = _Member(token.start(), end, value, node)
            token, found.comma = self._next(), 0
            if token[0] == ",":
                found.comma = token.end()
                token = self._next()
            elif token[0] != "}":
                raise _UNREADABLE
        found.end = token.end()
        return found

    def _list(self) -> tuple[object, None, int]:
        values: list[object] = []
        while True:
            if self._at < len(self._tokens) and self._tokens[self._at][0] == "]":
                return values, None, self._next().end()
            values.append(self._value()[0])
            if self._tokens[self._at : self._at + 1] and self._tokens[self._at][0] == ",":
                self._at += 1
            elif not self._tokens[self._at : self._at + 1] or self._tokens[self._at][0] != "]":
                raise _UNREADABLE


def _tokens(text: str) -> list[re.Match[str]]:
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _UNREADABLE
        found.append(token)
        at = token.end()
    return found


def add_to_json(text: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return the text with the entry in its section, in place of one with the same name."""
    if not text.strip():
        return json.dumps({section: {name: entry}}, indent=2) + "\n"
    whole = _read(text)
    around = whole.members.get(section)
    if around is None:
        added = _insert(text, whole, section, {name: entry})
    elif around.node is None:
        raise _UNREADABLE
    elif name in around.node.members:
        old = around.node.members[name]
        member = _member(text, old.start, name, entry)
        added = text[: old.start] + member + text[old.end :]
    else:
        added = _insert(text, around.node, name, entry)
    before = whole.value
    wanted = {**before, section: {**_mapping(before.get(section, {})), name: entry}}
    return _checked(added, wanted)


def remove_from_json(text: str, section: str, name: str) -> str:
    """Return the text without the entry, and without its section if nothing else is in it."""
    whole = _read(text)
    around = whole.members.get(section)
    if around is None or around.node is None or name not in around.node.members:
        return text
    others = {key: value for key, value in around.node.value.items() if key != name}
    wanted = {**whole.value, section: others}
    if others:
        return _checked(_cut(text, around.node, name), wanted)
    del wanted[section]
    return _checked(_cut(text, whole, section), wanted)


def _read(text: str) -> _Object:
    try:
        return _Reader(text).read()
    except RecursionError:
        raise _UNREADABLE from None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _checked(text: str, wanted: Mapping[str, object]) -> str:
    if _read(text).value != wanted:
        raise _UNREADABLE
    return text


def _insert(text: str, around: _Object, name: str, value: object) -> str:
    if not around.members:
        line = f"\n{_margin(text, around.start)}"
        member = json.dumps(value, indent=2).replace("\n", f"{line}{_INDENT}")
        inside = f"{line}{_INDENT}{json.dumps(name)}: {member}{line}"
        # There may be a comment in it.
        kept = text[around.start + 1 : around.end - 1].rstrip()
        return f"{text[: around.start + 1]}{kept}{inside}{text[around.end - 1 :]}"
    last = max(around.members.values(), key=lambda member: member.start)
    member = _member(text, last.start, name, value)
    is_alone = not text[text.rfind("\n", 0, last.start) + 1 : last.start].strip()
    space = f"\n{_margin(text, last.start)}" if is_alone else " "
    if around.comma:
        return f"{text[: around.comma]}{space}{member},{text[around.comma :]}"
    return f"{text[: last.end]},{space}{member}{text[last.end :]}"


def _member(text: str, place: int, name: str, value: object) -> str:
    shown = json.dumps(value, indent=2).replace("\n", f"\n{_margin(text, place)}")
    return f"{json.dumps(name)}: {shown}"


def _margin(text: str, place: int) -> str:
    """Return the blanks at the beginning of a line."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _cut(text: str, around: _Object, name: str) -> str:
    """Return the text without a member, its comma, and the blanks before it."""
    member = around.members[name]
    names = list(around.members)
    start, end = len(text[: member.start].rstrip()), member.end
    if name != names[-1] or around.comma:
        end = text.index(",", _skip_comments(text, end)) + 1
    elif len(names) > 1:
        # The comma before the last one goes with it.
        before = around.members[names[-2]].end
        comma = text.index(",", _skip_comments(text, before))
        return text[:comma] + text[comma + 1 : start] + text[end:]
    return text[:start] + text[end:]


def _skip_comments(text: str, place: int) -> int:
    """Return the place of the next sign after comments."""
    while (token := _TOKEN.match(text, place)) and token["skipped"]:
        place = token.end()
    return place


# --- TOML ------------------------------------------------------------------------------------


def add_to_toml(text: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    rest = remove_from_toml(text, section, name)
    lines = [
        f"[{section}.{name}]",
        *(f"{key} = {json.dumps(value)}" for key, value in entry.items()),
    ]
    added = f"{rest.rstrip()}\n\n" if rest.strip() else ""
    added += "\n".join(lines) + "\n"
    before = _toml(text)
    wanted = {**before, section: {**_mapping(before.get(section, {})), name: entry}}
    if _toml(added) != wanted:
        raise _UNREADABLE
    return added


def remove_from_toml(text: str, section: str, name: str) -> str:
    before = _toml(text)
    others = {key: value for key, value in _mapping(before.get(section, {})).items() if key != name}
    if others == before.get(section, {}):
        return text
    ours = re.compile(rf"\s*\[\s*{section}\s*\.\s*\"?{name}\"?\s*(\.[^\]]*)?\]")
    kept, is_ours = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_ours = ours.match(line) is not None
        if not is_ours:
            kept.append(line)
    left = "".join(kept)
    wanted = {key: value for key, value in before.items() if key != section}
    if others:
        wanted[section] = others
    if _toml(left) != wanted:
        raise _UNREADABLE
    return f"{left.rstrip()}\n" if left.strip() else ""


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise _UNREADABLE from None
