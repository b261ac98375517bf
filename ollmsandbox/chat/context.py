# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a conversation a model is sent, so that it fits into its context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .. import N_
from ..errors import Sentence
from .messages import Message, Role, ToolSpec

# Of a text nothing is known before a server has counted it.
_CHARACTERS = 4
_LEAST, _MOST = 0.8, 4.0
# Cut back further than needed: a context that changes at its front with each message has to be
# read anew by the model each time.
_CUT_BACK = 0.75
# A message costs some tokens for being one.
_EACH = 4
# What stays of output that was shortened.
_HEAD, _TAIL = 400, 200
_SHORT = 1200

EARLIER = "[Earlier messages of this conversation were left out here to make room.]"
FIRST_STEPS = "[Your first steps after this were left out here to make room.]"


@dataclass(frozen=True)
class FittedContext:
    messages: tuple[Message, ...]
    # How much was left out just now, for the person; empty if nothing more than before.
    notice: str = ""


class ContextWindow:
    """Remembers what was left out: it stays left out, so that the front of the context is stable.
    The system prompt and the last that the person said are never touched, and a call is never
    parted from its answer."""

    def __init__(self) -> None:
        self._shortened: set[int] = set()
        self._dropped: set[int] = set()
        self._factor = 1.0
        self._sent = 0
        self._ceiling: int | None = None

    def was_too_long(self) -> bool:
        """The server did not take what it was sent last. False if nothing more can be left out."""
        ceiling = round(self._factor * self._sent * _CUT_BACK)
        if self._ceiling is not None and ceiling >= self._ceiling:
            return False
        self._ceiling = ceiling
        return True

    def learn(self, prompt_tokens: int) -> None:
        """How the server counted what it was sent last. It may leave out what it had in store, so
        a small number says little."""
        if self._sent and prompt_tokens > 0:
            self._factor = min(max(prompt_tokens / self._sent, _LEAST), _MOST)

    def estimate(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        return round(self._factor * (_raw(messages) + _raw_tools(tools)))

    def fit(
        self,
        prompt: Message,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        length: int | None,
    ) -> FittedContext:
        """`length`: what the model can hold in all; None if nobody knows."""
        before = (len(self._shortened), len(self._dropped))
        kept = self._kept(prompt, messages)
        room = self._room(length)
        if room is not None and self.estimate(kept, tools) > room:
            for _ in self._steps(messages):
                kept = self._kept(prompt, messages)
                if self.estimate(kept, tools) <= room * _CUT_BACK:
                    break
        self._sent = _raw(kept) + _raw_tools(tools)
        return FittedContext(tuple(kept), self._notice(*before))

    def _room(self, length: int | None) -> int | None:
        if length is None:
            return self._ceiling
        # The answer needs room, too.
        room = length - min(max(length // 4, 256), 8192)
        return room if self._ceiling is None else min(room, self._ceiling)

    def _steps(self, messages: Sequence[Message]) -> Iterator[None]:
        """Each leaves out a little more."""
        groups = _groups(messages)
        last_said = _last_said(messages)
        newest = groups[-1] if groups else range(0)
        # Old output first ...
        for number, message in enumerate(messages):
            if number not in newest and _can_shorten(message) and number not in self._shortened:
                self._shortened.add(number)
                yield
        # ... then whole turns, ...
        for turn in _turns(messages):
            if last_said not in turn and not self._dropped.issuperset(turn):
                self._dropped.update(turn)
                yield
        # ... then what the model just asked for, the longest of it first, ...
        for number in sorted(newest, key=lambda number: -len(messages[number].text)):
            if _can_shorten(messages[number]) and number not in self._shortened:
                self._shortened.add(number)
                yield
        # ... and at last the beginning of a turn that has become very long.
        for group in groups[:-1]:
            if group.start > last_said and not self._dropped.issuperset(group):
                self._dropped.update(group)
                yield

    def _kept(self, prompt: Message, messages: Sequence[Message]) -> list[Message]:
        last_said = _last_said(messages)
        found = [prompt]
        gap = False
        for number, message in enumerate(messages):
            if number in self._dropped:
                gap = True
                continue
            if number in self._shortened:
                message = replace(message, text=_shorten(message.text))
            if number < last_said and message.thinking:
                message = replace(message, thinking="")
            if gap and message.role is Role.USER:
                message = replace(message, text=f"{EARLIER}\n\n{message.text}")
                gap = False
            # Many models take nothing but turns: what a person said twice in a row is one.
            if message.role is Role.USER and found[-1].role is Role.USER:
                message = replace(message, text=f"{found.pop().text}\n\n{message.text}")
            found.append(message)
        if gap:
            # The turn that goes on has lost its first steps.
            at = max(n for n, message in enumerate(found) if message.role is Role.USER)
            text = f"{found[at].text}\n\n{FIRST_STEPS}"
            found[at] = replace(found[at], text=text)
        return found

    def _notice(self, shortened: int, dropped: int) -> str:
        more = len(self._shortened) - shortened
        gone = len(self._dropped) - dropped
        if not more and not gone:
            return ""
        shorter = Sentence(
            N_("the output of {number} earlier call was shortened")
            if more == 1
            else N_("the output of {number} earlier calls was shortened"),
            number=more,
        )
        without = Sentence(
            N_("{number} earlier message was left out")
            if gone == 1
            else N_("{number} earlier messages were left out"),
            number=gone,
        )
        what = without if gone else shorter
        if more and gone:
            # Translators: such as "the output of 3 earlier calls was shortened and 1 earlier
            # message was left out".
            what = Sentence(N_("{shorter} and {without}"), shorter=shorter, without=without)
        # Translators: {what} is such as "3 earlier messages were left out".
        text = N_("To make room for the model, {what}. The history keeps all of it.")
        return Sentence(text, what=what)


def _raw(messages: Sequence[Message]) -> int:
    return sum(_EACH + _size(message) // _CHARACTERS for message in messages)


def _size(message: Message) -> int:
    calls = sum(len(call.name) + _length(call.arguments) for call in message.calls)
    return len(message.text) + len(message.thinking) + calls


def _length(data: Mapping[str, object] | str) -> int:
    return len(data) if isinstance(data, str) else len(json.dumps({**data}, default=str))


def _raw_tools(tools: Sequence[ToolSpec]) -> int:
    return sum(
        _EACH + (len(tool.description) + _length(tool.parameters)) // _CHARACTERS for tool in tools
    )


def _can_shorten(message: Message) -> bool:
    return message.role is Role.TOOL and len(message.text) > _SHORT


def _shorten(text: str) -> str:
    left_out = len(text) - _HEAD - _TAIL
    marker = f"[... {left_out:,} characters of this output were left out to make room ...]"
    return f"{text[:_HEAD]}\n{marker}\n{text[-_TAIL:]}"


def _last_said(messages: Sequence[Message]) -> int:
    said = (n for n in range(len(messages) - 1, -1, -1) if messages[n].role is Role.USER)
    return next(said, 0)


def _turns(messages: Sequence[Message]) -> list[range]:
    """What the person said, and all until they said something again."""
    starts = [n for n, message in enumerate(messages) if message.role is Role.USER]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    ends = [*starts[1:], len(messages)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _groups(messages: Sequence[Message]) -> list[range]:
    """An answer with its calls and what came of them."""
    found: list[range] = []
    for number, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            found.append(range(number, number + 1))
        elif message.role is Role.TOOL and found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
    return found
