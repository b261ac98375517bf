# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out what kind of model server is at an address, or at the default ports of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from .base import ModelInfo, ProviderError, Timeouts, ollama_root
from .client import Client, KeySource
from .connections_file import ServerKind
from .ollama import ollama_names
from .openai import OpenAIServer


@dataclass(frozen=True)
class KnownServer:
    port: int
    name: str


KNOWN_SERVERS = (
    KnownServer(11434, "Ollama"),
    KnownServer(8080, "llama.cpp"),
    KnownServer(8000, "vLLM"),
    KnownServer(1234, "LM Studio"),
    KnownServer(1337, "Jan"),
    KnownServer(5000, "text-generation-webui"),
    KnownServer(5001, "KoboldCpp"),
    KnownServer(30000, "SGLang"),
)


@dataclass(frozen=True)
class FoundServer:
    name: str
    kind: ServerKind
    address: str
    models: tuple[ModelInfo, ...]


async def find_servers(
    known: Sequence[KnownServer] = KNOWN_SERVERS, *, patience: float = 2.0
) -> list[FoundServer]:
    """Try all ports at once. Ignore what does not answer soon or is not a model server."""
    timeouts = Timeouts(connect=patience, idle=patience)
    found = await asyncio.gather(*(_try(one, timeouts, patience) for one in known))
    return [one for one in found if one is not None]


async def _try(known: KnownServer, timeouts: Timeouts, patience: float) -> FoundServer | None:
    try:
        # Also ends a server that sends a byte now and then.
        async with asyncio.timeout(patience * 2):
            address = f"http://127.0.0.1:{known.port}"
            return await look_at_server(known.name, address, timeouts=timeouts)
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
