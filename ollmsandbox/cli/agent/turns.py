# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs turns at the terminal. During a turn Ctrl+C stops it; between turns the loop rests."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import TypeVar

from ...chat.conversation import Conversation
from ...chat.events import ChatEvent, Listener, TurnEnded
from ...chat.turn_end import TurnEnd
from ...errors import OllmSandboxError
from ..streams import give_up
from .client import JsonClient
from .keyboard import TypedLines

T = TypeVar("T")
# Signals that end the program, but not in the middle of a turn.
_LEAVE = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_LEAVE)


class Turns:
    """Handles the program's signals until it is closed.

    It uses Python's own handlers: those of GLib's loop would have to be set and removed with each
    turn, and a Ctrl+C in between would be lost or end the program.
    """

    def __init__(self, runner: asyncio.Runner, conversation: Conversation) -> None:
        self.conversation = conversation
        self._runner = runner
        self._is_running = self._is_at_prompt = False
        self._stopping: asyncio.Task[None] | None = None
        self._client: JsonClient | None = None
        # Set by a signal: end the program with this status.
        self.leave = 0
        # The error, if the output can no longer be written.
        self._lost: OSError | None = None
        for number in _ALL:
            signal.signal(number, self._signalled)

    def listen(self, listener: Listener) -> None:
        """Pass the conversation's events on; stop the turn if the output cannot be written."""

        def hear(event: ChatEvent) -> None:
            try:
                listener(event)
            except OSError as error:
                give_up()
                if self._lost is None:
                    self._lost = error
                    self._stop()

        self.conversation.listen(hear)

    def say(self, text: str | None, typed: TypedLines | None = None) -> int:
        """Run a turn, or the last one again without a text, and return its exit status. `typed`
        hears what is typed meanwhile."""

        async def say() -> TurnEnded:
            with typed.reading() if typed is not None else contextlib.nullcontext():
                if text is None:
                    return await self.conversation.retry()
                return await self.conversation.say(text)

        return self._status(self.run(say))

    def serve(self, client: JsonClient, text: str) -> int:
        """Run turns for another program, and return the exit status of the last one."""
        self._client = client
        return self._status(
            self.run(lambda: client.converse(self.conversation, text, self._must_end))
        )

    def _must_end(self) -> bool:
        return bool(self.leave) or self._lost is not None

    def _status(self, ended: TurnEnded) -> int:
        if self.leave:
            return self.leave
        return 0 if ended.end is TurnEnd.DONE else 1

    def read(self, read: Callable[[], str]) -> str:
        """Read a line. Only here, Ctrl+C raises KeyboardInterrupt."""
        self._is_at_prompt = True
        try:
            return read()
        finally:
            self._is_at_prompt = False

    def run(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        done = self._run(work)
        if isinstance(self._lost, BrokenPipeError):
            raise self._lost
        if self._lost is not None:
            raise OllmSandboxError(f"Cannot write the output: {self._lost.strerror}.")
        return done

    def close(self) -> None:
        self._run(self.conversation.close)
        for number in _ALL:
            # The program is about to exit anyway.
            signal.signal(number, signal.SIG_IGN)

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        self._is_running = True
        try:
            return self._runner.run(self._interruptible(work))
        finally:
            self._is_running = False

    async def _interruptible(self, work: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        # The loop waits in C; a byte here makes it return, and Python then sees the signal.
        reader, writer = socket.socketpair()
        reader.settimeout(0)
        writer.settimeout(0)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        loop.add_reader(reader, reader.recv, 4096)
        try:
            return await work()
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reader)
            reader.close()
            writer.close()
            sys.stdout.flush()

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if number in _LEAVE:
            self.leave = 128 + number
        if self._is_running:
            self._runner.get_loop().call_soon_threadsafe(self._stop)
        elif number in _LEAVE:
            raise SystemExit(self.leave)
        elif self._is_at_prompt:
            # Only once for each prompt.
            self._is_at_prompt = False
            raise KeyboardInterrupt

    def _stop(self) -> None:
        # Asyncio does not keep tasks alive.
        self._stopping = asyncio.ensure_future(self.conversation.stop())
        if self._client is not None:
            self._client.interrupt()
