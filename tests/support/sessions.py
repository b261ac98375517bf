# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions of the window without one, which rest as soon as nobody looks at them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.permission.request import Asker
from ollmsandbox.ui.models.choice import ModelChoice
from ollmsandbox.ui.preferences.settings import Settings
from ollmsandbox.ui.sessions import idle
from ollmsandbox.ui.sessions.sessions import Sessions


@contextmanager
def resting_sessions(
    person: Person, monkeypatch: pytest.MonkeyPatch, asker: Asker, settings: Settings
) -> Iterator[Sessions]:
    monkeypatch.setattr(idle, "AFTER", 0.01)
    desk = SessionFactory(person.paths, person.environ, asker)
    made = Sessions(desk, ModelChoice(desk.connections), settings)
    yield made
    loop.run(made.close_all())
    desk.close()


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
