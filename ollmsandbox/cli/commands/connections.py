# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox connections`"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from dataclasses import replace

from ...chat.providers.base import Effort, ModelInfo, Price, ProviderError
from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import Connection, ServerKind
from ...errors import OllmSandboxError
from ...loop import run
from ...paths import Paths
from ...project.short_list import counted
from ...text.visible import visible_line
from ..streams import print_notices

_MOST_MODELS = 20


def connections(given: argparse.Namespace) -> int:
    store = ConnectionStore(Paths.from_environ(os.environ), os.environ)
    try:
        return run(_act(store, given))
    finally:
        print_notices(*store.take_notices())


async def _act(store: ConnectionStore, given: argparse.Namespace) -> int:
    if given.action == "list":
        _list(store, as_json=given.json)
    elif given.action == "add":
        await _add(store, given)
    elif given.action == "remove":
        await store.remove(given.name)
        _say(given, {"removed": given.name}, f"{given.name} was removed.")
    elif given.action == "default":
        store.use(given.name, given.model)
        _say(given, {"default": given.name}, f"{given.name} is the default connection now.")
    elif given.action == "test":
        await _test(store, given)
    else:
        await _find(as_json=given.json)
    return 0


def _list(store: ConnectionStore, *, as_json: bool) -> None:
    found, default = store.all(), store.default()
    if as_json:
        chosen = default.name if default else None
        print(json.dumps({"default": chosen, "connections": [_document(c) for c in found]}))
        return
    if not found:
        print("There are no connections yet. `ollmsandbox connections find` looks for servers.")
    width = max((len(connection.name) for connection in found), default=0)
    for connection in found:
        mark = "*" if default is not None and connection.name == default.name else " "
        notes = [visible_line(connection.model)] if connection.model else []
        if connection.key.value != "none":
            notes.append(f"key in the {connection.key.value}")
        notes += _settings(connection)
        tail = f"  ({', '.join(notes)})" if notes else ""
        name = connection.name.ljust(width)
        print(f"{mark} {name}  {connection.kind.value}  {connection.address}{tail}")


def _settings(connection: Connection) -> list[str]:
    """Return the settings that differ from the defaults, in words."""
    found = [
        ("context {:,}", connection.room),
        ("answer {:,}", connection.answer),
        ("effort {}", connection.effort.value if connection.effort else None),
        ("temperature {:g}", connection.temperature),
        (
            "connect {:g} s",
            None if connection.connect == Connection.connect else connection.connect,
        ),
        ("idle {:g} s", None if connection.idle == Connection.idle else connection.idle),
    ]
    words = [text.format(value) for text, value in found if value is not None]
    if connection.price is not None:
        words.append(f"price {connection.price.prompt:g} and {connection.price.reply:g}")
    words += [f"seeing {visible_line(model)}" for model in connection.seeing]
    # Their values may be secret.
    return words + [f"header {name}" for name, _value in connection.headers]


async def _add(store: ConnectionStore, given: argparse.Namespace) -> None:
    key = _read_key() if given.key_from_stdin else None
    kind = ServerKind(given.kind) if given.kind else await _find_kind(given.address, key)
    before = next((c for c in store.all() if c.name == given.name), None)
    wanted = Connection(given.name, kind, given.address)
    if before is not None and given.reset:
        wanted = replace(wanted, model=before.model, key=before.key)
    elif before is not None:
        wanted = replace(before, kind=kind, address=given.address)
    if given.model:
        wanted = replace(wanted, model=given.model)
    wanted = _with_settings(wanted, given)
    connection = await store.put(wanted, key=key)
    _say(given, _document(connection), f"{connection.name}: {kind.value}, {connection.address}")


def _with_settings(connection: Connection, given: argparse.Namespace) -> Connection:
    """Return the connection with the settings that were given; the others stay as they are."""
    settings: dict[str, object] = {
        "room": given.context and int(given.context),
        "answer": given.answer and int(given.answer),
        "temperature": given.temperature,
        "connect": given.connect_timeout,
        "idle": given.idle_timeout,
        "price": Price(*given.price) if given.price else None,
        "headers": tuple(map(_header, given.header)) if given.header else None,
        "seeing": tuple(given.seeing) if given.seeing else None,
    }
    chosen = {name: value for name, value in settings.items() if value is not None}
    if given.effort:
        chosen["effort"] = None if given.effort == "default" else Effort(given.effort)
    return replace(connection, **chosen)  # type: ignore[arg-type]


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


async def _find_kind(address: str, key: str | None) -> ServerKind:
    """Find the kind of a server by asking it; raise if it does not answer."""
    from ...chat.providers.discover import look_at_server  # the other commands do not need it

    async def source() -> str:
        return key or ""

    try:
        return (await look_at_server("", address, key=source)).kind
    except ProviderError as error:
        raise OllmSandboxError(
            f"Cannot find out what kind of server this is. {error.message}",
            "Use --kind ollama or --kind openai.",
        ) from None


async def _test(store: ConnectionStore, given: argparse.Namespace) -> None:
    connection = store.find(given.name) if given.name else store.default()
    if connection is None:
        raise OllmSandboxError("There is no default connection.", "Name the connection to test.")
    models = await store.server(connection).models()
    if given.json:
        print(json.dumps({"name": connection.name, "models": [_model(m) for m in models]}))
        return
    print(f"{connection.name} answers and has {counted(len(models), 'model')}.")
    for model in models[:_MOST_MODELS]:
        room = f"  ({model.context_length:,} tokens)" if model.context_length else ""
        tools = "  no tools" if model.can_call_tools is False else ""
        print(f"  {visible_line(model.name)}{room}{tools}")
    if len(models) > _MOST_MODELS:
        print(f"  and {len(models) - _MOST_MODELS} more")


async def _find(*, as_json: bool) -> None:
    from ...chat.providers.discover import find_servers

    found = await find_servers()
    if as_json:
        servers = [
            {
                "name": one.name,
                "kind": one.kind.value,
                "address": one.address,
                "models": [model.name for model in one.models],
            }
            for one in found
        ]
        print(json.dumps({"servers": servers}))
        return
    if not found:
        print("Found no model server on this computer.")
    for one in found:
        print(f"{one.name}: {one.address}, {counted(len(one.models), 'model')}")
        name = one.name.lower().replace(" ", "-")
        print(f"  ollmsandbox connections add {name} {one.address} --kind {one.kind.value}")


def _read_key() -> str:
    key = getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        raise OllmSandboxError("There is no key on standard input.")
    return key.strip()


def _document(connection: Connection) -> dict[str, object]:
    return {
        "name": connection.name,
        "kind": connection.kind.value,
        "address": connection.address,
        "model": connection.model,
        "key": connection.key.value,
        "context": connection.room,
        "answer": connection.answer,
        "effort": connection.effort.value if connection.effort else None,
        "temperature": connection.temperature,
        # Their values may be secret.
        "headers": [name for name, _ in connection.headers],
        "seeing": list(connection.seeing),
        "price": [connection.price.prompt, connection.price.reply] if connection.price else None,
        "connect_timeout": connection.connect,
        "idle_timeout": connection.idle,
    }


def _model(model: ModelInfo) -> dict[str, object]:
    return {
        "name": model.name,
        "context_length": model.context_length,
        "can_call_tools": model.can_call_tools,
        "is_loaded": model.is_loaded,
    }


def _say(given: argparse.Namespace, document: dict[str, object], words: str) -> None:
    print(json.dumps(document) if given.json else words)
