# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that cannot be projects are refused before they are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.person import Person
from support.screen import Screen
from support.window import finish, program

from ollmsandbox.errors import ProjectError

pytestmark = pytest.mark.anybody


def test_what_cannot_be_a_project_does_not_become_one(screen: Screen, person: Person) -> None:
    file, closed = person.project / "a.txt", person.project.parent / "closed"
    file.write_text("x")
    closed.mkdir(mode=0)
    with program(person) as application:
        sessions = application.sessions
        for folder in (file, closed, Path("/"), person.home, person.home.parent):
            with pytest.raises(ProjectError):
                finish(sessions.new(str(folder)))
        assert finish(sessions.listing()) == []
        assert finish(sessions.new(str(person.project))).project == str(person.project)
    closed.chmod(0o700)
