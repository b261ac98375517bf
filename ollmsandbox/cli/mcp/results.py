# SPDX-License-Identifier: GPL-3.0-or-later
"""Tools and the results of calls as documents of the protocol, and the progress of a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from ...chat import events
from ...permission.request import Source
from ...text.ansi import harmless
from ...tools.base import Outcome, Tool
from ...tools.run_command import RunCommand
from ..changes import document, in_order
from .rpc import Params

# Seconds between two looks at the output, and between two notifications without new output.
_LOOK, _QUIET = 0.5, 5.0
_LINES, _KEPT = 5, 2000
_NOBODY = (
    "Nobody could be asked. To allow it, the user opens OLLM Sandbox (`ollmsandbox`), which then "
    "shows the question; make the call again."
)

# By tool: its title, whether it only reads, whether the same call again changes nothing more, and
# whether it can reach others.
_ANNOTATIONS = {
    "run_command": ("Run a command in the sandbox", False, False, True),
    "read_file": ("Read a file", True, True, False),
    "search": ("Search the project", True, True, False),
    "edit_file": ("Edit a file", False, False, False),
    "write_file": ("Write a file", False, True, False),
    "list_changes": ("List recorded changes", True, True, False),
    "show_diff": ("Show what a run changed", True, True, False),
    "apply_changes": ("Apply changes", False, True, False),
    "discard_changes": ("Discard pending changes", False, True, False),
    "undo_run": ("Undo a run", False, True, False),
}


def _texts(*names: str) -> dict[str, object]:
    return {name: {"type": "string"} for name in names}


def _objects(properties: dict[str, object]) -> dict[str, object]:
    item = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "array", "items": item}


# Some agents show their model this and not the text, so it has the text, too.
_RUN_RESULT: dict[str, object] = {
    **_texts("output"),
    "run_id": {"type": ["string", "null"], "description": "null if nothing was changed"},
    "exit_status": {"type": ["integer", "null"], "description": "null if the command did not run"},
    "stopped": {"type": ["string", "null"], "description": "why the command was ended early"},
    "changes": _objects(_texts("path", "kind", "state")),
    "hosts": _objects({**_texts("host"), "allowed": {"type": "boolean"}}),
    "refused": {
        "type": "array",
        "items": {"type": "string"},
        "description": "what the sandbox or the user refused",
    },
}


def tool_document(tool: Tool) -> Params:
    title, only_reads, is_idempotent, is_open = _ANNOTATIONS[tool.name]
    hints: dict[str, object] = {"title": title, "readOnlyHint": only_reads}
    if not only_reads:
        hints |= {"destructiveHint": True, "idempotentHint": is_idempotent}
    found: dict[str, object] = {
        "name": tool.name,
        "title": title,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": {**hints, "openWorldHint": is_open},
    }
    if tool.name == RunCommand.name:
        properties = {"properties": _RUN_RESULT, "required": list(_RUN_RESULT)}
        found["outputSchema"] = {"type": "object", **properties}
    return found


class CallWatch:
    """Tells the client about the progress of a call, and makes its result."""

    def __init__(self, tool: Tool, project: str, notify: Callable[[int, str], None]) -> None:
        """`notify` is called with a number that grows, and the last lines of output."""
        self._tool = tool
        self._project = project
        self._notify = notify
        self._tail = b""
        self._is_asking = self._is_new = False
        # Whether a question was denied because nobody could be asked.
        self._lacked_user = False
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.ensure_future(self._report())
        return self

    def __exit__(self, *_raised: object) -> None:
        assert self._task is not None
        self._task.cancel()

    def hear(self, event: events.ChatEvent) -> None:
        match event:
            case events.CommandOutput(_, _, data):
                self._tail = (self._tail + data)[-_KEPT:]
                self._is_new = True
            case events.PermissionAsked():
                self._is_asking = self._is_new = True
            case events.PermissionAnswered(_, verdict):
                self._is_asking = False
                self._lacked_user |= verdict.source is Source.NOBODY
            case events.CommandStarted():
                self._is_new = True

    async def _report(self) -> None:
        began = told = time.monotonic()
        number = 0
        while True:
            await asyncio.sleep(_LOOK)
            now = time.monotonic()
            if self._is_new or now - told >= _QUIET:
                self._is_new, told, number = False, now, number + 1
                self._notify(number, self._message(now - began))

    def _message(self, seconds: float) -> str:
        if self._is_asking:
            return "Waiting for the user's answer."
        lines = harmless(self._tail.decode("utf-8", "replace")).split("\n")
        shown = [line for line in lines if line.strip()][-_LINES:]
        return "\n".join(shown) or f"Running for {seconds:.0f} seconds."

    def result(self, outcome: Outcome) -> Params:
        text = f"{outcome.text}\n{_NOBODY}" if self._lacked_user else outcome.text
        content: list[Params] = [{"type": "text", "text": text}]
        for picture in outcome.pictures:
            shown = {"data": picture.in_base64, "mimeType": picture.media_type}
            content.append({"type": "image", **shown})
        # A command that ran has a result, whatever its exit status is.
        found: dict[str, object] = {
            "content": content,
            "isError": not outcome.ok and outcome.result is None,
        }
        if self._tool.name == RunCommand.name:
            found["structuredContent"] = self._structured(outcome, text)
        return found

    def _structured(self, outcome: Outcome, text: str) -> Params:
        result, report = outcome.result, outcome.report
        changes = in_order(report.changes if report else ())[:100]
        documents = [document(item, self._project) for item in changes]
        shown = ("path", "kind", "state")
        denials = [outcome.text] if outcome.was_denied else []
        return {
            "output": text,
            "run_id": outcome.run_id or None,
            "exit_status": result.exit_code if result else None,
            "stopped": outcome.stop.sentence if outcome.stop else None,
            "changes": [{name: one[name] for name in shown} for one in documents],
            "hosts": [{"host": str(use), "allowed": bool(use.allowed)} for use in outcome.hosts],
            "refused": [*(result.refusals if result else ()), *denials],
        }
