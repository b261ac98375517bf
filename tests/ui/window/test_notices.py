# SPDX-License-Identifier: GPL-3.0-or-later
"""Notices about the machine appear in the window."""

from __future__ import annotations

import pytest
from support.person import Person
from support.screen import Screen
from support.window import press, program, says, wait_until, window_of

from ollmsandbox.ui.application import main
from ollmsandbox.ui.settings import SCHEMA

pytestmark = pytest.mark.anybody


def test_a_damaged_database_that_was_set_aside_is_reported(screen: Screen, person: Person) -> None:
    person.paths.data.mkdir(parents=True)
    person.paths.database.write_bytes(b"no database at all" * 500)
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: says(window.notices, "The database was damaged"), 60)
        assert window.notices.get_reveal_child()
        press(window.notices, "Dismiss")
        assert not window.notices.get_reveal_child()
        assert not application.factory.manager.store.notices


def test_an_unwritable_home_folder_is_reported_and_nothing_is_started(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "somewhere")
    assert main(["ollmsandbox"], f"{SCHEMA}.Homeless") == 1
    told = capfd.readouterr().err
    assert told.startswith("ollmsandbox: ")
    assert "Traceback" not in told
