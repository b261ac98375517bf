# SPDX-License-Identifier: GPL-3.0-or-later
"""The permission card as text: everything that will run, and how long an answer applies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...permission.request import Answer, PermissionRequest
from ...text.ansi import column_width
from ...text.visible import visible, visible_line

# What each key answers.
KEYS = {
    "d": (Answer.DENY, "[d]eny"),
    "a": (Answer.ALLOW, "[a]llow once"),
    "s": (Answer.ALLOW_SESSION, "allow for this [s]ession"),
    "p": (Answer.ALLOW_PROJECT, "allow for this [p]roject"),
    "w": (Answer.ALLOW_ALWAYS, "al[w]ays allow"),
    "n": (Answer.DENY_ALWAYS, "[n]ever allow"),
}
_LEAST_WIDTH = 20
# Characters of a question that contains the command, which is shown in full below it.
_LONGEST_QUESTION = 500


def card(request: PermissionRequest, width: int) -> list[str]:
    """Return the lines. None is wider than the terminal: if the terminal wrapped it, its rest could
    look like a separate line."""
    return list(_lines(request, max(width, _LEAST_WIDTH)))


def details(request: PermissionRequest, width: int) -> list[str]:
    """Return the plan in lines: what a command can see and write."""
    width = max(width, _LEAST_WIDTH)
    sentences = map(visible_line, request.sees)
    return [line for text in sentences for line in in_words(text, width, "  - ", "    ")]


def choices(request: PermissionRequest, *, more: bool = False) -> str:
    offered = [words for answer, words in KEYS.values() if answer in request.answers]
    if more:
        offered.append("[m]ore")
    return f"{'   '.join(offered)}   (Enter: deny) "


def question_line(request: PermissionRequest) -> str:
    line = visible_line(request.question)
    return line if len(line) <= _LONGEST_QUESTION else f"{line[: _LONGEST_QUESTION - 1]}…"


def _lines(request: PermissionRequest, width: int) -> Iterator[str]:
    yield "─" * min(width, 60)
    if request.notice:
        yield from in_words(visible_line(request.notice), width)
    yield from _wrapped(question_line(request), width, "", "")
    for line in visible(request.subject).expandtabs(4).split("\n"):
        yield from _wrapped(line, width, "  ┃ ", "  ┊ ")
    label_width = max((len(fact.label) for fact in request.facts), default=0)
    for fact in request.facts:
        label = f"  {visible_line(fact.label):{label_width}}  "
        yield from in_words(visible_line(fact.value), width, label, " " * len(label))
    if request.for_project:
        yield from in_words("To take it back: ollmsandbox roots remove", width)
    elif request.why_not_remembered:
        yield from in_words(request.why_not_remembered, width)


def in_words(text: str, width: int, first: str = "", further: str = "") -> Iterator[str]:
    """Yield the text in lines that end between words, where words are not too long for that."""
    for line in _wrapped(re.findall(r"\S+\s*|\s+", text), width, first, further):
        yield line.rstrip()


def _wrapped(parts: Iterable[str], width: int, first: str, further: str) -> Iterator[str]:
    """Yield parts of a text in lines, none of which is divided unless it is longer than a line.
    Every space is kept. Continued lines begin with `further`."""
    line, room, prefix = "", width - len(first), first
    for part in parts:
        is_long = _columns(part.rstrip()) > width - len(further)
        for piece in part if is_long else [part]:
            # What follows a word at the end of a line takes no room.
            if _columns(piece.rstrip() or piece) > room and line:
                yield prefix + line
                line, room, prefix = "", width - len(further), further
            line += piece
            room -= _columns(piece)
    yield prefix + line


def _columns(text: str) -> int:
    return sum(map(column_width, text))
