# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures while a command runs: a kill, edits by the user, a full disk, a broken database, a
missing project."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path

import pytest
from support.cli_inline import cli_here
from support.escape.attack import IS_ROOT
from support.escape.kill import look_at
from support.escape.paused import WAIT, kill, last_changes, run_while, running, states
from support.person import Person, cli_argv
from support.timing import PATIENCE

from ollmsandbox.database.connection import Database
from ollmsandbox.project import capture
from ollmsandbox.sandbox.overlay import clock_offset

# --- kill -9 ------------------------------------------------------------------------------------


def test_a_kill_while_the_command_runs(person: Person) -> None:
    (person.project / "edited").write_text("old")
    with running(person, "echo new >edited; echo added >added" + WAIT) as process:
        kill(person, process)
    before = look_at(person.project)
    assert before["edited"][1] == b"old"
    done = person.cli("run", "-c", "cat edited added")
    assert done.stdout == "new\nadded\n"
    assert "interrupted" in done.stderr
    assert look_at(person.project) == before
    found = last_changes(person)
    assert found["command"].endswith(" (interrupted)")
    assert states(found) == {"edited": "pending", "added": "pending"}
    assert cli_here(person, "apply").returncode == 0
    assert (person.project / "edited").read_text() == "new\n"


def test_a_kill_of_a_dry_run(person: Person) -> None:
    with running(person, "echo new >new" + WAIT, "--apply", "never") as process:
        kill(person, process)
    assert person.cli("run", "-c", "ls").stdout == ""
    assert json.loads(cli_here(person, "history", "--json").stdout) == []
    assert not list(person.paths.cache.glob("overlay-*"))


def test_a_kill_before_anything_was_written(person: Person) -> None:
    with running(person, WAIT) as process:
        kill(person, process)
    assert list(person.paths.cache.glob("overlay-*"))
    done = person.cli("run", "-c", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(person.paths.cache.glob("overlay-*"))
    assert json.loads(cli_here(person, "history", "--json").stdout) == []


# --- other programs -----------------------------------------------------------------------------


def _edit(file: Path) -> None:
    file.write_text("mine")


def _make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "inside").write_text("mine")


def _make_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


CHANGES_OF_MINE: dict[str, tuple[bool, Callable[[Path], None]]] = {
    "edited": (True, _edit),
    "created": (False, _edit),
    "folder": (True, _make_folder),
    "link": (True, _make_link),
}


@pytest.mark.anybody
@pytest.mark.parametrize("what", CHANGES_OF_MINE)
def test_a_file_that_the_user_changes_during_the_run(person: Person, what: str) -> None:
    was_there, act = CHANGES_OF_MINE[what]
    file = person.project / "file"
    if was_there:
        file.write_text("old")
    document = run_while(person, "echo theirs >file; echo other >other", lambda: act(file))
    mine = look_at(person.project)
    found = states(document)
    assert found.pop("other") == "applied"
    # What is in a folder of mine, the command had not seen.
    assert found.pop("file/inside", "conflict") == "conflict"
    assert found == {"file": "conflict"}
    run = document["run_id"]
    shown = cli_here(person, "changes", run, "--diff").stdout
    assert "+theirs" in shown
    assert "-mine" in shown or what not in ("edited", "created")
    # Without being named it stays.
    cli_here(person, "apply", run)
    assert look_at(person.project) == mine
    took = cli_here(person, "apply", run, "file")
    assert took.returncode == 0, took.stdout
    assert file.read_text() == "theirs\n"
    undone = cli_here(person, "undo", run, "file")
    assert undone.returncode == 0, undone.stdout
    assert look_at(person.project) == mine


@pytest.mark.anybody
@pytest.mark.parametrize("what", CHANGES_OF_MINE)
def test_a_conflict_that_is_discarded(person: Person, what: str) -> None:
    was_there, act = CHANGES_OF_MINE[what]
    file = person.project / "file"
    if was_there:
        file.write_text("old")
    run = run_while(person, "echo theirs >file", lambda: act(file))["run_id"]
    mine = look_at(person.project)
    assert cli_here(person, "discard", run, "file").returncode == 0
    assert look_at(person.project) == mine
    assert "theirs" not in person.cli("run", "-c", "cat file").stdout


@pytest.mark.anybody
def test_a_file_that_the_user_deletes_during_the_run(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old")
    document = run_while(person, "echo theirs >file; echo new >new", file.unlink)
    assert states(document) == {"file": "conflict", "new": "applied"}
    assert not file.exists()
    run = document["run_id"]
    assert cli_here(person, "apply", run, "file").returncode == 0
    assert file.read_text() == "theirs\n"
    assert cli_here(person, "undo", run, "file").returncode == 0
    assert not file.exists()


@pytest.mark.anybody
def test_a_file_that_was_moved_is_no_conflict(person: Person) -> None:
    (person.project / "file").write_text("old")
    document = run_while(person, "echo theirs >file; mv file moved", lambda: None)
    assert states(document) == {"file": "applied", "moved": "applied"}


@pytest.mark.anybody
def test_a_clock_that_is_set_back_meanwhile(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.project / "file"
    file.write_text("old")
    # As if the user had changed the file after the clock was set back by an hour.
    monkeypatch.setattr(capture, "clock_offset", lambda: clock_offset() - 3600 * 10**9)
    assert person.run("echo theirs >file").exit_code == 0
    assert file.read_text() == "old"
    assert states(last_changes(person)) == {"file": "conflict"}


@pytest.mark.anybody
def test_two_runs_that_write_the_same_file(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old")
    document = run_while(
        person, "echo first >file", lambda: person.cli("run", "-c", "echo second >file")
    )
    assert file.read_text() == "second\n"
    assert states(document) == {"file": "conflict"}
    assert "+first" in cli_here(person, "changes", document["run_id"], "--diff").stdout


@pytest.mark.anybody
def test_two_programs_undo_at_once(person: Person) -> None:
    for number in range(30):
        (person.project / f"f{number}").write_text("old")
    before = look_at(person.project)
    run = person.cli_run("for f in f*; do echo x >$f; done")
    both = [person.start("undo", run["run_id"], "--json") for _ in range(2)]
    said = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in both]
    assert sorted(len(document["changes"]) for document in said) == [0, 30]
    assert [process.returncode for process in both] == [0, 0]
    assert look_at(person.project) == before


# --- no room, no permission, no project ---------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """On another file system, where a file has to be copied to."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def _files_of_at_most_a_megabyte() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_a_file_that_finds_no_room(person: Person, elsewhere: Path) -> None:
    person.project = elsewhere
    (elsewhere / "large").write_text("old")
    command = "head -c 3000000 /dev/zero >large; echo small >small"
    run = person.cli_run(command, "--apply", "review")
    done = person.cli("apply", run["run_id"], "--json", preexec_fn=_files_of_at_most_a_megabyte)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert states(found) == {"large": "failed", "small": "applied"}
    assert [c["note"] for c in found["changes"] if c["path"] == "large"] == ["File too large."]
    assert sorted(os.listdir(elsewhere)) == ["large", "small"]
    assert (elsewhere / "large").read_text() == "old"
    assert cli_here(person, "apply", run["run_id"]).returncode == 0
    assert (elsewhere / "large").stat().st_size == 3000000


if IS_ROOT:
    # Only root can mount a disk that is as small as that.

    def test_a_project_on_a_full_disk(person: Person) -> None:
        script = (
            'mount -t tmpfs -o size=256k tmpfs "$1"; cd "$1"; echo old >large; shift; '
            '"$@" run --json -c "head -c 1000000 /dev/zero >large; echo small >small"; '
            "ls -A; cat large; mount -o remount,size=4m .; "
            '"$@" apply >/dev/null; wc -c <large'
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", str(person.project), *cli_argv()],
            env=person.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        first, *rest = done.stdout.splitlines()
        assert states(json.loads(first)) == {"large": "failed", "small": "applied"}, done.stderr
        assert "No space left on device." in first
        assert rest == ["large", "small", "old", "1000000"], done.stderr


def test_a_project_that_is_gone_meanwhile(person: Person) -> None:
    (person.project / "file").write_text("old")
    away = person.home / "away"
    document = run_while(person, "echo new >file", lambda: person.project.rename(away))
    assert any("is missing" in error or "was removed" in error for error in document["errors"])
    assert (away / "file").read_text() == "old"
    away.rename(person.project)
    assert "interrupted" in person.cli("run", "-c", "true").stderr
    assert states(last_changes(person)) == {"file": "pending"}


def test_a_project_that_becomes_a_link_meanwhile(person: Person) -> None:
    (person.project / "file").write_text("old")
    away, other = person.home / "away", person.home / "other"
    other.mkdir()
    (other / "file").write_text("other")

    def swap() -> None:
        person.project.rename(away)
        person.project.symlink_to(other)

    document = run_while(person, "echo new >file; echo x >added", swap)
    assert document["errors"]
    assert look_at(other) == {".": look_at(other)["."], "file": ("-rw-r--r--", b"other")}
    assert (away / "file").read_text() == "old"


def test_a_project_that_cannot_be_written(person: Person) -> None:
    (person.project / "file").write_text("old")
    person.project.chmod(0o555)
    before = look_at(person.project)
    document = person.cli_run("chmod u+w .; echo new >file; chmod u-w .")
    assert states(document) == {"file": "applied"}
    assert look_at(person.project) == {**before, "file": ("-rw-r--r--", b"new\n")}
    person.project.chmod(0o755)


# --- the database -------------------------------------------------------------------------------


def test_a_database_that_is_damaged_meanwhile(person: Person) -> None:
    person.cli("run", "-c", "echo 1 >first")

    def damage() -> None:
        for file in person.paths.data.glob("ollmsandbox.db*"):
            file.write_bytes(b"garbage" * 1000)

    document = run_while(person, "echo 2 >second", damage)
    person.cli("run", "-c", "true")
    assert (person.project / "first").read_text() == "1\n"
    assert (person.project / "second").read_text() == "2\n", document
    assert list(person.paths.data.glob("ollmsandbox-broken-*"))


@pytest.mark.anybody
def test_a_database_that_stays_locked(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.cli("run", "-c", "echo 1 >first")
    monkeypatch.setattr(Database, "__init__", partialmethod(Database.__init__, patience=0.2))
    with contextlib.closing(sqlite3.connect(person.paths.database)) as database:
        database.execute("BEGIN EXCLUSIVE")
        failed = cli_here(person, "run", "-c", "echo 2 >second")
        assert failed.returncode == 125
        assert "locked" in failed.stderr
        database.rollback()
    done = person.cli("run", "-c", "cat second")
    assert done.stdout == "2\n"
    assert "interrupted" in done.stderr
    assert (person.project / "second").read_text() == "2\n"
