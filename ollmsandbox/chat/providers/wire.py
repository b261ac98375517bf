# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts messages for servers, and parses what they send: JSON of any shape, reasoning in tags,
calls without ids. Masks the API key wherever a server repeats it."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...text.visible import replace_surrogates
from ..messages import Message, Role, ToolCall, ToolSpec
from .base import Piece, TextPiece, ThinkingPiece

INSTEAD = "[key]"
# Shorter keys are placeholders such as "EMPTY" for servers without keys. They are not secret, and
# masking them would garble ordinary text.
_SHORTEST = 8


class KeyMask:
    def __init__(self, key: str = "") -> None:
        self._key = key if len(key) >= _SHORTEST else ""

    def __repr__(self) -> str:
        return "KeyMask()"

    def whole(self, text: str) -> str:
        return text.replace(self._key, INSTEAD) if self._key else text

    def stream(self) -> MaskedStream:
        return MaskedStream(self._key)


class MaskedStream:
    """Masks the key in text that arrives in pieces: holds back what may be its beginning."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._held = ""

    def __repr__(self) -> str:
        return "MaskedStream()"

    def feed(self, text: str) -> str:
        if not self._key:
            return text
        text = (self._held + text).replace(self._key, INSTEAD)
        held = next(
            (n for n in range(len(self._key) - 1, 0, -1) if text.endswith(self._key[:n])), 0
        )
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        rest, self._held = self._held, ""
        return rest


def pair_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without calls that have no result, results without a call, and empty
    messages. A session may have been stopped anywhere, and servers refuse all of these."""
    results = {message.call_id for message in messages if message.role is Role.TOOL}
    open_calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.call_id not in open_calls:
                continue
            open_calls.discard(message.call_id)
        elif message.role is Role.ASSISTANT:
            calls = tuple(call for call in message.calls if call.id in results)
            open_calls.update(call.id for call in calls)
            message = replace(message, calls=calls)
            if not calls and not message.text.strip():
                continue
        kept.append(message)
    return kept


def names_of_calls(messages: Sequence[Message]) -> dict[str, str]:
    return {call.id: call.name for message in messages for call in message.calls}


def arguments_object(call: ToolCall) -> Mapping[str, object]:
    """Return the arguments as an object, because servers parse them again."""
    return call.arguments if isinstance(call.arguments, Mapping) else {"not_json": call.arguments}


def tool_list(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


_OPEN, _CLOSE = "<think>", "</think>"
_ALPHABET = string.ascii_letters + string.digits


def read_json(text: str) -> object:
    """Parse JSON; replace lone surrogates, which cannot be stored or shown. Raise ValueError."""
    try:
        found: object = json.loads(text)
        return _without_surrogates(found) if "\\u" in text else found
    except RecursionError as error:
        raise ValueError("too deep") from error


def read_object(text: str) -> Mapping[str, object]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        found = read_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _without_surrogates(found: object) -> object:
    if isinstance(found, str):
        return replace_surrogates(found)
    if isinstance(found, list):
        return [_without_surrogates(item) for item in found]
    if isinstance(found, dict):
        return {
            replace_surrogates(str(key)): _without_surrogates(value) for key, value in found.items()
        }
    return found


# For looking into data of any shape.


def inside(found: object, *keys: str) -> object:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def a_text(found: object) -> str:
    return found if isinstance(found, str) else ""


def a_list(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def a_number(found: object) -> int | None:
    """Return a number of tokens: whole and not negative."""
    if isinstance(found, bool) or not isinstance(found, int):
        return None
    return found if 0 <= found < 1 << 53 else None


def read_arguments(given: object) -> Mapping[str, object] | str:
    """Return the object. It may be encoded as JSON once or twice; anything else stays as it is."""
    for _ in range(2):
        if isinstance(given, Mapping):
            return given
        if given is None or (isinstance(given, str) and not given.strip()):
            return {}
        if not isinstance(given, str):
            return json.dumps(given)
        try:
            found = read_json(given)
        except ValueError:
            return given
        if not isinstance(found, Mapping | str):
            return given
        given = found
    return given if isinstance(given, Mapping) else str(given)


class CallBuilder:
    """Gives each call a unique id, because servers leave it out or repeat it in each reply. The id
    has nine letters and digits, as some models' templates require."""

    def __init__(self, used: Iterable[str], mask: KeyMask) -> None:
        self._used = set(used)
        self._mask = mask

    def make(self, id_: str, name: str, arguments: object) -> ToolCall:
        if not 0 < len(id_) <= 64 or not id_.isprintable() or id_ in self._used:
            id_ = "".join(secrets.choice(_ALPHABET) for _ in range(9))
        self._used.add(id_)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        found = read_arguments(self._mask.whole(text))
        return ToolCall(id_, self._mask.whole(name), found)


class TextSplitter:
    """Separates the text of an answer from reasoning in tags at its very beginning."""

    def __init__(self, mask: KeyMask) -> None:
        self._text: MaskedStream = mask.stream()
        self._thinking: MaskedStream = mask.stream()
        # None until it is known whether the answer begins with reasoning.
        self._in_thoughts: bool | None = None
        self._held = ""
        self._strip = False

    def text(self, piece: str) -> list[Piece]:
        if self._in_thoughts is None:
            return self._first(self._held + piece)
        if self._in_thoughts:
            return self._thoughts(self._held + piece)
        return self._say(piece)

    def thinking(self, piece: str) -> list[Piece]:
        masked = self._thinking.feed(replace_surrogates(piece))
        return [ThinkingPiece(masked)] if masked else []

    def end(self) -> list[Piece]:
        held, self._held = self._held, ""
        pieces: list[Piece] = []
        if held:
            pieces += self.thinking(held) if self._in_thoughts else self._say(held)
        if rest := self._thinking.end():
            pieces.append(ThinkingPiece(rest))
        if rest := self._text.end():
            pieces.append(TextPiece(rest))
        return pieces

    def _first(self, text: str) -> list[Piece]:
        start = text.lstrip()
        if len(start) < len(_OPEN) and _OPEN.startswith(start) and len(text) < 1000:
            self._held = text
            return []
        self._held = ""
        self._in_thoughts = start.startswith(_OPEN)
        if self._in_thoughts:
            return self._thoughts(start.removeprefix(_OPEN))
        return self._say(text)

    def _thoughts(self, text: str) -> list[Piece]:
        thought, found, rest = text.partition(_CLOSE)
        if found:
            self._in_thoughts, self._held, self._strip = False, "", True
            return self.thinking(thought) + self._say(rest)
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
        self._held = text[len(text) - keep :]
        return self.thinking(text[: len(text) - keep])

    def _say(self, text: str) -> list[Piece]:
        if self._strip:
            # Empty lines between the reasoning and the answer.
            text = text.lstrip("\r\n")
            self._strip = not text
        masked = self._text.feed(replace_surrogates(text))
        return [TextPiece(masked)] if masked else []
