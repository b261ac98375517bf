# SPDX-License-Identifier: GPL-3.0-or-later
"""A project on a mount that does not respond blocks neither the window nor other work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.screen import Screen
from support.scripted import ScriptedModel
from support.timing import PATIENCE, wait_for
from support.window import finish, in_project, wait_until, window_of

from ollmsandbox import paths
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.sessions import folder
from ollmsandbox.ui.sessions.folder import FolderChecker
from ollmsandbox.ui.widgets.tasks import LatestOnly


class Mount:
    """A mount on which one folder does not respond until the test ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.answers = threading.Event()
        self.looks = 0

    def is_missing(self, folder: str) -> bool:
        if folder == self.folder:
            self.looks += 1
            assert self.answers.wait(PATIENCE)
        return paths.is_missing(folder)


@pytest.fixture
def mount(person: Person, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    mount = Mount(person.project)
    monkeypatch.setattr(folder, "is_missing", mount.is_missing)
    yield mount
    mount.answers.set()


def test_a_folder_that_gives_no_answer_is_looked_at_once(mount: Mount, tmp_path: Path) -> None:
    folders = FolderChecker(patience=0.01)
    assert all(folders.is_missing(mount.folder) for _time in range(50))
    assert mount.looks == 1
    # One that is there answers soon, on a busy machine perhaps not at once.
    wait_for(lambda: not folders.is_missing(str(tmp_path.resolve())))
    assert folders.is_missing(str(tmp_path / "gone"))


def test_turns_go_on_and_the_window_closes_while_a_folder_gives_no_answer(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_project(person) as (window, session):
        application = window.get_application()
        assert isinstance(application, Application) and window_of(application) is window
        mount = Mount(person.project)
        monkeypatch.setattr(folder, "is_missing", mount.is_missing)
        session.conversation.model = ScriptedModel(*[["Yes."]] * 8)
        for _turn in range(8):
            finish(asyncio.wait_for(session.conversation.say("Still there?"), PATIENCE))
        wait_until(lambda: mount.looks)
        assert (
            finish(asyncio.wait_for(asyncio.to_thread(lambda: "a thread"), PATIENCE)) == "a thread"
        )
        assert mount.looks == 1
        try:
            window.close()
            wait_until(lambda: application.window is None, 60)
        finally:
            mount.answers.set()


def test_queued_readings_take_no_thread() -> None:
    may_end = threading.Event()

    def work() -> None:
        assert may_end.wait(PATIENCE)

    async def play() -> None:
        newest = LatestOnly()
        readings = [asyncio.ensure_future(newest.run(work)) for _reading in range(100)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: True), PATIENCE)
        may_end.set()
        await asyncio.gather(*readings, return_exceptions=True)

    asyncio.run(play())
