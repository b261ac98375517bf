# SPDX-License-Identifier: GPL-3.0-or-later
"""Passes questions to the cards of the window, and their answers back."""

from __future__ import annotations

import asyncio

from gi.repository import GObject

from ...permission.request import Answer, PermissionRequest
from ..widgets.signals import signals


class WindowAsker(GObject.Object):
    """Holds the questions that are still to be answered on a card."""

    __gtype_name__ = "OllmWindowAsker"

    __gsignals__ = signals(
        {
            "asked": (object,),
            # Answered, or cancelled.
            "settled": (object,),
        }
    )

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, tuple[PermissionRequest, asyncio.Future[Answer]]] = {}

    @property
    def waiting(self) -> list[PermissionRequest]:
        """The unanswered requests, the oldest first."""
        return [request for request, _answer in self._waiting.values()]

    async def ask(self, request: PermissionRequest) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = (request, answer)
        self.emit("asked", request)
        try:
            return await answer
        finally:
            del self._waiting[request.id]
            self.emit("settled", request)

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

    def deny_all(self) -> None:
        for request in self.waiting:
            self.answer(request.id, Answer.DENY)
