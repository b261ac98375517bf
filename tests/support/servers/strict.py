# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks requests as the strictest servers do, and says what is wrong."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from support.servers.http import Reply, Seen, document

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPENAI = {
    *("model", "messages", "stream", "stream_options", "tools", "temperature"),
    *("max_tokens", "max_completion_tokens", "reasoning_effort"),
}
_OLLAMA = {"model", "messages", "stream", "options", "tools", "think"}
# Fields that a server accepts only if it sent them itself.
OWN_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")


def openai_faults(body: Mapping[str, Any], own: tuple[str, ...] = ()) -> list[str]:
    """Return what is wrong with a request in OpenAI's format. `own` are the server's own fields."""
    faults = [f"unknown field {name}" for name in body if name not in _OPENAI]
    faults += _tools(body)
    allowed = {"role", "content", "tool_calls", "tool_call_id", *own}
    for message in body["messages"]:
        faults += [f"unknown field {name} in a message" for name in message if name not in allowed]
        faults += _content(message)
        for call in message.get("tool_calls", ()):
            faults += [f"unknown {n}" for n in call if n not in {"id", "type", "function", *own}]
            if call["type"] != "function" or set(call["function"]) != {"name", "arguments"}:
                faults.append(f"not a function: {call}")
            if not _is_object(call["function"]["arguments"]):
                faults.append("arguments are no object")
            if not _NAME.fullmatch(call["function"]["name"]):
                faults.append(f"invalid name {call['function']['name']}")
            if not call["id"]:
                faults.append("a call has no id")
    return faults + _order(
        body["messages"],
        [[call["id"] for call in m.get("tool_calls", ())] for m in body["messages"]],
        [m.get("tool_call_id", "") for m in body["messages"]],
    )


def ollama_faults(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a request in Ollama's format."""
    faults = [f"unknown field {name}" for name in body if name not in _OLLAMA]
    faults += _tools(body)
    allowed = {"role", "content", "thinking", "tool_calls", "tool_name", "images"}
    for message in body["messages"]:
        faults += [f"unknown field {name} in a message" for name in message if name not in allowed]
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"]["arguments"], dict):
                faults.append("arguments are no object")
            if not _NAME.fullmatch(call["function"]["name"]):
                faults.append(f"invalid name {call['function']['name']}")
    return faults + _order(
        body["messages"],
        [[c["function"]["name"] for c in m.get("tool_calls", ())] for m in body["messages"]],
        [m.get("tool_name", "") for m in body["messages"]],
    )


def mistral_faults(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a request for Mistral's servers, in their words."""
    roles = [message["role"] for message in body["messages"]]
    wrong = ("tool", "user") in itertools.pairwise(roles)
    return openai_faults(body) + ["Unexpected role 'user' after role 'tool'"] * wrong


def strict(
    faults: Callable[[Mapping[str, Any]], list[str]], answer: Callable[[Mapping[str, Any]], Reply]
) -> Callable[[Seen], Reply]:
    """Return a server that refuses every request with faults, and answers the others."""

    def reply(seen: Seen) -> Reply:
        found = faults(seen.json)
        if found:
            return document({"error": {"message": "; ".join(found)}}, 422)
        return answer(seen.json)

    return reply


def _content(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    if isinstance(content, str):
        return []
    if message["role"] != "user" or not isinstance(content, list):
        return ["content is no text"]
    return [f"invalid part {part}" for part in content if {*part} != {"type", part["type"]}]


def _tools(body: Mapping[str, Any]) -> list[str]:
    return [
        f"invalid tool {tool}"
        for tool in body.get("tools", ())
        if not _NAME.fullmatch(tool["function"]["name"])
        or tool["function"]["parameters"].get("type") != "object"
    ]


def _is_object(text: object) -> bool:
    try:
        return isinstance(json.loads(text), dict) if isinstance(text, str) else False
    except ValueError:
        return False


def _order(
    messages: list[Mapping[str, Any]], calls: list[list[str]], answers: list[str]
) -> list[str]:
    """Check that turns alternate, and that the results of calls follow them, each once."""
    faults = []
    before = ""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if answers[number] not in waiting:
                faults.append(f"message {number} answers no call")
            else:
                waiting.remove(answers[number])
            continue
        if waiting:
            faults.append(f"message {number} comes before the results of {waiting}")
        if (role == "system" and number) or role not in ("system", "user", "assistant"):
            faults.append(f"message {number} is of {role}")
        if role == before == "user" or (role == "assistant" and before in ("system", "")):
            faults.append(f"message {number}: {role} after {before}")
        if role == "assistant" and not message["content"].strip() and not calls[number]:
            faults.append(f"message {number} is empty")
        if role == "assistant" and messages[number - 1]["role"] == "assistant":
            faults.append(f"message {number} follows another answer")
        waiting, before = list(calls[number]), role
    if messages[-1]["role"] not in ("user", "tool"):
        faults.append("nothing to answer")
    return faults
