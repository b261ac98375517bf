# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the sessions of other agents, which `ollmsandbox mcp` runs, and asks their questions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gi.repository import Gio, GLib

from ...errors import OllmSandboxError
from ...permission.bus import INTERFACE, PATH, XML, BusError, request_from_json
from ...permission.request import Answer, DenialCount
from ...text.visible import printable_line
from ..permission.asker import WindowAsker
from ..widgets.tasks import Tasks

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession
    from ..sessions.sessions import Sessions

_MOST_SESSIONS = 50


@dataclass
class _Followed:
    sender: str
    session: OpenSession
    # Those in its project: an agent that connects again does not begin anew.
    denials: DenialCount
    # The open questions, by id.
    asking: dict[str, asyncio.Task[Answer]] = field(default_factory=dict)


class AgentService:
    """Serves the D-Bus interface. A program can only show and ask about its own session."""

    def __init__(
        self,
        bus: Gio.DBusConnection,
        sessions: Callable[[], Sessions],
        asker: WindowAsker,
        ended: Callable[[str], object],
    ) -> None:
        """`sessions` is called when the first program comes, and `ended` when one has gone."""
        self._bus = bus
        self._sessions = sessions
        self._asker = asker
        self._ended = ended
        self._tasks = Tasks(print)
        self._followed: dict[str, _Followed] = {}
        self._denials: dict[str, DenialCount] = {}
        # By program: what it sends is handled in order; and what notices when it has gone.
        self._senders: dict[str, tuple[asyncio.Lock, int]] = {}
        interface = Gio.DBusNodeInfo.new_for_xml(XML).interfaces[0]
        self._id = bus.register_object(PATH, interface, self._on_call, None, None)

    def close(self) -> None:
        self._bus.unregister_object(self._id)
        for _turn, watch in self._senders.values():
            Gio.bus_unwatch_name(watch)
        self._tasks.cancel()

    def _on_call(
        self,
        _bus: Gio.DBusConnection,
        sender: str,
        _path: str,
        _interface: str,
        method: str,
        given: GLib.Variant,
        invocation: Gio.DBusMethodInvocation,
    ) -> None:
        if sender not in self._senders:
            watch = Gio.bus_watch_name_on_connection(
                self._bus, sender, Gio.BusNameWatcherFlags.NONE, None, self._on_gone
            )
            self._senders[sender] = (asyncio.Lock(), watch)
        turn, _watch = self._senders[sender]
        self._tasks.start(self._answer(sender, turn, method, given.unpack(), invocation))

    async def _answer(
        self,
        sender: str,
        turn: asyncio.Lock,
        method: str,
        given: tuple[str, ...],
        invocation: Gio.DBusMethodInvocation,
    ) -> None:
        try:
            if any(len(text) > 4 << 20 for text in given):
                raise BusError("The message is too long.")
            async with turn:
                waiting = await self._handle(sender, method, *given)
            # The user takes any time to answer.
            found = await waiting if waiting is not None else None
        except (OllmSandboxError, BusError) as error:
            invocation.return_dbus_error(f"{INTERFACE}.Refused", str(error))
        else:
            value = None if found is None else GLib.Variant("(s)", (found,))
            invocation.return_value(value)

    async def _handle(
        self, sender: str, method: str, session_id: str, *given: str
    ) -> Coroutine[object, object, str] | None:
        """Do what the program asks for; return what is left to wait for."""
        if method == "Follow":
            await self._follow(sender, session_id, *given)
            return None
        followed = self._followed.get(session_id)
        if followed is None or followed.sender != sender:
            raise BusError("This is not your session.")
        if method == "Ask":
            return self._ask(followed, *given)
        if method == "Withdraw":
            if task := followed.asking.get(given[0]):
                task.cancel()
        else:
            await self._tell(followed, *given)
        return None

    async def _follow(self, sender: str, session_id: str, agent: str, project: str) -> None:
        if len(self._followed) >= _MOST_SESSIONS:
            raise BusError("There are too many sessions.")
        name = printable_line(agent)[:60]

        def stop(call_id: str) -> None:
            told = GLib.Variant("(ss)", (session_id, call_id))
            self._bus.emit_signal(sender, PATH, INTERFACE, "Stop", told)

        session = await self._sessions().follow(session_id, name, project, stop)
        denials = self._denials.setdefault(project, DenialCount())
        self._followed[session_id] = _Followed(sender, session, denials)
        if sender not in self._senders:
            # It has gone meanwhile.
            self._forget(session_id)

    # --- events --------------------------------------------------------------------------------

    async def _tell(self, followed: _Followed, text: str) -> None:
        # Imported here: the first frame does not need it.
        from ...chat.events import CallBegan, CommandOutput, CommandStarted, FilesChanged
        from ...chat.messages import ToolCall
        from ...sandbox.monitor import EventKind, FileEvent
        from ...tools.base import Stream

        session, document = followed.session, _parsed(text)
        match document:
            case {"event": "call", "call_id": str(id_), "tool": str(tool), "arguments": given}:
                arguments = given if isinstance(given, Mapping) else str(given)
                described = str(document.get("description", ""))
                session.forget_interrupted(id_)
                session.hear(CallBegan(ToolCall(id_, tool, arguments), described))
            case {"event": str(kind), "call_id": str(id_)} if session.entry_of(id_) is not None:
                match document:
                    case {"event": "started"}:
                        session.hear(CommandStarted(id_, 0, None))
                    case {"event": "output", "text": str(said)}:
                        session.hear(CommandOutput(id_, Stream.STDOUT, said.encode()))
                    case {"event": "files", "path": str(path), "count": int(count)}:
                        session.hear(FilesChanged(id_, FileEvent(EventKind.UPDATED, path, count)))
                    case {"event": "result"}:
                        await self._sessions().show_end(session, id_)
                    case _:
                        raise BusError(f"Unknown event: {kind[:50]}")
            case _:
                raise BusError("Unknown event.")

    # --- questions -----------------------------------------------------------------------------

    async def _ask(self, followed: _Followed, text: str) -> str:
        """Return the user's answer, or "" if nobody gives one."""
        from ...chat.events import PermissionAnswered, PermissionAsked
        from ...permission.request import Source, Unanswered, Verdict

        request, session = request_from_json(text), followed.session
        is_own = request.session_id == session.id and session.entry_of(request.call_id) is not None
        if not is_own or request.id in followed.asking:
            raise BusError("This is not a question about your own call.")
        open_questions = sum(len(one.asking) for one in self._followed.values())
        # A user who is flooded with questions allows anything to get rid of them.
        if open_questions >= 20 or followed.denials.calls_for_rest:
            return ""
        session.hear(PermissionAsked(request.call_id, request))
        task = followed.asking[request.id] = asyncio.ensure_future(self._asker.ask(request))
        answer, source = Answer.DENY, Source.NOBODY
        try:
            await asyncio.wait({task})
            if not task.cancelled():
                answer, source = task.result(), Source.PERSON
                followed.denials.note(answer)
        except Unanswered:
            pass  # that is the answer
        finally:
            task.cancel()
            del followed.asking[request.id]
            verdict = Verdict(request, answer, source, time.time())
            session.hear(PermissionAnswered(request.call_id, verdict))
        return "" if source is Source.NOBODY else answer.value

    def _on_gone(self, _bus: Gio.DBusConnection, sender: str) -> None:
        Gio.bus_unwatch_name(self._senders.pop(sender)[1])
        for session_id, followed in list(self._followed.items()):
            if followed.sender == sender:
                self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        async def close() -> None:
            await self._sessions().close(session_id)
            self._ended(session_id)

        for task in self._followed.pop(session_id).asking.values():
            task.cancel()
        self._tasks.start(close())


def _parsed(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BusError("The event is not JSON.") from error
    return found if isinstance(found, dict) else {}
