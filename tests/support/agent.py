# SPDX-License-Identifier: GPL-3.0-or-later
"""A conversation with real tools, a real sandbox and a real database; only the model and the user
are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.person import Person
from support.scripted import Listening, ScriptedModel

from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.tools.context import ToolPreferences


@dataclass
class PlayedUser:
    """A scripted user: gives the listed answers, and never answers if there are none."""

    says: Callable[[PermissionRequest], Answer | None] = lambda _request: None
    asked: list[PermissionRequest] = field(default_factory=list)

    async def ask(self, request: PermissionRequest) -> Answer:
        self.asked.append(request)
        answer = self.says(request)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        return answer


@dataclass
class Scene:
    factory: SessionFactory
    conversation: Conversation
    listening: Listening
    asker: PlayedUser


@asynccontextmanager
async def opened(
    person: Person,
    model: ScriptedModel | None = None,
    says: Callable[[PermissionRequest], Answer | None] = lambda _request: None,
    **options: Any,
) -> AsyncIterator[Scene]:
    asker = PlayedUser(says)
    person._copy_probe()
    factory = SessionFactory(person.paths, person.environ, asker)
    try:
        names = {"mode", "ask_every_command"}.intersection(options)
        chosen = {name: options.pop(name) for name in names}
        conversation = await factory.open(
            str(person.project),
            with_model=False,
            preferences=ToolPreferences(**chosen),
            **options,
        )
        listening = Listening()
        conversation.listen(listening)
        if model is not None:
            conversation.use_model(model)
        try:
            yield Scene(factory, conversation, listening, asker)
        finally:
            await conversation.close()
    finally:
        factory.close()


def with_words(*words: str) -> list[int]:
    """Return the processes that have all of these words in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if all(word.encode() in line for word in words):
                found.append(int(entry.name))
    return found
