# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a model in a test, on the program's event loop."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role, ToolCall, ToolSpec
from ollmsandbox.chat.providers.base import (
    CallPiece,
    Model,
    Piece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
)
from ollmsandbox.chat.providers.client import KeySource
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.chat.providers.ollama import OllamaServer
from ollmsandbox.chat.providers.openai import OpenAIServer

HELLO = (Message(Role.USER, "hello"),)
TOOL = ToolSpec("run_command", "Runs a command.", {"type": "object", "properties": {}})
KEY = "sk-very-secret-0123456789"


async def key_source() -> str:
    return KEY


def openai_server(
    address: str, *, key: KeySource | None = None, idle: float = 60, **settings: Any
) -> OpenAIServer:
    return OpenAIServer(Connection("", ServerKind.OPENAI, address, idle=idle, **settings), key)


def openai(address: str, name: str = "m", *, key: bool = False, **settings: Any) -> Model:
    return openai_server(address, key=key_source if key else None, **settings).model(name)


def ollama_server(address: str, *, idle: float = 60, room: int = 32768) -> OllamaServer:
    return OllamaServer(Connection("", ServerKind.OLLAMA, address, idle=idle, room=room))


def ollama(address: str, name: str = "m", **settings: Any) -> Model:
    return ollama_server(address, **settings).model(name)


def ask(
    model: Model, messages: Sequence[Message] = HELLO, tools: Sequence[ToolSpec] = (TOOL,)
) -> list[Piece]:
    return loop.run(gather(model, messages, tools))


async def gather(
    model: Model, messages: Sequence[Message] = HELLO, tools: Sequence[ToolSpec] = (TOOL,)
) -> list[Piece]:
    async with aclosing(model.reply(messages, tools)) as pieces:  # type: ignore[type-var]
        return [piece async for piece in pieces]


def fails(model: Model) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(model)
    return caught.value


def said(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def thought(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, ThinkingPiece))


def called(pieces: Sequence[Piece]) -> list[ToolCall]:
    return [piece.call for piece in pieces if isinstance(piece, CallPiece)]


def messages_sent(body: dict[str, object]) -> list[dict[str, object]]:
    return cast(list[dict[str, object]], body["messages"])


def tls_server(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return a context with a self-signed certificate, and the file of that certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-nodes"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
