# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes questions to the cards of the window, and their answers back."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gi.repository import GObject

from ...permission.request import Answer, PermissionRequest, Unanswered
from ...tools.base import UserQuestion
from ..widgets.signals import signals

Q = TypeVar("Q", PermissionRequest, UserQuestion)
A = TypeVar("A")


class WindowAsker(GObject.Object):
    """Holds the questions that are still to be answered on a card."""

    __gsignals__ = signals(
        {
            "asked": (object,),
            # Answered, or cancelled.
            "settled": (object,),
        }
    )

    def __init__(self) -> None:
        super().__init__()
        # The requests for a permission, and then the questions of models, which are none.
        self._waiting: dict[str, tuple[PermissionRequest, asyncio.Future[Answer]]] = {}
        self._questions: dict[str, tuple[UserQuestion, asyncio.Future[str]]] = {}

    @property
    def waiting(self) -> list[PermissionRequest | UserQuestion]:
        """The unanswered requests and questions, the oldest of each first."""
        requests = [request for request, _answer in self._waiting.values()]
        return [*requests, *(question for question, _answer in self._questions.values())]

    async def ask(self, request: PermissionRequest) -> Answer:
        return await self._answer_to(request, self._waiting)

    async def ask_user(self, question: UserQuestion) -> str:
        return await self._answer_to(question, self._questions)

    async def _answer_to(self, asked: Q, waiting: dict[str, tuple[Q, asyncio.Future[A]]]) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        waiting[asked.id] = (asked, answer)
        self.emit("asked", asked)
        try:
            return await answer
        finally:
            del waiting[asked.id]
            self.emit("settled", asked)

    def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a question. Ignore one that was answered or cancelled."""
        found = self._waiting.get(request_id)
        if found is None:
            return
        request, future = found
        if answer not in request.answers:
            raise ValueError(f"{answer} cannot be given to this question")
        if not future.done():
            future.set_result(answer)

    def reply(self, question_id: str, text: str) -> None:
        """Answer a question of a model. Ignore one that was answered or cancelled."""
        found = self._questions.get(question_id)
        if found is not None and not found[1].done():
            found[1].set_result(text)

    def deny_all(self) -> None:
        for request, _answer in tuple(self._waiting.values()):
            self.answer(request.id, Answer.DENY)
        for _question, answer in tuple(self._questions.values()):
            if not answer.done():
                answer.set_exception(Unanswered("The window was closed."))
