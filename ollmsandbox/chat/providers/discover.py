# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers on this machine, at the ports they have unless told otherwise. Nowhere else is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from .base import ModelInfo, ProviderError, Timeouts
from .client import Client
from .connections_file import Kind
from .openai import OpenAIServer
from .wire import a_list, a_text, inside


@dataclass(frozen=True)
class Usual:
    port: int
    name: str


USUAL = (
    Usual(11434, "Ollama"),
    Usual(8080, "llama.cpp"),
    Usual(8000, "vLLM"),
    Usual(1234, "LM Studio"),
    Usual(1337, "Jan"),
    Usual(5000, "text-generation-webui"),
    Usual(5001, "KoboldCpp"),
    Usual(30000, "SGLang"),
)


@dataclass(frozen=True)
class Found:
    name: str
    kind: Kind
    address: str
    models: tuple[ModelInfo, ...]


async def find_servers(usual: Sequence[Usual] = USUAL, *, patience: float = 2.0) -> list[Found]:
    """All at once. What does not answer soon, or is something else, is not there."""
    timeouts = Timeouts(connect=patience, idle=patience)
    found = await asyncio.gather(*(_look(one, timeouts, patience) for one in usual))
    return [one for one in found if one is not None]


async def _look(usual: Usual, timeouts: Timeouts, patience: float) -> Found | None:
    address = f"http://127.0.0.1:{usual.port}"
    try:
        # Also where a server drips.
        async with asyncio.timeout(patience * 2):
            return await _ollama(usual, address, timeouts) or await _openai(
                usual, address, timeouts
            )
    except (ProviderError, TimeoutError):
        return None


async def _ollama(usual: Usual, address: str, timeouts: Timeouts) -> Found | None:
    try:
        found = await Client(address, timeouts=timeouts).ask("/api/tags")
    except ProviderError:
        return None
    entries = found.get("models")
    if not isinstance(entries, list):
        return None
    names = [a_text(inside(entry, "name")) for entry in a_list(entries)]
    models = tuple(ModelInfo(name) for name in names if name)
    return Found(usual.name, Kind.OLLAMA, address, models)


async def _openai(usual: Usual, address: str, timeouts: Timeouts) -> Found | None:
    server = OpenAIServer(address, timeouts=timeouts)
    return Found(usual.name, Kind.OPENAI, server.address, tuple(await server.models()))
