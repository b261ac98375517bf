# SPDX-License-Identifier: GPL-3.0-or-later
"""The server: what a client can ask for, in each revision of the protocol.

Up to 2025-11-25, a client introduces itself once (`initialize`), and we can send it requests of our
own. From 2026-07-28 on, it introduces itself in every request, and a question to its user is an
interim result: the client repeats the request with the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ... import __version__
from .rpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Id, Params, RpcError, RpcPeer

if TYPE_CHECKING:
    # It loads the sandbox and the database: not before the client has its first answer.
    from ...tools.base import Tool
    from .session import AgentSession

HANDSHAKE_REVISIONS = ("2025-06-18", "2025-11-25")
STATELESS_REVISIONS = ("2026-07-28",)
_UNSUPPORTED_REVISION = -32022
_META = "io.modelcontextprotocol/"
_LONGEST_NAME = 60
# The seconds after which a question counts as denied if the client does not come back.
_PATIENCE = 300.0
_INSTRUCTIONS = (
    "These tools work on the project in a sandbox: commands see this computer read-only and "
    "without secrets, and have network access only to hosts that the user allows. Every change is "
    "recorded; the user can review and undo it. Use run_command instead of a shell of your own."
)
_SERVER = {"name": "ollmsandbox", "title": "OLLM Sandbox", "version": __version__}
_CAPABILITIES: Params = {"tools": {}}


@dataclass(frozen=True)
class McpClient:
    """A client as it introduced itself."""

    # Chosen by the client, so it proves nothing.
    name: str
    is_stateless: bool
    # Whether it can show questions to its user.
    can_elicit: bool

    @classmethod
    def introduced(cls, info: object, capabilities: object, *, is_stateless: bool) -> McpClient:
        names = [info.get("title"), info.get("name")] if isinstance(info, Mapping) else []
        given = next((name for name in names if isinstance(name, str) and name.strip()), "")
        name = " ".join("".join(c if c.isprintable() else " " for c in given).split())
        elicits = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
        # An empty object stands for forms; newer clients name them.
        has_forms = isinstance(elicits, Mapping) and (not elicits or "form" in elicits)
        return cls(name[:_LONGEST_NAME] or "An agent", is_stateless, has_forms)


@dataclass
class RunningCall:
    """A call. It is suspended while a client without sessions asks its user."""

    client: McpClient
    progress_token: str | int | None
    task: asyncio.Task[Params] = field(init=False)
    questions: asyncio.Queue[tuple[Params, asyncio.Future[Params]]] = field(
        default_factory=asyncio.Queue
    )


class McpServer:
    def __init__(
        self, open_session: Callable[[McpServer], AgentSession], reader: int, writer: int
    ) -> None:
        """`open_session` is called in a thread: it loads what calls need."""
        self.peer = RpcPeer(reader, writer, self._handle)
        self._open_session = open_session
        self._opening: asyncio.Future[AgentSession] | None = None
        # From `initialize`.
        self._client: McpClient | None = None
        self._calls: dict[str, RunningCall] = {}
        # By the state that the client sends back.
        self._suspended: dict[str, tuple[RunningCall, asyncio.Future[Params]]] = {}

    async def serve(self) -> None:
        """Serve until the client has gone; then kill its commands, and settle their changes."""
        try:
            await self.peer.serve()
        finally:
            tasks = [running.task for running in self._calls.values()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            if self._opening is not None:
                await (await self._opening).close()

    async def elicit(self, call_id: str, question: Params) -> Params | None:
        """Ask the user through the client about a call; return None if it cannot ask."""
        running = self._calls.get(call_id)
        if running is None or not running.client.can_elicit:
            return None
        if not running.client.is_stateless:
            return await self.peer.request("elicitation/create", question)
        answer: asyncio.Future[Params] = asyncio.get_running_loop().create_future()
        running.questions.put_nowait((question, answer))
        try:
            return await asyncio.wait_for(answer, _PATIENCE)
        except TimeoutError:
            return None

    def client_of(self, call_id: str) -> str:
        """Return the name of the client that made a call; "" if the call is over."""
        running = self._calls.get(call_id)
        return running.client.name if running is not None else ""

    # --- requests ------------------------------------------------------------------------------

    async def _handle(self, method: str, params: Params) -> Params:
        meta = params.get("_meta")
        if isinstance(meta, Mapping) and f"{_META}protocolVersion" in meta:
            client = _stateless_client(meta)
        elif method == "initialize":
            return self._initialize(params)
        elif method == "ping":
            return {}
        elif self._client is None:
            raise RpcError(INVALID_REQUEST, "The first request must be `initialize`.")
        else:
            client = self._client
        match method:
            case "server/discover":
                found = self._discover()
            case "tools/list":
                found = await self._list_tools()
            case "tools/call":
                found = await self._call_tool(client, params)
            case _:
                raise RpcError(METHOD_NOT_FOUND, "Method not found.", method[:200])
        if not client.is_stateless:
            return found
        about = {"resultType": "complete", "_meta": {f"{_META}serverInfo": _SERVER}}
        hints = {} if method == "tools/call" else {"ttlMs": 0, "cacheScope": "private"}
        return {**about, **hints, **found}

    def _initialize(self, params: Params) -> Params:
        wanted = params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise RpcError(INVALID_PARAMS, "`protocolVersion` must be a text.")
        self._client = McpClient.introduced(
            params.get("clientInfo"), params.get("capabilities"), is_stateless=False
        )
        self._begin_opening()
        return {
            "protocolVersion": wanted if wanted in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
            "instructions": _INSTRUCTIONS,
        }

    def _discover(self) -> Params:
        self._begin_opening()
        return {
            "supportedVersions": [*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS],
            "capabilities": _CAPABILITIES,
            "instructions": _INSTRUCTIONS,
        }

    async def _list_tools(self) -> Params:
        session = await self._session()
        from .results import tool_document

        # In a thread: to describe themselves, tools examine the machine.
        return {"tools": await asyncio.to_thread(lambda: [*map(tool_document, session.tools)])}

    # --- calls ---------------------------------------------------------------------------------

    async def _call_tool(self, client: McpClient, params: Params) -> Params:
        meta, state = params.get("_meta"), params.get("requestState")
        token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        if not isinstance(token, Id) or isinstance(token, bool):
            token = None
        if state is not None:
            running = self._resume(state, params.get("inputResponses"))
            running.progress_token = token
            return await self._next(running)
        session, arguments = await self._session(), params.get("arguments", {})
        tool = next((tool for tool in session.tools if tool.name == params.get("name")), None)
        if tool is None or not isinstance(arguments, Mapping):
            raise RpcError(INVALID_PARAMS, "Unknown tool, or `arguments` is not an object.")
        running = RunningCall(client, token)
        call_id = f"call-{secrets.token_hex(8)}"
        self._calls[call_id] = running
        running.task = asyncio.ensure_future(
            self._execute(session, running, call_id, tool, arguments)
        )
        running.task.add_done_callback(lambda _task: self._calls.pop(call_id, None))
        return await self._next(running)

    async def _execute(
        self, session: AgentSession, running: RunningCall, call_id: str, tool: Tool, given: Params
    ) -> Params:
        from .results import CallWatch

        def notify(progress: int, message: str) -> None:
            if (token := running.progress_token) is not None:
                told = {"progressToken": token, "progress": progress, "message": message}
                self.peer.notify("notifications/progress", told)

        with CallWatch(tool, session.project, notify) as watch:
            outcome = await session.call(running.client.name, call_id, tool, given, watch.hear)
            return watch.result(outcome)

    async def _next(self, running: RunningCall) -> Params:
        """Return the result of a call, or its next question for a client without sessions."""
        asked = asyncio.ensure_future(running.questions.get())
        try:
            await asyncio.wait({running.task, asked}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.task.cancel()
            await asyncio.wait({running.task})
            raise
        finally:
            asked.cancel()
        if running.task.done():
            return running.task.result()
        question, answer = asked.result()
        state = secrets.token_hex(16)
        self._suspended[state] = running, answer
        if len(self._suspended) > 100:
            # The client never came back for the oldest.
            del self._suspended[next(iter(self._suspended))]
        request = {"method": "elicitation/create", "params": question}
        return {
            "resultType": "input_required",
            "inputRequests": {"permission": request},
            "requestState": state,
        }

    def _resume(self, state: object, responses: object) -> RunningCall:
        found = self._suspended.pop(state, None) if isinstance(state, str) else None
        if found is None:
            raise RpcError(INVALID_PARAMS, "No call waits with this `requestState`.")
        running, answer = found
        given = responses.get("permission") if isinstance(responses, Mapping) else None
        if not answer.done():
            answer.set_result(given if isinstance(given, Mapping) else {})
        return running

    # --- the session ---------------------------------------------------------------------------

    def _begin_opening(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> AgentSession:
        session = await asyncio.to_thread(self._open_session, self)
        # Without an answer there is no window.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(session.connect_window(), 3)
        return session

    async def _session(self) -> AgentSession:
        self._begin_opening()
        assert self._opening is not None
        return await asyncio.shield(self._opening)


def _stateless_client(meta: Params) -> McpClient:
    revision, capabilities = (
        meta.get(f"{_META}{name}") for name in ("protocolVersion", "clientCapabilities")
    )
    if not isinstance(revision, str) or not isinstance(capabilities, Mapping):
        raise RpcError(INVALID_PARAMS, "`_meta` lacks the protocol version or the capabilities.")
    if revision not in STATELESS_REVISIONS:
        supported = {"supported": list(STATELESS_REVISIONS), "requested": revision[:100]}
        raise RpcError(_UNSUPPORTED_REVISION, "Unsupported protocol version.", supported)
    return McpClient.introduced(meta.get(f"{_META}clientInfo"), capabilities, is_stateless=True)
