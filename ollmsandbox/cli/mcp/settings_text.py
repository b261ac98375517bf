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
        self.start = _skip_space(self._plain, 0)

    def members(self, start: int) -> dict[str, _Member]:
        """Return the members of the object that begins at this place."""
        plain, found = self._plain, {}
        at = _skip_space(plain, start + 1)
        while plain[at] != "}":
            name, colon = _DECODER.raw_decode(plain, at)
            value = _skip_space(plain, plain.index(":", colon) + 1)
            _value, end = _DECODER.raw_decode(plain, value)
            found[name] = _Member(at, value, end)
            at = _skip_space(plain, end)
            if plain[at] == ",":
                at = _skip_space(plain, at + 1)
        return found


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
    if _section(wanted := _Json(text).value, section).get(name) == entry:
        return text
    known = _Json(remove_from_json(text, section, name))
    if section in known.value:
        added = _insert(known, known.members(known.start)[section].value, name, entry)
    else:
        added = _insert(known, known.start, section, {name: entry})
    return _checked(added, {**wanted, section: {**_section(wanted, section), name: entry}})


def remove_from_json(text: str, section: str, name: str) -> str:
    """Return the text without the entry, and without its section if nothing else is in it."""
    known = _Json(text)
    before = _section(known.value, section)
    if name not in before:
        return text
    others = {key: value for key, value in before.items() if key != name}
    if others:
        start = known.members(known.start)[section].value
        return _checked(_cut(known, start, name), {**known.value, section: others})
    rest = {key: value for key, value in known.value.items() if key != section}
    return _checked(_cut(known, known.start, section), rest)


def _checked(text: str, wanted: Mapping[str, object]) -> str:
    if _Json(text).value != wanted:
        raise _UNREADABLE
    return text


def _insert(known: _Json, start: int, name: str, value: object) -> str:
    """Return the text with a new first member of the object at this place."""
    text = known.text
    line = text[text.rfind("\n", 0, start) + 1 : start]
    margin = "\n" + line[: len(line) - len(line.lstrip())]
    shown = json.dumps(value, indent=2).replace("\n", f"{margin}  ")
    end = "," if known.members(start) else margin
    return f"{text[: start + 1]}{margin}  {json.dumps(name)}: {shown}{end}{text[start + 1 :]}"


def _cut(known: _Json, start: int, name: str) -> str:
    """Return the text without a member of the object at this place, its comma, and the blanks
    before it."""
    members, text = known.members(start), known.text
    member = members[name]
    begin, after = len(text[: member.start].rstrip()), _skip_space(known.uncommented, member.end)
    if known.uncommented[after] == ",":
        return text[:begin] + text[after + 1 :]
    if len(members) > 1:
        # It is the last: the comma before it goes with it.
        comma = known.uncommented.rindex(",", 0, member.start)
        return text[:comma] + text[comma + 1 : begin] + text[member.end :]
    return text[:begin] + text[member.end :]


# --- TOML ------------------------------------------------------------------------------------


def add_to_toml(text: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    rest = remove_from_toml(text, section, name)
    lines = [f"[{section}.{name}]", *(f"{key} = {json.dumps(entry[key])}" for key in entry), ""]
    added = (f"{rest.rstrip()}\n\n" if rest.strip() else "") + "\n".join(lines)
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
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise _UNREADABLE
    return found
