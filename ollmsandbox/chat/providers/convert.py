# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert our messages and tools for servers, and their tool calls for us."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from ...tools.base import Picture
from ..messages import Message, Role, ToolCall, ToolSpec
from .json_reader import inside, read_arguments, read_object
from .mask import KeyMask

_ALPHABET = string.ascii_letters + string.digits
# What strict servers accept as the name of a tool, and as the id of a call.
_VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# What models put around a name: functions.run_command:0, run_command<|channel|>json.
_AROUND_NAME = re.compile(
    r"(?:(?:functions?|tools?|default_api|assistant|commentary|to=functions)[.:/]+)?"
    r"(?P<name>[\w-]+?)(?::\d+)?(?:\s*<\|.*|\s*[({].*)?",
    re.DOTALL,
)
# Fields of a call that its server may expect back: Gemini's signature, LiteLLM's own.
_CALL_FIELDS = ("extra_content", "provider_specific_fields")


# Said in the model's name, see `with_answers`.
_UNDERSTOOD = "Understood."
# In front of pictures.
_SHOWN = "[OLLM Sandbox] This is what the file that you read shows."


class ReturnThinking(Enum):
    """Which thinking a server gets back, of what came from it."""

    NEVER = "never"
    # Templates drop that of earlier turns.
    THIS_TURN = "this turn"
    ALWAYS = "always"


def model_origin(kind: str, root: str, model: str) -> str:
    """Return what identifies a model of a server."""
    return hashlib.sha256(f"{kind}\n{root}\n{model}".encode()).hexdigest()[:16]


def returned(messages: Sequence[Message], origin: str, thinking: ReturnThinking) -> list[Message]:
    """Return the messages with only that thinking and those fields that go back to their origin.
    Signatures of another model are refused, and so are fields that a server does not know."""
    last_said = max((n for n, m in enumerate(messages) if m.role is Role.USER), default=-1)
    found = []
    for number, message in enumerate(messages):
        fields = message.fields
        # Most messages stay as they are: copying each took 40 % of the time of 300 steps.
        if message.role is not Role.ASSISTANT:
            pass
        elif fields is None or fields.origin != origin or thinking is ReturnThinking.NEVER:
            if fields or message.thinking or any(call.fields for call in message.calls):
                calls = tuple(replace(call, fields={}) for call in message.calls)
                message = replace(message, thinking="", fields=None, calls=calls)
        elif message.thinking or fields.thinking:
            is_old = thinking is ReturnThinking.THIS_TURN and number < last_said
            if is_old or not fields.thinking:
                message = replace(message, thinking="", fields=replace(fields, thinking=""))
        found.append(message)
    return found


def valid_name(name: str) -> str:
    """Return a name that every server accepts. Sent as it is, a garbled one would make a strict
    server refuse the whole conversation for ever."""
    return name if _VALID.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def valid_id(id_: str) -> str:
    if _VALID.fullmatch(id_):
        return id_
    number = int.from_bytes(hashlib.sha256(id_.encode("utf-8", "replace")).digest())
    digits = [_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(9)]
    return "".join(digits)


def tool_name(given: str, known: Collection[str]) -> str:
    """Return the tool that a model means, or else what it wrote, as a valid name."""
    if given in known:
        return given
    found = _AROUND_NAME.fullmatch(given.strip().strip("\"'`"))
    if found and found["name"] in known:
        return found["name"]
    return valid_name(given)


def call_fields(given: object, mask: KeyMask) -> Mapping[str, object]:
    return masked_fields({name: inside(given, name) for name in _CALL_FIELDS}, mask)


def masked_fields(fields: Mapping[str, object], mask: KeyMask) -> Mapping[str, object]:
    """Return the fields that have a value, without the key."""
    filled = {name: value for name, value in fields.items() if value}
    return read_object(mask.whole(json.dumps(filled))) if filled else {}


def pair_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without calls that have no result, results without a call, and empty
    messages. A session may have been stopped anywhere, and servers refuse all of these."""
    results = {message.call_id for message in messages if message.role is Role.TOOL}
    open_calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.call_id not in open_calls:
                continue
            open_calls.discard(message.call_id)
        elif message.role is Role.ASSISTANT:
            calls = tuple(call for call in message.calls if call.id in results)
            open_calls.update(call.id for call in calls)
            if len(calls) < len(message.calls):
                message = replace(message, calls=calls)
            if not calls and not message.text.strip():
                continue
        kept.append(message)
    return kept


def with_pictures(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the pictures of results in a message of the user after them: servers
    accept them only there, where the user's own are. Only the last are sent, as they are large."""
    left = {id(p) for p in [p for message in messages for p in message.pictures][-4:]}
    found: list[Message] = []
    waiting: list[Picture] = []

    def show(said: Message) -> Message:
        text = "\n\n".join(filter(None, (_SHOWN, said.text)))
        pictures = (*waiting, *said.pictures)
        waiting.clear()
        return replace(said, text=text, pictures=pictures)

    for message in messages:
        if message.pictures:
            kept = tuple(picture for picture in message.pictures if id(picture) in left)
            message = replace(message, pictures=kept)
        if waiting and message.role is Role.USER:
            message = show(message)
        elif waiting and message.role is not Role.TOOL:
            found.append(show(Message(Role.USER, "")))
        if message.role is Role.TOOL:
            waiting += message.pictures
            message = replace(message, pictures=()) if message.pictures else message
        found.append(message)
    if waiting:
        found.append(show(Message(Role.USER, "")))
    return found


def without_pictures(messages: Sequence[Message]) -> list[Message]:
    return [replace(m, pictures=()) if m.pictures else m for m in messages]


def with_answers(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with a reply between each result and a message of the user after it."""
    found: list[Message] = []
    for message in messages:
        if message.role is Role.USER and found and found[-1].role is Role.TOOL:
            found.append(Message(Role.ASSISTANT, _UNDERSTOOD))
        found.append(message)
    return found


def arguments_object(call: ToolCall) -> Mapping[str, object]:
    """Return the arguments as an object, because servers parse them again."""
    return call.arguments if isinstance(call.arguments, Mapping) else {"not_json": call.arguments}


def tool_list(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def new_call_id() -> str:
    """Return nine letters and digits, as some models' templates require."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


def read_call(
    id_: str,
    name: str,
    arguments: object,
    fields: Mapping[str, object],
    mask: KeyMask,
    tools: Iterable[ToolSpec],
) -> ToolCall:
    """Return a call for us. Where its id could not be sent back, it has none: the conversation
    gives it one, as it does if the server has used the id before."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(
        id_ if len(id_) <= 64 and id_.isprintable() else "",
        tool_name(mask.whole(name), {tool.name for tool in tools}),
        read_arguments(mask.whole(text)),
        fields,
    )
