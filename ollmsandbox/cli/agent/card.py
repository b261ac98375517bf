# SPDX-License-Identifier: GPL-3.0-or-later
"""The permission card as text: everything that will run, and how long an answer applies."""

from __future__ import annotations

from collections.abc import Iterator

from ...permission.request import Answer, PermissionRequest
from ...text.ansi import column_width
from ...text.visible import visible, visible_line

KEYS = {
    "d": Answer.DENY,
    "a": Answer.ALLOW,
    "s": Answer.ALLOW_SESSION,
    "p": Answer.ALLOW_PROJECT,
    "w": Answer.ALLOW_ALWAYS,
    "n": Answer.DENY_ALWAYS,
}
_WORDS = {
    Answer.DENY: "[d]eny",
    Answer.ALLOW: "[a]llow once",
    Answer.ALLOW_SESSION: "allow for this [s]ession",
    Answer.ALLOW_PROJECT: "allow for this [p]roject",
    Answer.ALLOW_ALWAYS: "al[w]ays allow",
    Answer.DENY_ALWAYS: "[n]ever allow",
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
    return [line for text in sentences for line in wrapped(text, width, "  - ", "    ")]


def choices(request: PermissionRequest, *, more: bool = False) -> str:
    offered = [words for answer, words in _WORDS.items() if answer in request.answers]
    if more:
        offered.append("[m]ore")
    return f"{'   '.join(offered)}   (Enter: deny) "


def answered(answer: Answer) -> str:
    return f"{answer.value.capitalize()}."


def question_line(request: PermissionRequest) -> str:
    line = visible_line(request.question)
    return line if len(line) <= _LONGEST_QUESTION else f"{line[: _LONGEST_QUESTION - 1]}…"


def _lines(request: PermissionRequest, width: int) -> Iterator[str]:
    yield "─" * min(width, 60)
    if request.notice:
        yield from wrapped(visible_line(request.notice), width, "", "")
    yield from wrapped(question_line(request), width, "", "")
    for line in visible(request.subject).expandtabs(4).split("\n"):
        yield from wrapped(line, width, "  ┃ ", "  ┊ ")
    label_width = max((len(fact.label) for fact in request.facts), default=0)
    for fact in request.facts:
        label = f"  {visible_line(fact.label):{label_width}}  "
        yield from wrapped(visible_line(fact.value), width, label, " " * len(label))
    if request.for_project:
        yield from wrapped("To take it back: ollmsandbox roots remove", width, "", "")
    elif request.why_not_remembered:
        yield from wrapped(request.why_not_remembered, width, "", "")


def wrapped(text: str, width: int, first: str, further: str) -> Iterator[str]:
    """Yield the text in lines, keeping every space. Continued lines begin with `further`."""
    line, room, prefix = "", width - len(first), first
    for character in text:
        size = column_width(character)
        if size > room and line:
            yield prefix + line
            line, room, prefix = "", width - len(further), further
        line += character
        room -= size
    yield prefix + line
