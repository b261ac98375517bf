# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox doctor` and the help: what the machine can do, and what the program can."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3

import pytest
from support.cli import WITHOUT_FOLDER
from support.person import Person

import ollmsandbox


def test_doctor_prints_a_checklist_and_leaves_nothing_behind(person: Person) -> None:
    person.environ["TMPDIR"] = str(person.home / "tmp")
    (person.home / "tmp").mkdir()
    done = person.cli("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"OLLM Sandbox {ollmsandbox.__version__}, ")
    assert len(re.findall(r"^  ok +\w", done.stdout, re.MULTILINE)) >= 5
    assert "MISSING" not in done.stdout
    assert "\033" not in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    for folder in (person.home / "tmp", person.project, person.playground):
        assert os.listdir(folder) == []
    assert not [*(person.paths.cache / "caches").glob("*")]


@pytest.mark.ordinary
def test_doctor_prints_one_json_document(person: Person) -> None:
    done = person.cli("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["version"] == ollmsandbox.__version__
    assert found["sandboxed"] is True
    assert found["overlay"] in ("unshare", "bwrap", "none")
    assert os.path.isabs(found["bwrap"])
    for check in found["checks"]:
        assert set(check) == {"key", "title", "ok", "needed", "detail", "cause", "remedy"}
        assert bool(check["cause"]) == bool(check["remedy"]) == (not check["ok"])
    keys = [check["key"] for check in found["checks"]]
    assert len(keys) == len(set(keys))
    assert {"bwrap", "sandbox", "network", "seccomp", "secrets", "outside", "rights"} <= set(keys)


@pytest.mark.ordinary
def test_doctor_says_what_is_missing_and_what_to_do(person: Person) -> None:
    person.environ["PATH"] = f"{person.home}/nowhere"
    done = person.cli("doctor")
    assert done.returncode == 1
    assert re.search(r"^  MISSING +Bubblewrap", done.stdout, re.MULTILINE)
    assert "nstall it" in done.stdout
    found = json.loads(person.cli("doctor", "--json").stdout)
    assert found["sandboxed"] is False
    assert found["bwrap"] == ""


@pytest.mark.anybody
def test_doctor_works_from_a_folder_that_is_gone(person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    done = person.cli("doctor", around=WITHOUT_FOLDER, cwd=gone)
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_lists_missing_runs_again(person: Person) -> None:
    (person.project / "file").write_text("old\n")
    run = person.record("echo new > file; echo more > other").run_id
    assert run in person.cli("history").stdout
    with contextlib.closing(sqlite3.connect(person.paths.database)) as database, database:
        database.execute("DELETE FROM change")
        database.execute("DELETE FROM run")
    assert run not in person.cli("history").stdout
    done = person.cli("doctor", "--repair")
    assert (done.returncode, done.stderr) == (0, "")
    assert "listed again" in done.stdout
    assert run in person.cli("history").stdout
    assert person.cli("undo").returncode == 0
    assert (person.project / "file").read_text() == "old\n"
    assert os.listdir(person.project) == ["file"]


@pytest.mark.anybody
def test_doctor_says_that_no_run_is_missing(person: Person) -> None:
    done = person.cli("doctor", "--repair")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No earlier run is missing from the records.\n"
    assert json.loads(person.cli("doctor", "--repair", "--json").stdout) == {"done": []}


@pytest.mark.anybody
def test_doctor_does_not_repair_and_attack_at_once(person: Person) -> None:
    done = person.cli("doctor", "--repair", "--attack")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr


@pytest.mark.anybody
@pytest.mark.anybody
def test_the_help_names_every_command_and_the_version_is_printed(person: Person) -> None:
    done = person.cli("--help")
    assert (done.returncode, done.stderr) == (0, "")
    commands = ("run", "changes", "apply", "discard", "undo", "history", "doctor", "playground")
    for name in ("usage: ollmsandbox", *commands, "--version"):
        assert name in done.stdout
    done = person.cli("--version")
    assert (done.returncode, done.stdout) == (0, f"OLLM Sandbox {ollmsandbox.__version__}\n")
