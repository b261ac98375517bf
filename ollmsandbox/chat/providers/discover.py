# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers on this machine, at the ports they have unless told otherwise. Nowhere else is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from .base import ModelInfo, ProviderError, Timeouts
from .client import Client
from .connections_file import ServerKind
from .openai import OpenAIServer
from .wire import a_list, a_text, inside


@dataclass(frozen=True)
class KnownServer:
    port: int
    name: str


USUAL = (
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
    usual: Sequence[KnownServer] = USUAL, *, patience: float = 2.0
) -> list[FoundServer]:
    """All at once. What does not answer soon, or is something else, is not there."""
    timeouts = Timeouts(connect=patience, idle=patience)
    found = await asyncio.gather(*(_look(one, timeouts, patience) for one in usual))
    return [one for one in found if one is not None]


async def _look(usual: KnownServer, timeouts: Timeouts, patience: float) -> FoundServer | None:
    address = f"http://127.0.0.1:{usual.port}"
    try:
        # Also where a server drips.
        async with asyncio.timeout(patience * 2):
            return await _ollama(usual, address, timeouts) or await _openai(
                usual, address, timeouts
            )
    except (ProviderError, TimeoutError):
        return None


async def _ollama(usual: KnownServer, address: str, timeouts: Timeouts) -> FoundServer | None:
    try:
        found = await Client(address, timeouts=timeouts).ask("/api/tags")
    except ProviderError:
        return None
    entries = found.get("models")
    if not isinstance(entries, list):
        return None
    names = [a_text(inside(entry, "name")) for entry in a_list(entries)]
    models = tuple(ModelInfo(name) for name in names if name)
    return FoundServer(usual.name, ServerKind.OLLAMA, address, models)


async def _openai(usual: KnownServer, address: str, timeouts: Timeouts) -> FoundServer | None:
    server = OpenAIServer(address, timeouts=timeouts)
    return FoundServer(usual.name, ServerKind.OPENAI, server.address, tuple(await server.models()))
