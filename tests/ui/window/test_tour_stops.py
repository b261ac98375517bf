# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour stops after each idea, and leaves nothing behind."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.person import Person
from support.screen import Screen, texts
from support.window import allow_once, buttons, press, program, session_of, wait_until, window_of

from ollmsandbox.chat.providers.tour.model import TourModel
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.sessions.open_session import OpenSession

pytestmark = pytest.mark.anybody


def _is_at(session: OpenSession, stop: int) -> bool:
    return session.tour_stop == stop


def test_the_tour_stops_five_times_and_its_sample_can_be_removed(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(person) as application:
        monkeypatch.setattr(TourModel, "stops", (2, 5, 6, 7, 8))
        window = window_of(application)
        press(window.welcome, "Take the Tour")
        wait_until(lambda: window.chat.session is not None)
        session = session_of(window)
        for stop in range(1, 6):
            if stop == 4:
                wait_until(lambda: any(e.stage is Stage.ASKING for e in session.asking()))
                allow_once(window)
            wait_until(partial(_is_at, session, stop))
            assert texts(window.chat.tour) == [f"Tour: {stop} of 5", "Next"]
            # It waits for the user, so nothing says that the model works.
            assert not window.chat.activity.get_visible()
            press(window.chat.tour, "Next")
        wait_until(lambda: session.is_tour_over)
        ends = ["Remove the Sample", "Open a Project", "Connect a Model"]
        wait_until(lambda: buttons(window.chat.tour) == ends)
        assert session.project is not None
        folder = Path(session.project)
        assert (folder / "basket.py").exists()
        press(window.chat.tour, "Remove the Sample")
        wait_until(lambda: not folder.exists())
        wait_until(lambda: "No Projects Yet" in texts(window.sidebar))
    visible = [one.name for one in person.home.iterdir() if not one.name.startswith(".")]
    assert visible == [] or visible == [person.project.name]
