# SPDX-License-Identifier: GPL-3.0-or-later
"""Base classes for model servers that answer over HTTP, and for their models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence

from ..messages import Message, ToolSpec
from .base import Model, Piece
from .client import Client, KeySource, retried
from .connections_file import Connection
from .convert import ReturnThinking, model_origin, returned, without_pictures


class RemoteServer:
    """Keeps the client that a server and its models share."""

    def __init__(self, connection: Connection, key: KeySource | None = None) -> None:
        self._client = Client(connection, key)

    @property
    def address(self) -> str:
        return self._client.connection.address


class RemoteModel(Model):
    """Tells what is known of a model, and retries a request that fails in passing."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self._client = client
        # What the user has set for its replies.
        self._settings = client.connection
        self.longest_answer = self._settings.answer
        # None if the server does not say.
        self._sees: bool | None = None
        self._thinking = ReturnThinking.THIS_TURN
        self._origin = model_origin(self._settings.kind.value, client.root, name)

    @property
    def sees_pictures(self) -> bool:
        return self.name in self._settings.seeing if self._sees is None else self._sees

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
