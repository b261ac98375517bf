# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out what kind of model server is at an address, or at the default ports of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .base import ModelInfo, ProviderError
from .client import Client, KeySource
from .connections_file import Connection, ServerKind
from .ollama import ollama_names
from .openai import OpenAIServer

# By their default ports.
KNOWN_SERVERS = {
    11434: "Ollama",
    8080: "llama.cpp",
    8000: "vLLM",
    1234: "LM Studio",
    1337: "Jan",
    5000: "text-generation-webui",
    5001: "KoboldCpp",
    30000: "SGLang",
}


@dataclass(frozen=True)
class FoundServer:
    name: str
    kind: ServerKind
    address: str
    models: tuple[ModelInfo, ...]


async def find_servers(
    known: Mapping[int, str] = KNOWN_SERVERS, *, patience: float = 2.0
) -> list[FoundServer]:
    """Try all ports at once. Ignore what does not answer soon or is not a model server."""
    found = await asyncio.gather(*(_try(*one, patience) for one in known.items()))
    return [one for one in found if one is not None]


async def _try(port: int, name: str, patience: float) -> FoundServer | None:
    try:
        # Also ends a server that sends a byte now and then.
        async with asyncio.timeout(patience * 2):
            return await look_at_server(name, f"http://127.0.0.1:{port}", patience=patience)
    except (ProviderError, TimeoutError):
        return None


async def look_at_server(
    name: str, address: str, *, key: KeySource | None = None, patience: float = 15.0
) -> FoundServer:
    """Return what kind of server is at an address; raise ProviderError if none of those known."""
    wanted = Connection(name, ServerKind.OLLAMA, address, connect=patience, idle=patience)
    with contextlib.suppress(ProviderError):
        client = Client(wanted, key)
        names = tuple(map(ModelInfo, await ollama_names(client)))
        return FoundServer(name, ServerKind.OLLAMA, client.connection.address, names)
    server = OpenAIServer(replace(wanted, kind=ServerKind.OPENAI), key)
    models = tuple(await server.models())
    return FoundServer(name, ServerKind.OPENAI, server.address, models)
