# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool ask: a question of the model to the user, with choices."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from .. import N_
from ..permission.request import Unanswered
from ..text.ansi import escape_line
from .base import Outcome, RequestBase, ToolError, UserQuestion, Watcher
from .context import ToolContext
from .parameters import DeclaredTool, parameter

NAME = "ask"

_MOST_CHOICES = 8
_NOBODY = (
    "Nobody is there to answer. Decide yourself, choose what can be undone, and say at the end "
    "what you assumed."
)


@dataclass(frozen=True)
class AskParameters:
    question: str = parameter("The question, complete and short.", longest=4000)
    choices: tuple[str, ...] = parameter(
        "Two to eight answers to choose from, each a few words. The user can also type another "
        "one. Leave them out for an open question.",
        default=(),
        longest=200,
    )


class Ask(DeclaredTool[AskParameters]):
    name = NAME
    declared = AskParameters
    description = (
        "Ask the user a question, and wait for the answer. Use it when the task is unclear and "
        "a wrong guess would cost much; otherwise decide yourself. An answer is no permission: "
        "the user is asked about those separately."
    )

    def request(self, given: AskParameters, call_id: str) -> AskRequest:
        if not given.question.strip():
            raise ToolError(N_("`question` is empty."))
        choices = tuple(dict.fromkeys(choice.strip() for choice in given.choices))
        if len(choices) > _MOST_CHOICES:
            raise ToolError(
                N_("There are {count} choices, and {most} are allowed."),
                count=len(choices),
                most=_MOST_CHOICES,
            )
        if "" in choices or any("\n" in choice for choice in choices):
            raise ToolError(N_("Each of `choices` must be a text in one line."))
        question = UserQuestion(
            uuid.uuid4().hex, given.question.strip(), choices, self._context.session_id, call_id
        )
        return AskRequest(self._context, question)


@dataclass
class AskRequest(RequestBase):
    _context: ToolContext
    _question: UserQuestion

    def describe(self) -> str:
        return escape_line(self._question.text)

    async def perform(self, watcher: Watcher) -> Outcome:
        asker, answer = self._context.questions, None
        watcher.questioned(self._question)
        try:
            if asker is not None:
                answer = (await asker.ask_user(self._question))[:20_000].strip()
        except Unanswered:
            pass  # the model is told
        finally:
            watcher.replied(answer)
        if answer is None:
            return Outcome.failed(_NOBODY)
        if not answer:
            return Outcome("The user gave no answer. Decide yourself.", ok=True, reply="")
        return Outcome(f"The user answered: {answer}", ok=True, reply=answer)
