# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of model servers: models, the pieces of an answer, errors, defaults."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from ...errors import NetError, OllmSandboxError
from ...net.addresses import normal_server
from ..messages import Message, ToolCall, ToolSpec


class ProviderError(OllmSandboxError):
    """A model server failed. `can_retry`: the same request may work a moment later; `again_after`:
    try it again after this many seconds without asking, if nothing was shown yet."""

    # The server's own words.
    said = ""

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
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True)
class ThinkingPiece:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True)
class CallPiece:
    """A whole tool call."""

    call: ToolCall


@dataclass(frozen=True)
class Usage:
    """Numbers of tokens, as counted by the server."""

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
    """Closing the iterator of a reply, or cancelling the task that reads it, ends the request at
    once. Raises ProviderError."""

    @property
    def name(self) -> str: ...

    async def context_length(self) -> int | None: ...

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncIterator[Piece]: ...


@runtime_checkable
class ReportsLoading(Protocol):
    """A model whose server says whether it is in memory. Loading it may take minutes."""

    async def is_loaded(self) -> bool | None:
        """Return None if the server does not say."""


class Server(Protocol):
    @property
    def address(self) -> str: ...

    async def models(self) -> list[ModelInfo]: ...

    def model(self, name: str) -> Model: ...


# In tokens. Ollama's own default is 4096 or fewer, and it silently drops the rest; a model's
# maximum may need more memory than the machine has.
DEFAULT_CONTEXT = 32768


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    # Without receiving a byte. A model may think for minutes before it answers.
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
