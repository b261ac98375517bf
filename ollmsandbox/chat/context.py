# SPDX-License-Identifier: GPL-3.0-or-later
"""Shortens a conversation so that it fits into the model's context."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .. import N_
from ..errors import Sentence
from .messages import Message, Role, ToolSpec

# Characters per token, until a server has counted.
_CHARACTERS = 4
_LEAST, _MOST = 0.8, 4.0
# Cut back further than needed: if the beginning of the context changed with each message, the model
# would have to process all of it each time.
_CUT_BACK = 0.75
# The tokens that each message costs in addition to its text.
_EACH = 4
# The characters that are kept of shortened output.
_HEAD, _TAIL = 400, 200
_SHORT = 1200

EARLIER = "[Earlier messages of this conversation were left out here to make room.]"
FIRST_STEPS = "[Your first steps after this were left out here to make room.]"


@dataclass(frozen=True)
class FittedContext:
    messages: tuple[Message, ...]
    # Tells the user how much more was left out than before; empty if nothing.
    notice: str = ""


class ContextWindow:
    """Remembers what was left out, so that the beginning of the context stays the same. Keeps the
    system prompt and the user's last message whole, and each call together with its result."""

    def __init__(self) -> None:
        self._shortened: set[int] = set()
        self._dropped: set[int] = set()
        self._factor = 1.0
        self._sent = 0
        self._ceiling: int | None = None

    def was_too_long(self) -> bool:
        """Note that the server refused the last request. Return False if nothing is left to cut."""
        ceiling = round(self._factor * self._sent * _CUT_BACK)
        if self._ceiling is not None and ceiling >= self._ceiling:
            return False
        self._ceiling = ceiling
        return True

    def learn(self, prompt_tokens: int) -> None:
        """Note the server's count of the last request. It may be too small, as some servers do not
        count what they have cached."""
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
        """Return what to send. `length` is the size of the context, None if it is unknown."""
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
        """Leave out a little more with each step."""
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
            if message.role is Role.SYSTEM:
                # Many servers accept such a message only at the beginning.
                message = replace(message, role=Role.USER)
            if gap and message.role is Role.USER:
                message = replace(message, text=f"{EARLIER}\n\n{message.text}")
                gap = False
            # Many models accept only alternating turns: join two messages of the user.
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
        text = N_("To fit the model's context, {what}. The history keeps everything.")
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
    """Return the turns: a message of the user and everything until the next one."""
    roles = [message.role for message in messages]
    starts = [
        # What the program says in front of a message belongs to it.
        n - 1 if n and roles[n - 1] is Role.SYSTEM else n
        for n, role in enumerate(roles)
        if role is Role.USER
    ]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    ends = [*starts[1:], len(messages)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _groups(messages: Sequence[Message]) -> list[range]:
    """Return the answers of the model, each with the results of its calls."""
    found: list[range] = []
    for number, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            found.append(range(number, number + 1))
        elif message.role is Role.TOOL and found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
    return found
