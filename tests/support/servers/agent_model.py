# SPDX-License-Identifier: GPL-3.0-or-later
"""A model server that speaks the interfaces of Anthropic, OpenAI (chat and responses) and Gemini.

It plays a model that runs shell commands: those of `plan`, one after the other, each with the tool
whose name the plan gives or begins with, and then says DONE. `asked` lists the requests.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

Json = dict[str, Any]
# The names of tools that run shell text, in the agents that we know.
OWN = re.compile(r"bash|shell|exec_command|run_shell_command|shell_command|exec", re.IGNORECASE)
OURS = re.compile(r".*ollmsandbox.*run_command")
# Finds tools that Qwen Code does not offer at first.
_FINDER, _OUR_NAME = "tool_search", "mcp__ollmsandbox__run_command"
SAID = "DONE, as the fake model says"


class Step(NamedTuple):
    """A shell command, and the tool that runs it."""

    tool: re.Pattern[str]
    command: str
    # More arguments of the call.
    more: Mapping[str, object] = MappingProxyType({})


class Ask(NamedTuple):
    path: str
    key: str
    body: Json


class ModelServer:
    """Serves on loopback until it is closed."""

    def __init__(self, plan: Sequence[Step] = ()) -> None:
        self.plan = plan
        self.asked: list[Ask] = []
        # The names of tools that were offered, when a step found none of them.
        self.missing: list[list[str]] = []
        outer = self

        class Handler(_Handler):
            model = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def heard(self, text: str) -> bool:
        """Return whether a request contains the text, such as the result of a call, in small or
        capital letters."""
        return any(text.lower() in json.dumps(asked.body).lower() for asked in self.asked)

    def next_call(self, tools: dict[str, Json], results: int) -> tuple[str, Json] | None:
        """Return the tool to call and its arguments; None if everything was done, or if the request
        offers no tools, as one for a title does."""
        if results >= len(self.plan) or not tools:
            return None
        step = self.plan[results]
        for name, schema in tools.items():
            if step.tool.fullmatch(name):
                return name, {**_arguments(schema, step.command), **step.more}
        self.missing.append(list(tools))
        if _FINDER in tools and len(self.missing) < 3:
            return _FINDER, {"query": f"select:{_OUR_NAME}"}
        return None


def _arguments(schema: Json, command: str) -> Json:
    """Return arguments that a tool accepts, with the command in the first that could take it."""
    known = schema.get("properties", {})
    name = next(n for n in ("command", "cmd", "input", "script") if n in known)
    kind = known[name].get("type")
    made: Json = {name: ["bash", "-c", command] if kind == "array" else command}
    for other in schema.get("required", ()):
        if other not in made:
            made[other] = {"boolean": False, "number": 1, "integer": 1, "array": []}.get(
                known[other].get("type"), "fake"
            )
    return made


class _Handler(BaseHTTPRequestHandler):
    model: ModelServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        sent = self.headers
        key = sent.get("x-api-key") or sent.get("Authorization") or sent.get("x-goog-api-key") or ""
        self.model.asked.append(Ask(path, key, body))
        if path.endswith("/messages"):
            self._stream(_anthropic(self.model, body))
        elif path.endswith("/chat/completions"):
            self._stream(_chat(self.model, body), end="data: [DONE]\n\n")
        elif path.endswith("/responses"):
            self._stream(_responses(self.model, body))
        elif path.endswith((":streamGenerateContent", ":generateContent")):
            chunk = _gemini(self.model, body)
            if "stream" in path:
                self._stream(iter([("", chunk)]))
            else:
                self._send(chunk)
        elif path.endswith((":countTokens", "count_tokens")):
            self._send({"totalTokens": 10, "input_tokens": 10})
        else:
            self._send({"error": {"message": f"no {path}"}}, 404)

    def _send(self, body: Json, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[tuple[str, Json]], end: str = "") -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
        self.wfile.write(end.encode())

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


# --- Anthropic -----------------------------------------------------------------------------------


def _anthropic(model: ModelServer, body: Json) -> Iterator[tuple[str, Json]]:
    parts = [p for m in body["messages"] if isinstance(m["content"], list) for p in m["content"]]
    results = sum(part.get("type") == "tool_result" for part in parts)
    tools = {t["name"]: t.get("input_schema", {}) for t in body.get("tools", ())}
    call = model.next_call(tools, results)
    usage = {"input_tokens": 10, "output_tokens": 1}
    start: Json = {"id": f"msg_{len(model.asked)}", "type": "message", "role": "assistant"}
    start |= {"model": body["model"], "content": [], "usage": usage, "stop_reason": None}
    yield "message_start", {"type": "message_start", "message": start}
    if call is None:
        block: Json = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": SAID}
    else:
        block = {"type": "tool_use", "id": f"toolu_{results}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if call is None else "tool_use"
    ended = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    yield "message_delta", {**ended, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


# --- OpenAI --------------------------------------------------------------------------------------


def _chat(model: ModelServer, body: Json) -> Iterator[tuple[str, Json]]:
    calls = [c for m in body["messages"] for c in m.get("tool_calls") or ()]
    results = sum(call["function"]["name"] != _FINDER for call in calls)
    tools = {t["function"]["name"]: t["function"]["parameters"] for t in body.get("tools", ())}
    call = model.next_call(tools, results)
    delta: Json = {"role": "assistant", "content": SAID}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        wanted = {"index": 0, "id": f"call_{len(calls)}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [wanted]}
    about = {"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    yield "", {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "stop" if call is None else "tool_calls"
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    ended = {"index": 0, "delta": {}, "finish_reason": reason}
    yield "", {**about, "choices": [ended], "usage": usage}


def _responses(model: ModelServer, body: Json) -> Iterator[tuple[str, Json]]:
    items = body["input"] if isinstance(body["input"], list) else []
    results = sum(str(item.get("type", "")).endswith("call_output") for item in items)
    tools: dict[str, Json] = {}
    groups: dict[str, str] = {}
    for tool in body.get("tools", ()):
        if tool.get("type") == "function":
            tools[tool["name"]] = tool.get("parameters", {})
        for inner in tool.get("tools", ()) if tool.get("type") == "namespace" else ():
            name = f"{tool['name']}{inner['name']}"
            tools[name] = inner.get("parameters", {})
            groups[name] = tool["name"]
    call = model.next_call(tools, results)
    item: Json = {"type": "message", "role": "assistant", "id": "msg", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": SAID, "annotations": []}]
    if call is not None:
        item = {"type": "function_call", "id": f"fc_{results}", "call_id": f"call_{results}"}
        item |= {"name": call[0], "arguments": json.dumps(call[1]), "status": "completed"}
        if call[0] in groups:
            item["namespace"] = groups[call[0]]
            item["name"] = call[0].removeprefix(groups[call[0]])
    usage: Json = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    usage["input_tokens_details"] = {"cached_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    about = {"id": f"resp_{len(model.asked)}", "object": "response", "model": body["model"]}
    begun = {**about, "status": "in_progress", "output": []}
    yield "response.created", {"type": "response.created", "response": begun}
    for name in ("response.output_item.added", "response.output_item.done"):
        yield name, {"type": name, "output_index": 0, "item": item}
    done = {**about, "status": "completed", "output": [item], "usage": usage}
    yield "response.completed", {"type": "response.completed", "response": done}


# --- Gemini --------------------------------------------------------------------------------------


def _gemini(model: ModelServer, body: Json) -> Json:
    parts = [part for content in body["contents"] for part in content.get("parts", ())]
    results = sum("functionResponse" in part for part in parts)
    declared = [d for tool in body.get("tools", ()) for d in tool.get("functionDeclarations", ())]
    tools = {
        d["name"]: d.get("parametersJsonSchema") or d.get("parameters") or {} for d in declared
    }
    call = model.next_call(tools, results)
    # Without tools, it is asked which model should do the work.
    text = SAID if tools else '{"complexity_reasoning": "fake", "complexity_score": 1}'
    part: Json = {"text": text}
    if call is not None:
        part = {"functionCall": {"name": call[0], "args": call[1], "id": f"call_{results}"}}
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 1,
            "totalTokenCount": 11,
        },
    }
