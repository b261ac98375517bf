# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that has models, and a model that answers.

What counts where nothing else is said; apart from what takes long to load.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from ...errors import NetError, OllmSandboxError
from ...net.addresses import normal_server
from ..messages import Message, ToolCall, ToolSpec


class ProviderError(OllmSandboxError):
    """The model's server did not do its part. `can_retry`: the same may work a moment later;
    `again_after`: so many seconds later it is tried again without asking, if nothing was shown."""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        /,
        *,
        can_retry: bool = False,
        again_after: float | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, remedy, **fields)
        self.can_retry = can_retry
        self.again_after = again_after

    @classmethod
    def from_net(cls, error: NetError) -> ProviderError:
        return cls(
            error.message,
            error.remedy,
            can_retry=error.can_retry,
            again_after=0.2 if error.was_lost else None,
        )


class TooLongError(ProviderError):
    """The conversation does not fit into the model."""


class RefusedError(ProviderError):
    """The server does not accept the key."""


class NoToolsError(ProviderError):
    """The model cannot call tools."""


@dataclass(frozen=True)
class TextPiece:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class ThinkingPiece:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class CallPiece:
    """A whole tool call."""

    call: ToolCall


@dataclass(frozen=True)
class Usage:
    """Tokens, as the server counted them."""

    prompt: int
    reply: int


@dataclass(frozen=True)
class FinishPiece:
    """The end of an answer; `cut_off` if the server had no room for more."""

    cut_off: bool = False


Piece = TextPiece | ThinkingPiece | CallPiece | Usage | FinishPiece


@dataclass(frozen=True)
class ModelInfo:
    name: str
    # None where the server does not say.
    context_length: int | None = None
    can_call_tools: bool | None = None
    is_loaded: bool | None = None


class Model(Protocol):
    """Answers in pieces. Closing the iterator, or cancelling who reads it, ends the request at
    once. Raises ProviderError."""

    @property
    def name(self) -> str: ...

    async def context_length(self) -> int | None: ...

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncIterator[Piece]: ...


class Server(Protocol):
    @property
    def address(self) -> str: ...

    async def models(self) -> list[ModelInfo]: ...

    def model(self, name: str) -> Model: ...


# Ollama gives a model 4096 tokens or fewer unless asked, and forgets the rest without a word; all
# that a model could take may be more than the machine's memory.
DEFAULT_CONTEXT = 32768


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    # Without a single byte. A model may think for long before it says anything.
    idle: float = 300.0


# Some servers have their interface below another folder than /v1.
_HAS_VERSION = re.compile(r"/(v[0-9]+[a-z0-9]*|openai)$")


def ollama_root(text: str) -> str:
    """Return the URL below which Ollama's interface is, from what the user typed."""
    return re.sub(r"/(api|v1)$", "", _normal_server(text, default_port=11434))


def openai_root(text: str) -> str:
    """Return the URL below which the OpenAI-compatible interface is, from what the user typed."""
    root = re.sub(r"/(chat/completions|models)$", "", _normal_server(text))
    return root if _HAS_VERSION.search(urlsplit(root).path) else f"{root}/v1"


def _normal_server(text: str, default_port: int | None = None) -> str:
    try:
        return normal_server(text, default_port)
    except NetError as error:
        raise ProviderError.from_net(error) from error
