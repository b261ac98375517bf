# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox sessions`"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage
from ollmsandbox.engine.session_lock import SessionLock
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.ordinary


def begin(person: Person, session_id: str, title: str, text: str, project: str = "") -> None:
    manager = ProjectManager(person.paths)
    history = History(manager)
    history.create(SessionInfo(session_id, title, project, "model", "server", 1.0, 1.0))
    history.write(session_id, StoredMessage(0, Message(Role.USER, text, at=2.0)))
    manager.close()


def test_sessions_are_listed_searched_renamed_shown_and_deleted(person: Person) -> None:
    begin(person, "20250101-aa", "Fix \x1b[31mit", "a needle", str(person.project))
    begin(person, "20250102-bb", "Other", "hay")
    listed = person.cli("sessions", "list")
    assert listed.stdout.index("20250102-bb") < listed.stdout.index("20250101-aa")
    assert "\x1b" not in listed.stdout
    found = json.loads(cli_here(person, "sessions", "search", "needle", "--json").stdout)
    assert [info["id"] for info in found] == ["20250101-aa"]
    here = json.loads(cli_here(person, "sessions", "list", "--project", ".", "--json").stdout)
    assert [info["id"] for info in here] == ["20250101-aa"]
    assert cli_here(person, "sessions", "rename", "20250102", "A better name").returncode == 0
    shown = cli_here(person, "sessions", "show", "20250102")
    assert shown.stdout.startswith("# A better name\n")
    assert "hay" in shown.stdout
    assert cli_here(person, "sessions", "delete", "20250101", "20250102").returncode == 0
    assert json.loads(cli_here(person, "sessions", "list", "--json").stdout) == []


def test_a_session_is_exported_but_over_no_file(person: Person) -> None:
    begin(person, "20250101-aa", "A talk", "words")
    file = Path(person.project) / "talk.json"
    export = ("sessions", "export", "20250101-aa", "--json", "--output", str(file))
    assert cli_here(person, *export).returncode == 0
    assert json.loads(file.read_text())["messages"][0]["text"] == "words"
    again = cli_here(person, *export)
    assert again.returncode != 0
    assert str(file) in again.stderr


def test_a_session_that_is_open_is_not_deleted(person: Person) -> None:
    begin(person, "20250101-aa", "A talk", "words")
    lock = SessionLock(person.paths, "20250101-aa")
    done = cli_here(person, "sessions", "delete", "20250101-aa")
    assert done.returncode != 0
    assert "another program" in done.stderr
    lock.release()
    missing = cli_here(person, "sessions", "show", "nothing")
    assert missing.returncode != 0
    assert "sessions list" in missing.stderr


def test_an_empty_id_is_reported(person: Person) -> None:
    begin(person, "20250101-aa", "A talk", "words")
    for action, *more in (("show",), ("export",), ("delete",), ("rename", "A better name")):
        done = cli_here(person, "sessions", action, "", *more)
        assert done.returncode == 125
        assert "id is empty" in done.stderr
    assert "20250101-aa" in cli_here(person, "sessions", "list").stdout
