# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds model servers on this machine, at their default ports. No other machine is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from .base import ModelInfo, ProviderError, Timeouts
from .client import Client
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
    address = f"http://127.0.0.1:{known.port}"
    try:
        # Also ends a server that sends a byte now and then.
        async with asyncio.timeout(patience * 2):
            if found := await _ollama(known, address, timeouts):
                return found
            server = OpenAIServer(address, timeouts=timeouts)
            models = tuple(await server.models())
            return FoundServer(known.name, ServerKind.OPENAI, server.address, models)
    except (ProviderError, TimeoutError):
        return None


async def _ollama(known: KnownServer, address: str, timeouts: Timeouts) -> FoundServer | None:
    try:
        names = await ollama_names(Client(address, timeouts=timeouts))
    except ProviderError:
        return None
    models = tuple(ModelInfo(name) for name in names)
    return FoundServer(known.name, ServerKind.OLLAMA, address, models)
