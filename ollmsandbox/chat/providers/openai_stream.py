# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer in the pieces of OpenAI's interface, as each server understands it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .base import Called, Piece, Usage
from .mask import Mask
from .reading import CallMaker, Words, a_list, a_number, a_text, inside, read_json

_MOST_CALLS = 128


@dataclass
class _Call:
    """One that is still being told."""

    index: int | None
    id: str = ""
    name: str = ""
    text: str = ""
    # Some send it as it is, and not as text.
    whole: Mapping[str, object] | None = None


class Answer:
    def __init__(self, used_ids: Iterable[str], mask: Mask) -> None:
        self._words = Words(mask)
        self._maker = CallMaker(used_ids, mask)
        self._calls: list[_Call] = []
        self._finish = ""
        # All was said, whether or not the server hangs up.
        self.is_done = False
        # At least one event was one.
        self.understood = False
        self.error: str | None = None
        self.usage: Usage | None = None

    @property
    def is_complete(self) -> bool:
        return self.is_done or bool(self._finish)

    @property
    def cut_off(self) -> bool:
        return self._finish == "length"

    def read(self, event: str) -> list[Piece]:
        if event.strip() == "[DONE]":
            self.is_done = self.understood = True
            return []
        try:
            return self._take(read_json(event))
        except ValueError:
            pass
        # Some leave out the empty line between events.
        pieces: list[Piece] = []
        for line in event.split("\n") if "\n" in event else []:
            pieces += self.read(line)
        return pieces

    def end(self) -> list[Piece]:
        pieces = self._words.end()
        if self.is_complete:
            for call in self._calls:
                if call.name:
                    given = call.text if call.whole is None else call.whole
                    pieces.append(Called(self._maker.make(call.id, call.name, given)))
        return pieces

    def _take(self, found: object) -> list[Piece]:
        if not isinstance(found, Mapping):
            return []
        choices = a_list(found.get("choices"))
        if found.get("error") or (not choices and found.get("object") == "error"):
            self.error = json.dumps(found)
            return []
        self.understood = self.understood or "choices" in found
        self._count(found.get("usage"))
        choice = choices[0] if choices else None
        # One that does not stream has a message in place of a difference.
        delta = inside(choice, "delta") or inside(choice, "message")
        pieces: list[Piece] = []
        for name in ("reasoning_content", "reasoning"):
            if thought := a_text(inside(delta, name)):
                pieces += self._words.thinking(thought)
                break
        pieces += self._words.text(_content(inside(delta, "content")))
        for given in a_list(inside(delta, "tool_calls")):
            self._add(given)
        if reason := a_text(inside(choice, "finish_reason")):
            self._finish = reason
        return pieces

    def _count(self, given: object) -> None:
        prompt = a_number(inside(given, "prompt_tokens"))
        said = a_number(inside(given, "completion_tokens"))
        if prompt is not None or said is not None:
            self.usage = Usage(prompt or 0, said or 0)

    def _add(self, given: object) -> None:
        call = self._which(given)
        if call is None:
            return
        call.id = call.id or a_text(inside(given, "id"))
        call.name = call.name or a_text(inside(given, "function", "name"))
        arguments = inside(given, "function", "arguments")
        if isinstance(arguments, Mapping):
            call.whole = arguments
        else:
            call.text += a_text(arguments)

    def _which(self, given: object) -> _Call | None:
        """Which call a piece belongs to: by its number, or else by its id, or else the last."""
        index = a_number(inside(given, "index"))
        id_ = a_text(inside(given, "id"))
        name = a_text(inside(given, "function", "name"))
        found: _Call | None = None
        if index is not None:
            found = next((c for c in reversed(self._calls) if c.index == index), None)
        elif id_:
            found = next((c for c in self._calls if c.id == id_), None)
        elif not name and self._calls:
            found = self._calls[-1]
        # Some number every call 0 and tell them apart by id.
        if found and name and id_ and found.id and id_ != found.id:
            found = None
        if found is None and len(self._calls) < _MOST_CALLS:
            found = _Call(index)
            self._calls.append(found)
        return found


def _content(given: object) -> str:
    """A text, or a list of parts of which some are text."""
    if isinstance(given, list):
        return "".join(a_text(inside(part, "text")) for part in given)
    return a_text(given)
