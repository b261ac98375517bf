# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out what kind of model server is at an address, or at the default ports of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from .base import ModelInfo, ProviderError, Timeouts, ollama_root
from .client import Client, KeySource
from .connections_file import ServerKind
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
    timeouts = Timeouts(connect=patience, idle=patience)
    found = await asyncio.gather(*(_try(*one, timeouts, patience) for one in known.items()))
    return [one for one in found if one is not None]


async def _try(port: int, name: str, timeouts: Timeouts, patience: float) -> FoundServer | None:
    try:
        # Also ends a server that sends a byte now and then.
        async with asyncio.timeout(patience * 2):
            return await look_at_server(name, f"http://127.0.0.1:{port}", timeouts=timeouts)
    except (ProviderError, TimeoutError):
        return None


async def look_at_server(
    name: str, address: str, *, key: KeySource | None = None, timeouts: Timeouts | None = None
) -> FoundServer:
    """Return what kind of server is at an address; raise ProviderError if none of those known."""
    with contextlib.suppress(ProviderError):
        root = ollama_root(address)
        names = await ollama_names(Client(root, key=key, timeouts=timeouts))
        return FoundServer(name, ServerKind.OLLAMA, root, tuple(map(ModelInfo, names)))
    server = OpenAIServer(address, key=key, timeouts=timeouts)
    models = tuple(await server.models())
    return FoundServer(name, ServerKind.OPENAI, server.address, models)
