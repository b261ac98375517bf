# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds an entry to a settings file, or removes it, as a change of its text: comments, order and
spaces stay as they are. The result is read again, and anything unexpected is an error."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import OllmSandboxError

# A text, which may look like anything, or else a comment; or the comma after a last value, not one
# that follows none.
_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_TEXT}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_TEXT}|[{{\[]\s*,|,(?=\s*[}}\]])", re.DOTALL)
_SPACE = re.compile(r"\s*")
_INDENT = "  "


class SettingsError(OllmSandboxError):
    """The file cannot be changed without the risk of breaking it."""


_UNREADABLE = SettingsError("The file has a mistake, or a form that this program does not know.")


def _unique(members: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        raise _UNREADABLE
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


class _Member(NamedTuple):
    """Where a member of an object begins with its name, where its value begins, and where it
    ends."""

    start: int
    value: int
    end: int


class _Object(NamedTuple):
    """Where an object is in a text."""

    start: int
    end: int
    members: dict[str, _Member]
    # After the comma that follows its last member; 0 without one.
    comma: int


class _Json:
    """An object in JSON with comments and trailing commas."""

    def __init__(self, text: str) -> None:
        self.text = text
        # With blanks in place of comments, and then of commas too: everything else keeps its place.
        self.uncommented = _COMMENT.sub(_blanked, text)
        self._plain = _LAST_COMMA.sub(_blanked, self.uncommented)
        try:
            value = _DECODER.decode(self._plain)
        except (ValueError, RecursionError):
            raise _UNREADABLE from None
        if not isinstance(value, dict):
            raise _UNREADABLE
        self.value: dict[str, object] = value
        self.whole = self.object_at(_skip_space(self._plain, 0))

    def object_at(self, start: int) -> _Object:
        plain, members, end = self._plain, {}, start
        at = _skip_space(plain, start + 1)
        while plain[at] != "}":
            name, colon = _DECODER.raw_decode(plain, at)
            value = _skip_space(plain, plain.index(":", colon) + 1)
            _value, end = _DECODER.raw_decode(plain, value)
            members[name] = _Member(at, value, end)
            at = _skip_space(plain, end)
            if plain[at] == ",":
                at = _skip_space(plain, at + 1)
        after = _skip_space(self.uncommented, end)
        comma = after + 1 if members and self.uncommented[after] == "," else 0
        return _Object(start, at + 1, members, comma)


def _blanked(found: re.Match[str]) -> str:
    if found[0].startswith("/*") and not found[0].endswith("*/", 2):
        # The comment has no end.
        raise _UNREADABLE
    return found[0] if found[0].startswith(('"', "{", "[")) else " " * len(found[0])


def _skip_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return space.end() if space else place


def add_to_json(text: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return the text with the entry in its section, in place of one with the same name."""
    if not text.strip():
        return json.dumps({section: {name: entry}}, indent=2) + "\n"
    json_text = _Json(text)
    before = json_text.value.get(section, {})
    if not isinstance(before, dict):
        raise _UNREADABLE
    if section not in json_text.value:
        added = _insert(text, json_text.whole, section, {name: entry})
    else:
        around = json_text.object_at(json_text.whole.members[section].value)
        if name in before:
            old = around.members[name]
            added = text[: old.start] + _member(text, old.start, name, entry) + text[old.end :]
        else:
            added = _insert(text, around, name, entry)
    return _checked(added, {**json_text.value, section: {**before, name: entry}})


def remove_from_json(text: str, section: str, name: str) -> str:
    """Return the text without the entry, and without its section if nothing else is in it."""
    json_text = _Json(text)
    before = json_text.value.get(section)
    if not isinstance(before, dict) or name not in before:
        return text
    others = {key: value for key, value in before.items() if key != name}
    wanted = {**json_text.value, section: others}
    if others:
        around = json_text.object_at(json_text.whole.members[section].value)
        return _checked(_cut(json_text, around, name), wanted)
    del wanted[section]
    return _checked(_cut(json_text, json_text.whole, section), wanted)


def _checked(text: str, wanted: Mapping[str, object]) -> str:
    if _Json(text).value != wanted:
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
    last = list(around.members.values())[-1]
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


def _cut(json_text: _Json, around: _Object, name: str) -> str:
    """Return the text without a member, its comma, and the blanks before it."""
    text, member, names = json_text.text, around.members[name], list(around.members)
    start, end = len(text[: member.start].rstrip()), member.end
    if name != names[-1] or around.comma:
        end = json_text.uncommented.index(",", end) + 1
    elif len(names) > 1:
        # The comma before the last one goes with it.
        comma = json_text.uncommented.index(",", around.members[names[-2]].end)
        return text[:comma] + text[comma + 1 : start] + text[end:]
    return text[:start] + text[end:]


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
    wanted = {**before, section: {**_section(before, section), name: entry}}
    if _toml(added) != wanted:
        raise _UNREADABLE
    return added


def remove_from_toml(text: str, section: str, name: str) -> str:
    before = _toml(text)
    others = {key: value for key, value in _section(before, section).items() if key != name}
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


def _section(document: Mapping[str, object], name: str) -> dict[str, object]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
