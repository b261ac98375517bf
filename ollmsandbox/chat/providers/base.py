# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of model servers: models, the pieces of an answer, errors, defaults."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from ...errors import NetError, OllmSandboxError
from ...net.addresses import normal_server
from ..messages import Message, ServerFields, ToolCall, ToolSpec

MOST_RETRIES = 8


class ProviderError(OllmSandboxError):
    """A model server failed. `can_retry`: the same request may work a moment later; `retries`: how
    often to try it again without asking, if nothing was shown yet; `again_after`: the seconds to
    wait before that, None for delays that grow."""

    # The server's own words.
    said = ""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        /,
        *,
        can_retry: bool = False,
        retries: int = 0,
        again_after: float | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, remedy, **fields)
        self.can_retry = can_retry
        self.retries = retries
        self.again_after = again_after

    @classmethod
    def from_net(cls, error: NetError) -> ProviderError:
        return cls(
            error.message,
            error.remedy,
            can_retry=error.can_retry,
            retries=MOST_RETRIES if error.was_lost else 0,
        )


class TooLongError(ProviderError):
    """The conversation does not fit into the model."""


class RefusedError(ProviderError):
    """The server does not accept the key."""


class TextPiece(NamedTuple):
    """A piece of the answer's text."""

    text: str


class ThinkingPiece(NamedTuple):
    """A piece of the model's reasoning."""

    text: str


class CallPiece(NamedTuple):
    """A whole tool call."""

    call: ToolCall


class Usage(NamedTuple):
    """Numbers of tokens, as counted by the server."""

    prompt: int
    reply: int
    # By the price of the connection, if it has one.
    cost: float | None = None


class RetryPiece(NamedTuple):
    """The server failed; the request is repeated after a while."""

    seconds: float
    why: ProviderError


class FinishPiece(NamedTuple):
    """The end of an answer: `cut_off` if the server had no room for more, `filtered` if its content
    filter ended the answer."""

    cut_off: bool = False
    filtered: bool = False


Piece = TextPiece | ThinkingPiece | CallPiece | ServerFields | Usage | RetryPiece | FinishPiece


class ModelInfo(NamedTuple):
    name: str
    # None where the server does not say.
    context_length: int | None = None
    can_call_tools: bool | None = None
    is_loaded: bool | None = None
    can_see: bool | None = None


class Model(ABC):
    """A model, as far as its server says something about it."""

    name: str
    # The longest answer that the user allows, in tokens.
    longest_answer: int | None = None

    async def context_length(self) -> int | None:
        return None

    @property
    def sees_pictures(self) -> bool:
        """Whether it can be sent pictures, by its server or else by the user; known after
        `context_length`."""
        return False

    @property
    def is_sight_known(self) -> bool:
        """Whether its server says if it sees pictures; otherwise the user may say so."""
        return True

    async def is_loaded(self) -> bool | None:
        """Return whether it is in memory, since loading it may take minutes; None if the server
        does not say."""
        return None

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with only that thinking and those fields that will be sent."""
        return list(messages)

    @abstractmethod
    def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> AsyncIterator[Piece]:
        """Closing the iterator, or cancelling the task that reads it, ends the request at once.
        Raises ProviderError."""


class Server(Protocol):
    async def models(self) -> list[ModelInfo]: ...

    def model(self, name: str) -> Model: ...


# In tokens. Ollama's own default is 4096 or fewer, and it silently drops the rest; a model's
# maximum may need more memory than the machine has.
DEFAULT_CONTEXT = 32768


class Effort(Enum):
    """How much a model should think; each server supports some of these."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    MAX = "max"


class Price(NamedTuple):
    """The price of a million tokens, in any currency."""

    prompt: float
    reply: float

    def of(self, prompt: int, reply: int) -> float:
        return (prompt * self.prompt + reply * self.reply) / 1_000_000


def ollama_root(text: str) -> str:
    """Return the URL below which Ollama's interface is, from what the user typed."""
    return re.sub(r"/(api|v1)$", "", _normal_server(text, default_port=11434))


_AZURE = (".azure.com", ".azure.us", ".azure.cn")


def openai_root(text: str) -> str:
    """Return the URL below which the OpenAI-compatible interface is, from what the user typed."""
    if (urlsplit(f"//{text.strip()}").hostname or "").endswith(_AZURE):
        text = f"https://{text.strip()}"  # it accepts nothing else
    root, mark, query = _normal_server(text, with_query=True).partition("?")
    root = root.removesuffix("/chat/completions")
    # Azure's models of other makers are below a folder of this name.
    if not is_azure(root) or urlsplit(root).path != "/models":
        root = root.removesuffix("/models")
    if not urlsplit(root).path:
        root += "/openai/v1" if is_azure(root) else "/v1"
    return f"{root}{mark}{query}"


def is_azure(root: str) -> bool:
    """Tell whether a server takes its key as Azure does, by its address."""
    parts = urlsplit(root)
    return (parts.hostname or "").endswith(_AZURE) or "api-version=" in parts.query


def _normal_server(text: str, default_port: int | None = None, *, with_query: bool = False) -> str:
    try:
        return normal_server(text, default_port, with_query=with_query)
    except NetError as error:
        raise ProviderError.from_net(error) from error
