# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the user at the terminal, one question after the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...permission.request import Answer, PermissionRequest, Unanswered
from ...text.visible import visible, visible_line
from ...tools.base import UserQuestion
from .card import KEYS, card, choices, details, in_words
from .keyboard import KeyReader

# Lines of the screen to keep free.
_RESERVED = 3
# Seconds in which keys are ignored: the user may have been typing when the card appeared.
_PAUSE = 0.4
# In front of a line, and of its continuation.
_BAR = ("  ┃ ", "  ┊ ")
_MORE = "-- {left:,} more lines: [space] to continue   [d]eny   (Enter: deny) "


class TerminalAsker:
    """Shows the card. The user can allow only after all of it was on the screen; Enter denies, and
    any other key does nothing."""

    def __init__(
        self, write: Callable[[str], None], hold: Callable[[], None], go_on: Callable[[], None]
    ) -> None:
        """`hold` stops all other output and input until `go_on` is called."""
        self._write = write
        self._hold = hold
        self._go_on = go_on
        self._keys = KeyReader()
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, request: PermissionRequest) -> Answer:
        async with self._one_at_a_time:
            with self._undisturbed(), self._keys.taken():
                self._keys.forget()
                answer = await self._show(request)
                self._write(f"{answer.value.capitalize()}.\n")
                return answer

    async def ask_user(self, question: UserQuestion) -> str:
        """Show a question of the model, and return the line that the user types: a choice by its
        number, or anything else."""
        async with self._one_at_a_time:
            with self._undisturbed():
                self._keys.forget()
                width = max(_size()[0], 20)
                lines = [
                    line for text in _question(question) for line in in_words(text, width, *_BAR)
                ]
                self._print(["─" * min(width, 60), "The model asks:", *lines])
                what = "Number, or your answer" if question.choices else "Your answer"
                self._write(f"{what} (Enter: none): ")
                line = await self._keys.line()
                if line is None:
                    self._write("\n")
                    raise Unanswered("The terminal was closed.")
                answer = line.strip()
                if answer.isdecimal() and 0 < int(answer) <= len(question.choices):
                    return question.choices[int(answer) - 1]
                return answer

    async def _show(self, request: PermissionRequest) -> Answer:
        width, height = _size()
        page = max(height - _RESERVED, 5)
        lines, more = card(request, width), details(request, width)
        if len(lines) + len(more) <= page:
            lines, more = [*lines, *more], []
        while len(lines) > page:
            self._print(lines[:page])
            lines = lines[page:]
            self._write(_MORE.format(left=len(lines)))
            if await self._key(" d\r\n") != " ":
                return Answer.DENY
            self._write("\r\x1b[K")
        self._print(lines)
        await asyncio.sleep(_PAUSE)
        self._keys.forget()
        offered = {key: one for key, (one, _words) in KEYS.items() if one in request.answers}
        while True:
            self._write(choices(request, more=bool(more)))
            key = await self._key("".join((*offered, "\r\n", "m" if more else "")))
            if key != "m":
                return offered.get(key, Answer.DENY)
            self._print(["", *more])

    def _print(self, lines: Sequence[str]) -> None:
        self._write("".join(f"{line}\n" for line in lines))

    async def _key(self, wanted: str) -> str:
        while True:
            key = (await self._keys.key()).lower()
            if not key:
                self._write("\n")
                raise Unanswered("The terminal was closed.")
            if len(key) == 1 and key in wanted:
                return key
            self._write("\a")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        self._hold()
        try:
            yield
        except asyncio.CancelledError:
            self._write("\n(no longer asked)\n")
            raise
        finally:
            self._go_on()


def _question(question: UserQuestion) -> Iterator[str]:
    yield from visible(question.text).expandtabs(4).split("\n")
    for number, choice in enumerate(question.choices, 1):
        yield f"{number}  {visible_line(choice)}"


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24
