# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.changes_pane import Pane
    from support.chat import Chat
    from support.chat_screen import Place
    from support.person import Person
    from support.screen import Screen


@pytest.fixture
def chat() -> Chat:
    from support.chat import Chat  # here and below, because not all import the program

    return Chat()


@pytest.fixture
def place(screen: Screen, tmp_path: Path) -> Place:
    """A chat in a window."""
    from support.chat_screen import Place

    return Place(screen, tmp_path)


@pytest.fixture
def pane(screen: Screen, person: Person) -> Iterator[Pane]:
    from support.changes_pane import changes_pane

    with changes_pane(person) as pane:
        yield pane


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user thinks quickly about a question, except where a test says otherwise."""
    from ollmsandbox.ui.permission import card

    monkeypatch.setattr(card, "_PAUSE", 0)
    monkeypatch.setattr(card, "_LOOK", 5)


@pytest.fixture
def without_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what GSettings needs to store anything."""
    for name in ("GSETTINGS_BACKEND", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids of notifications."""
    from ollmsandbox.ui.application import Application

    names: list[str] = []

    def note(_application: Application, name: str, _notification: object) -> None:
        names.append(name)

    monkeypatch.setattr(Application, "send_notification", note)
    return names
