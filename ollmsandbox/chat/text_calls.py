# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds tool calls that a model wrote into its answer as text, because its template or its server
does not know how to call tools."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from .messages import ToolCall
from .providers.convert import tool_name
from .providers.json_reader import read_json

_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?\s*\n(?P<inner>.*?)\n?```", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
# The words that begin calls in the templates of well-known models, at the beginning of a line.
_BEGIN = re.compile(
    r"^[ \t]*(<tool_call>|<\|tool_call\|>|<function_call>|<\|python_tag\|>|\[TOOL_CALLS\]"
    r"|<function=[\w.:-]+>)",
    re.MULTILINE,
)
_TAGS = re.compile(
    r"</?tool_call>|<\|/?tool_call\|>|</?function_call>|<\|python_tag\|>|\[TOOL_CALLS\]|<\|eom_id\|>"
)
_FUNCTION = re.compile(
    r"<function=(?P<name>[\w.:-]+)>\s*(?P<inside>.*?)\s*(?:</function>|$)", re.DOTALL
)
_PARAMETER = re.compile(
    r"<parameter=(?P<name>[\w.-]+)>\n?(?P<value>.*?)\n?(?:</parameter>|(?=<parameter=)|$)",
    re.DOTALL,
)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class WrittenCalls:
    # What stands in front of the calls.
    text: str
    calls: tuple[ToolCall, ...]


def find_written_calls(text: str, tools: Collection[str]) -> WrittenCalls | None:
    """Return the calls if they are unmistakable: they name known tools and are whole, and nothing
    follows them. What an answer only quotes, inside a code block or a sentence, is none."""
    fenced = _FENCED.fullmatch(text.strip())
    calls = _from_json(fenced["inner"] if fenced else text, tools)
    if calls:
        return WrittenCalls("", calls)
    begin = _BEGIN.search(text)
    if begin is None or len(_FENCE.findall(text, 0, begin.start())) % 2:
        return None
    written = text[begin.start() :].strip()
    calls = _from_functions(written, tools) or _from_json(_TAGS.sub(" ", written), tools)
    return WrittenCalls(text[: begin.start()].rstrip(), calls) if calls else None


def looks_like_calls(text: str, tools: Collection[str]) -> bool:
    """Tell whether an answer contains what may have been meant as a call."""
    if _BEGIN.search(text) or "<tool_call>" in text:
        return True
    quoted = re.findall(r"[\"'](?:name|tool|function)[\"']\s*:\s*[\"']([\w.:-]+)[\"']", text)
    return any(tool_name(name, tools) in tools for name in quoted)


def _from_functions(text: str, tools: Collection[str]) -> tuple[ToolCall, ...]:
    """Read <function=NAME>...</function>, with parameters in tags or in JSON."""
    found = list(_FUNCTION.finditer(text))
    if not found or _TAGS.sub("", _FUNCTION.sub("", text)).strip():
        return ()
    calls = []
    for one in found:
        name = tool_name(one["name"], tools)
        parameters: Mapping[str, object] = {
            parameter["name"]: _value(parameter["value"])
            for parameter in _PARAMETER.finditer(one["inside"])
        }
        if not parameters and one["inside"]:
            try:
                given = read_json(one["inside"])
            except ValueError:
                return ()
            if not isinstance(given, Mapping):
                return ()
            parameters = given
        if name not in tools:
            return ()
        calls.append(ToolCall("", name, parameters))
    return tuple(calls)


def _value(text: str) -> object:
    """Return a number or a truth value as such, and everything else as text."""
    return read_json(text) if re.fullmatch(r"-?\d{1,15}|true|false", text) else text


def _from_json(text: str, tools: Collection[str]) -> tuple[ToolCall, ...]:
    """Read objects with a name and arguments, one after the other or in a list."""
    calls: list[ToolCall] = []
    try:
        for item in _objects(text):
            call = _call(item, tools)
            if call is None:
                return ()
            calls.append(call)
    except (ValueError, RecursionError):
        return ()
    return tuple(calls)


def _objects(text: str) -> Iterator[object]:
    place = 0
    while match := re.compile(r"[\s,;]*(?=[{\[])").match(text, place):
        _found, place = _DECODER.raw_decode(text, match.end())
        found = read_json(text[match.end() : place])
        yield from found if isinstance(found, list) else [found]
    if text[place:].strip(" \t\r\n,;"):
        raise ValueError("more than JSON")


def _call(item: object, tools: Collection[str]) -> ToolCall | None:
    if not isinstance(item, Mapping):
        return None
    inner = item.get("function")
    item = inner if isinstance(inner, Mapping) else item
    names = {"name", "arguments", "parameters", "id", "type"}
    name, arguments = item.get("name"), item.get("arguments", item.get("parameters"))
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    if (
        not isinstance(name, str)
        or not isinstance(arguments, Mapping)
        or not names.issuperset(item)
    ):
        return None
    wanted = tool_name(name, tools)
    return ToolCall("", wanted, arguments) if wanted in tools else None
