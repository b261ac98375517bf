# SPDX-License-Identifier: GPL-3.0-or-later
"""Base classes for model servers that answer over HTTP, and for their models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from ..messages import Message, ToolSpec
from .base import Piece, ReplyOptions, Timeouts
from .client import Client, KeySource, retried
from .convert import ReturnThinking, model_origin, returned, without_pictures


class RemoteServer:
    """Keeps the client and the options that a server and its models share."""

    # Returns the URL below which its interface is, from what the user typed.
    find_root: Callable[[str], str]

    def __init__(
        self,
        address: str,
        *,
        key: KeySource | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        options: ReplyOptions | None = None,
    ) -> None:
        root = self.find_root(address)
        self._client = Client(root, key=key, timeouts=timeouts, headers=headers)
        self._options = options or ReplyOptions()

    @property
    def address(self) -> str:
        return self._client.address


class RemoteModel(ABC):
    """Tells what is known of a model, and retries a request that fails in passing."""

    def __init__(self, kind: str, name: str, client: Client, options: ReplyOptions) -> None:
        self.name = name
        self.longest_answer = options.answer
        self._client = client
        self._options = options
        # None if the server does not say.
        self._sees: bool | None = None
        self._thinking = ReturnThinking.THIS_TURN
        self._origin = model_origin(kind, client.root, name)

    @property
    def sees_pictures(self) -> bool:
        return self.name in self._options.seeing if self._sees is None else self._sees

    @property
    def is_sight_known(self) -> bool:
        return self._sees is not None

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        found = returned(messages, self._origin, self._thinking)
        return found if self.sees_pictures else without_pictures(found)

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        return retried(lambda: self._reply(messages, tools))

    @abstractmethod
    def _reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        """Send the messages once, without trying again."""
