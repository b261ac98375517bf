# SPDX-License-Identifier: GPL-3.0-or-later
"""A conversation as JSON, one event per line. Other programs rely on these names, which
docs/agent-json.md lists."""

from __future__ import annotations

import codecs
import json
import sys
from dataclasses import asdict

from ...chat import events
from ...chat.events import ChatEvent
from ...chat.messages import ToolCall
from ...permission.request import PermissionRequest
from ...tools.base import Outcome, Stream
from ...tools.todo import NAME as PLAN
from ...tools.todo import read_steps
from ..changes import report_document

_DECODER = codecs.getincrementaldecoder("utf-8")


class JsonPrinter:
    def __init__(self, project: str) -> None:
        self.project = project
        # A character may be split between two events.
        self._decoders: dict[tuple[str, Stream], codecs.IncrementalDecoder] = {}

    def hear(self, event: ChatEvent) -> None:
        document = self.document(event)
        if document is not None:
            self.write(document)

    def write(self, document: dict[str, object]) -> None:
        sys.stdout.write(f"{json.dumps(document)}\n")
        sys.stdout.flush()

    def document(self, event: ChatEvent) -> dict[str, object] | None:
        match event:
            case events.StateChanged(state):
                return {"event": "state", "state": state.value}
            case events.MessageAdded(message):
                return {
                    "event": "message",
                    "role": message.role.value,
                    "text": message.text,
                    "partial": message.partial,
                    "calls": [_call(call) for call in message.calls],
                }
            case events.TextGrew(text):
                return {"event": "text", "text": text}
            case events.ThinkingGrew(text):
                return {"event": "thinking", "text": text}
            case events.ReplyWithdrawn():
                return {"event": "withdrawn"}
            case events.Notice(text):
                return {"event": "notice", "text": text}
            case events.InstructionsRead(files):
                return {"event": "instructions", "files": [asdict(file) for file in files]}
            case events.QueueChanged(texts):
                return {"event": "waiting", "texts": list(texts)}
            case events.Retrying(seconds, why):
                return {"event": "retrying", "seconds": seconds, "why": why}
            case events.TokensUsed(prompt, reply, room, cost):
                return {
                    "event": "spent",
                    "prompt": prompt,
                    "reply": reply,
                    "room": room,
                    "cost": cost,
                }
            case events.TurnEnded(end, why):
                return {"event": "end", "end": end.name.lower(), "why": why or end.value}
            case _:
                return self._of_call(event)

    def _of_call(self, event: ChatEvent) -> dict[str, object] | None:
        match event:
            case events.CallQueued(call, description, own):
                return {"event": "queued", **_call(call), "description": description, "own": own}
            case events.CallBegan(call, description, own):
                return {"event": "call", **_call(call), "description": description, "own": own}
            case events.PermissionAsked(call_id, request):
                return {"event": "asking", "call_id": call_id, **_request(request)}
            case events.PermissionAnswered(call_id, verdict):
                given = {"answer": verdict.answer.value, "source": verdict.source.value}
                return {"event": "answered", "call_id": call_id, **given}
            case events.QuestionAsked(call_id, question):
                return {
                    "event": "question",
                    "call_id": call_id,
                    "id": question.id,
                    "question": question.text,
                    "choices": list(question.choices),
                }
            case events.QuestionAnswered(call_id, answer):
                return {"event": "reply", "call_id": call_id, "text": answer}
            case events.CommandStarted(call_id, _, plan):
                return {"event": "started", "call_id": call_id, "sandboxed": plan is not None}
            case events.CommandOutput(call_id, stream, data):
                decoder = self._decoders.setdefault((call_id, stream), _DECODER("replace"))
                text = decoder.decode(data)
                return {"event": "output", "call_id": call_id, "stream": stream.value, "text": text}
            case events.FilesChanged(call_id, change):
                return {
                    "event": "files",
                    "call_id": call_id,
                    "path": change.path,
                    "count": change.count,
                }
            case events.CallEnded(call, outcome):
                return {"event": "result", "call_id": call.id, **self._outcome(call, outcome)}
            case events.CallSettled(call_id, report):
                return {
                    "event": "settled",
                    "call_id": call_id,
                    "run_id": report.run_id,
                    **report_document(report, self.project),
                }
            case _:
                return None

    def _outcome(self, call: ToolCall, outcome: Outcome) -> dict[str, object]:
        result = outcome.result
        has_plan = call.name == PLAN and outcome.ok
        return {
            "ok": outcome.ok,
            "text": outcome.text,
            "run_id": outcome.run_id or None,
            "exit_code": result.exit_code if result else None,
            "hosts": [use.document() for use in outcome.hosts],
            **report_document(outcome.report, self.project),
            "plan": [asdict(step) for step in read_steps(call.arguments)] if has_plan else None,
        }


def _call(call: ToolCall) -> dict[str, object]:
    arguments = call.arguments
    shown = arguments if isinstance(arguments, str) else {**arguments}
    return {"call_id": call.id, "tool": call.name, "arguments": shown}


def _request(request: PermissionRequest) -> dict[str, object]:
    return {
        "id": request.id,
        "tool": request.tool,
        "question": request.question,
        "subject": request.subject,
        "network": request.network,
        "sandboxed": request.sandboxed,
        "facts": [{"label": fact.label, "value": fact.value} for fact in request.facts],
        "sees": list(request.sees),
        "notice": request.notice,
        "answers": [answer.value for answer in request.answers],
    }
