# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures while a command runs: a kill, edits by the user, a full disk, a broken database, a
missing project."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import pytest
from support import changes
from support.cli_inline import cli_here
from support.escape.attack import IS_ROOT
from support.escape.copy_back import during, review, settle
from support.escape.kill import look_at
from support.escape.paused import WAIT, kill, last_changes, run_while, running, states
from support.person import Person, cli_argv
from support.timing import PATIENCE

from ollmsandbox.database.connection import Database
from ollmsandbox.project import capture
from ollmsandbox.project.change import State
from ollmsandbox.sandbox.overlay import clock_offset
from ollmsandbox.sandbox.spec import Mode

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


CHANGES_OF_MINE: dict[str, Callable[[Path], None]] = {
    "edited": _edit,
    "created": _edit,
    "folder": _make_folder,
    "link": _make_link,
    "deleted": Path.unlink,
}


@pytest.fixture
def conflicts(person: Person) -> str:
    """The run of a command that changed the same files as the user did meanwhile. Only root's
    overlays tell of a deleted file that it had been there."""
    for name in ("edited", "folder", "link", "deleted", "file"):
        (person.project / name).write_text("old")

    def change() -> None:
        for name, act in CHANGES_OF_MINE.items():
            act(person.project / name)

    names = " ".join(CHANGES_OF_MINE)
    command = f"for name in {names} file other; do echo theirs >$name; done; mv file moved"
    report = during(person, command, change, Mode.AUTO)
    found = changes.states(report)
    for name in ("file", "moved", "other"):
        assert found.pop(name) is State.APPLIED
    # What is in a folder of mine, the command had not seen.
    assert found.pop("folder/inside", State.CONFLICT) is State.CONFLICT
    assert found == dict.fromkeys(CHANGES_OF_MINE, State.CONFLICT)
    return report.run_id


@pytest.mark.anybody
def test_files_that_the_user_changes_during_the_run(person: Person, conflicts: str) -> None:
    mine = look_at(person.project)
    shown = cli_here(person, "changes", conflicts, "--diff").stdout
    assert shown.count("+theirs") >= len(CHANGES_OF_MINE)
    assert shown.count("-mine") >= 2
    # Without being named they stay.
    review(person, "apply", conflicts)
    assert look_at(person.project) == mine
    took = review(person, "apply", conflicts, *CHANGES_OF_MINE)
    assert {changes.states(took)[name] for name in CHANGES_OF_MINE} == {State.APPLIED}
    assert {(person.project / name).read_text() for name in CHANGES_OF_MINE} == {"theirs\n"}
    review(person, "undo", conflicts, *CHANGES_OF_MINE)
    assert look_at(person.project) == mine


@pytest.mark.anybody
def test_conflicts_that_are_discarded(person: Person, conflicts: str) -> None:
    mine = look_at(person.project)
    review(person, "discard", conflicts, *CHANGES_OF_MINE)
    assert look_at(person.project) == mine
    assert "theirs" not in person.run(f"cat {' '.join(CHANGES_OF_MINE)}").stdout.text


@pytest.mark.ordinary
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


@pytest.mark.ordinary
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


@pytest.mark.ordinary
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


@pytest.mark.ordinary
@pytest.mark.parametrize("mode", ["auto", "review", "never"])
def test_changes_that_cannot_be_recorded_are_kept(person: Person, mode: str) -> None:
    database = person.paths.database
    done = run_while(person, "echo >file", lambda: database.mkdir(parents=True), "--apply", mode)
    [error] = done["errors"] if mode != "never" else [""]
    assert ("changes could not be recorded" in error) == (mode != "never")
    assert ("There is a folder where the database should be" in error) == (mode != "never")
    database.rmdir()
    assert ("1 change" in cli_here(person, "history").stderr) == (mode != "never")
    assert (person.project / "file").exists() == (mode == "auto")


# --- pending changes that are settled meanwhile --------------------------------------------------


@pytest.mark.parametrize("act", ["apply", "discard"])
def test_a_running_command_still_sees_the_project_after_pending_changes_are_settled(
    person: Person, act: str
) -> None:
    folder = person.project / "folder"
    folder.mkdir()
    for file in (person.project / "file", folder / "leaf", folder / "other"):
        file.write_text("old\n")
    settle(person, "echo new >file; echo new >folder/leaf", Mode.REVIEW)
    with running(person, f"ls; {WAIT} ls -A . folder; ls -A folder/..", "--quiet") as process:
        done = cli_here(person, act, "--all")
        assert done.returncode == 0, done.stderr
        # Who begins now has nothing of that layer.
        assert person.run("ls folder").stdout.text == "leaf\nother\n"
        (person.playground / "go").touch()
        said, _ = process.communicate(timeout=PATIENCE)
    before, after = "file\nfolder\n", ".:\nfile\nfolder\n\nfolder:\nleaf\nother\n"
    assert said.decode() == f"{before}{after}{before}"
    # What was left for it is gone with the next thing that waits.
    run = settle(person, "echo newer >file", Mode.REVIEW).run_id
    review(person, "discard", run)
    assert not [*person.paths.projects.glob("*/layer-*"), *person.paths.projects.glob("*/.layer-*")]
