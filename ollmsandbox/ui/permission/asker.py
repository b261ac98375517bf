# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes questions to the cards of the window, and their answers back."""

from __future__ import annotations

import asyncio

from gi.repository import GObject

from ...permission.request import Answer, PermissionRequest, Unanswered
from ...tools.base import UserQuestion
from ..widgets.signals import signals

Asked = PermissionRequest | UserQuestion


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
        # The requests for a permission, and the questions of models.
        self._waiting: dict[str, tuple[Asked, asyncio.Future[Answer | str]]] = {}

    @property
    def waiting(self) -> list[Asked]:
        """The unanswered requests, and then the questions, the oldest of each first."""
        asked = [asked for asked, _answer in self._waiting.values()]
        return sorted(asked, key=lambda one: isinstance(one, UserQuestion))

    async def ask(self, request: PermissionRequest) -> Answer:
        answer = await self._answer_to(request)
        assert isinstance(answer, Answer)
        return answer

    async def ask_user(self, question: UserQuestion) -> str:
        return str(await self._answer_to(question))

    async def _answer_to(self, asked: Asked) -> Answer | str:
        answer: asyncio.Future[Answer | str] = asyncio.get_running_loop().create_future()
        self._waiting[asked.id] = (asked, answer)
        self.emit("asked", asked)
        try:
            return await answer
        finally:
            del self._waiting[asked.id]
            self.emit("settled", asked)

    def answer(self, asked_id: str, answer: Answer | str) -> None:
        """Answer a request, or a question of a model. Ignore one that was answered or cancelled."""
        if asked_id not in self._waiting:
            return
        asked, future = self._waiting[asked_id]
        if isinstance(asked, PermissionRequest) and answer not in asked.answers:
            raise ValueError(f"{answer} cannot be given to this question")
        if not future.done():
            future.set_result(answer)

    def deny_all(self) -> None:
        for asked, answer in tuple(self._waiting.values()):
            if isinstance(asked, PermissionRequest):
                self.answer(asked.id, Answer.DENY)
            elif not answer.done():
                answer.set_exception(Unanswered("The window was closed."))
