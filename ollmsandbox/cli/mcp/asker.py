# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the user about the calls of a client: in our window, else through the client (elicitation).

A client could answer for its user. So it may only be asked what counts once, and only what it can
show as a whole; saved answers and folders outside the project need the window.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ...i18n import pgettext
from ...permission.request import Answer, DenialCount, Fact, PermissionRequest, Unanswered
from ..agent.card import card, details
from .rpc import Params, RpcError

_WIDTH = 100
# A client may cut off more.
_LONGEST = 4000
_SCHEMA: Params = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Answer",
            "enum": ["deny", "allow"],
            "enumNames": ["Deny", "Allow once"],
        }
    },
    "required": ["answer"],
}


@dataclass
class AgentAsker:
    # Returns the name of the client that made a call.
    _client_of: Callable[[str], str]
    _project: str
    # Returns None if there is no window.
    _ask_window: Callable[[PermissionRequest], Awaitable[Answer | None]]
    # Asks through the client, and returns None if it cannot.
    _elicit: Callable[[str, Params], Awaitable[Params | None]] | None
    _denials: DenialCount = field(default_factory=DenialCount)

    async def ask(self, request: PermissionRequest) -> Answer:
        if self._denials.calls_for_rest:
            raise Unanswered("You denied several questions in a row.")
        # Translators: names a line of the card, the agent that asks: "Agent   Claude Code"
        label = pgettext("permission card", "Agent")
        client = Fact(label, self._client_of(request.call_id))
        # Translators: names a line of the card: "Project   ~/src/parser"
        project = Fact(pgettext("permission card", "Project"), self._project)
        request = replace(request, facts=(client, project, *request.facts))
        answer = await self._ask_window(request) or await self._ask_client(request)
        self._denials.note(answer)
        return answer

    async def _ask_client(self, request: PermissionRequest) -> Answer:
        lines = [*card(request, _WIDTH)[1:], *details(request, _WIDTH)]
        message = "\n".join(lines)
        if self._elicit is None or request.for_project or len(message) > _LONGEST:
            raise Unanswered("This can only be answered in the window.")
        try:
            given = await self._elicit(
                request.call_id, {"message": message, "requestedSchema": _SCHEMA}
            )
        except RpcError as error:
            raise Unanswered(str(error)) from error
        match given:
            case {"action": "accept", "content": {"answer": "allow"}}:
                return Answer.ALLOW
            case {"action": "accept" | "decline"}:
                return Answer.DENY
            case _:
                raise Unanswered("The client did not answer.")
