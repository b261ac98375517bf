# SPDX-License-Identifier: GPL-3.0-or-later
"""Another program as the user of `agent --json`: it writes its answers and messages to standard
input, a JSON document per line."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from ...chat.conversation import Conversation
from ...chat.events import TurnEnded
from ...chat.turn_end import TurnEnd
from ...errors import OllmSandboxError
from ...permission.request import Answer, PermissionRequest, Unanswered
from ...text.ansi import escape_line
from ...tools.base import UserQuestion

T = TypeVar("T")

_LONGEST_LINE = 8 << 20
_NO_TURN = "There is no turn to try again."
_ANSWERS = {answer.value: answer for answer in Answer}


def has_client(descriptor: int = 0) -> bool:
    """Return whether another program may write to standard input."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class ClientError(OllmSandboxError):
    """A line that the program cannot understand."""


class JsonClient:
    """Answers questions, and sends messages. Use it only on the loop's own thread."""

    def __init__(self, write: Callable[[dict[str, object]], None], descriptor: int = 0) -> None:
        self._write = write
        self._descriptor = descriptor
        self._conversation: Conversation | None = None
        self._rest = bytearray()
        self._is_open = True
        self._has_spoken = False
        # None tries the last turn again.
        self._messages: list[str | None] = []
        self._news = asyncio.Event()
        self._open: dict[str, asyncio.Future[Mapping[str, object]]] = {}
        self._early: dict[str, Mapping[str, object]] = {}
        self._stopping: asyncio.Task[None] | None = None

    # --- for the conversation ------------------------------------------------------------------

    async def ask(self, request: PermissionRequest) -> Answer:
        document = await self._answer(request.id)
        answer = _ANSWERS.get(str(document.get("answer")))
        return answer if answer in request.answers else Answer.DENY

    async def ask_user(self, question: UserQuestion) -> str:
        document = await self._answer(question.id)
        try:
            return _text(document, "text")
        except ClientError as error:
            raise Unanswered(error.message) from error

    async def converse(
        self, conversation: Conversation, first: str, must_end: Callable[[], bool]
    ) -> TurnEnded:
        """Run a turn for each message, until standard input ends or `must_end` says so. A program
        that has sent nothing by the end of the first turn will not send anything."""
        self._conversation = conversation
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, self._read)
        try:
            self._messages.insert(0, first)
            ended = TurnEnded(TurnEnd.STOPPED)
            while await self._has_next():
                text = self._messages.pop(0)
                if text is None and not conversation.owes_reply:
                    self._write({"event": "invalid_input", "text": _NO_TURN})
                    continue
                ended = await (conversation.retry() if text is None else conversation.say(text))
                self._messages[:0] = [queued.text for queued in conversation.take_queued()]
                if must_end():
                    break
            return ended
        finally:
            self._end()

    def interrupt(self) -> None:
        """Expect nothing more, if no turn is running."""
        if self._conversation is None or not self._conversation.is_in_turn:
            self._end()

    # --- reading -------------------------------------------------------------------------------

    async def _has_next(self) -> bool:
        while not self._messages:
            if not self._is_open or not self._has_spoken:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    async def _answer(self, id_: str) -> Mapping[str, object]:
        if id_ in self._early:
            return self._early.pop(id_)
        if not self._is_open:
            raise Unanswered("Standard input has ended.")
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._open[id_] = answer
        try:
            return await answer
        finally:
            del self._open[id_]

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        # The last line may lack its end.
        self._rest += data or b"\n"
        for line in self._lines():
            try:
                self._take(_document(line))
            except OllmSandboxError as error:
                self._write({"event": "invalid_input", "text": str(error)})
        if not data:
            self._end()

    def _lines(self) -> Iterator[bytes]:
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end]).strip()
            del self._rest[: end + 1]
            if line:
                yield line
        if len(self._rest) > _LONGEST_LINE:
            self._rest.clear()
            self._write({"event": "invalid_input", "text": "The line is too long."})

    def _take(self, document: Mapping[str, object]) -> None:
        assert self._conversation is not None
        self._has_spoken = True
        match document.get("type"):
            case "message":
                text = _text(document, "text")
                if not text.strip():
                    raise ClientError("The message is empty.")
                if self._conversation.is_in_turn:
                    self._conversation.queue(text)
                else:
                    self._messages.append(text)
                    self._news.set()
            case "retry":
                # `is_busy` is still true when the other program reads that the turn has ended.
                is_working = self._conversation.is_in_turn or self._messages
                if is_working or not self._conversation.owes_reply:
                    raise ClientError(_NO_TURN)
                self._messages.append(None)
                self._news.set()
            case "answer":
                self._take_answer(_text(document, "id"), document)
            case "stop":
                # Asyncio does not keep tasks alive.
                self._stopping = asyncio.ensure_future(self._conversation.stop())
            case other:
                given = escape_line(repr(other))[:80]
                raise ClientError(f"`type` must be message, retry, answer or stop, not {given}.")

    def _take_answer(self, id_: str, document: Mapping[str, object]) -> None:
        waiting = self._open.get(id_)
        if waiting is not None and not waiting.done():
            waiting.set_result(document)
        elif len(self._early) < 100:
            # The rules may still be looked up.
            self._early[id_] = document

    def _end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._news.set()
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(Unanswered("Standard input has ended."))


def _document(line: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ClientError("The line is not valid JSON.") from error
    if not isinstance(found, dict):
        raise ClientError("The line is not a JSON object.")
    return found


def _text(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ClientError(f"`{name}` must be a text.")
    # JSON can express lone surrogates, which nothing else can.
    return value.encode("utf-8", "replace").decode("utf-8")
