# SPDX-License-Identifier: GPL-3.0-or-later
"""The session of a client: its calls are executed, asked about and recorded as those of a model in
the window are, and the window shows them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from ...chat.calls import ToolCalls
from ...chat.events import CallEnded, ChatEvent, ConversationState, Listener
from ...chat.messages import Message, Role, ToolCall
from ...chat.sessions import SessionFactory
from ...chat.storage.stored import StoredMessage
from ...chat.storage.writer import SessionWriter
from ...paths import Paths
from ...permission.request import Asker
from ...tools.base import Outcome, Tool
from ...tools.context import ToolPreferences
from ...tools.files.edit_file import EditFile
from ...tools.files.read_file import ReadFile
from ...tools.files.search import Search
from ...tools.files.write_file import WriteFile
from ...tools.run_command import RunCommand
from ..changes import print_notice
from .changes import change_tools
from .window import WindowLink


class AgentSession:
    """Executes calls: those that can write one after the other, others at once."""

    def __init__(
        self,
        session_id: str,
        project: str,
        preferences: ToolPreferences,
        paths: Paths,
        asker: Asker,
        link: WindowLink,
    ) -> None:
        """`preferences` are of the command line; a client cannot change them."""
        self._link = link
        link.stop = self._stop
        self._factory = SessionFactory(paths, os.environ, asker)
        self._writer = SessionWriter(self._factory.history, session_id)
        self._writer.notify = lambda text: print_notice((text,))
        self._writer.set_session(project, "", None)
        context = self._factory.tool_context(self._writer, project, preferences)
        context.sees_pictures = True
        self.project = context.project or ""
        self.tools: list[Tool] = [
            RunCommand(context),
            ReadFile(context),
            Search(context),
            EditFile(context),
            WriteFile(context),
            *change_tools(context),
        ]
        self._one_writes = asyncio.Lock()
        self._running: dict[str, ToolCalls] = {}
        # Those that were cancelled, and may still settle their changes.
        self._cancelled: dict[str, ToolCalls] = {}

    async def connect_window(self) -> None:
        await self._link.connect(os.environ)

    async def call(
        self,
        client: str,
        call_id: str,
        tool: Tool,
        arguments: Mapping[str, object],
        hear: Listener,
    ) -> Outcome:
        """Execute a call of the client with this name. Cancelling kills the command."""
        call = ToolCall(call_id, tool.name, arguments)
        if not tool.can_write:
            return await self._execute(client, call, hear)
        async with self._one_writes:
            await self._settled()
            return await self._execute(client, call, hear)

    async def _execute(self, client: str, call: ToolCall, hear: Listener) -> Outcome:
        ended: Outcome | None = None

        def emit(event: ChatEvent) -> None:
            nonlocal ended
            if isinstance(event, CallEnded):
                ended = event.outcome
            hear(event)
            self._link.hear(event)

        def enter(_state: ConversationState) -> None:
            pass  # several calls may run at once, so the session has no state of its own

        self._writer.begin(f"{client}: {_subject(call)}", client)
        self._link.begin(client)
        message = Message(Role.ASSISTANT, "", calls=(call,), model=client, at=time.time())
        self._writer.write(StoredMessage(self._writer.take_number(), message))
        # Without waiting in between: the result gets the next number.
        calls = self._running[call.id] = ToolCalls(self.tools, self._writer, emit, enter)
        try:
            await calls.execute([call], [])
        except asyncio.CancelledError:
            self._cancelled[call.id] = calls
            raise
        finally:
            del self._running[call.id]
            await self._show_end(call.id)
        assert ended is not None
        return ended

    def _stop(self, call_id: str) -> None:
        """Stop a call for the user."""
        if call_id in self._running:
            self._running[call_id].stop_one(call_id)

    async def _show_end(self, call_id: str) -> None:
        # The window reads it from the database.
        await self._writer.is_written()
        self._link.end_call(call_id)

    async def close(self) -> None:
        """Wait until all changes are settled and everything is written."""
        await self._settled()
        await self._writer.close()
        self._factory.close()

    async def _settled(self) -> None:
        """Wait until the calls that were cancelled have settled their changes."""
        while self._cancelled:
            call_id, calls = next(iter(self._cancelled.items()))
            await calls.settled()
            self._cancelled.pop(call_id, None)
            # Its changes are known now.
            await self._show_end(call_id)


def _subject(call: ToolCall) -> str:
    """Return what a call is about, for the title of the session."""
    assert isinstance(call.arguments, Mapping)
    about = (call.arguments.get(name) for name in ("command", "path", "pattern"))
    return next((text for text in about if isinstance(text, str) and text.strip()), call.name)
