# SPDX-License-Identifier: GPL-3.0-or-later
"""The database is only an index of runs: without it, they are listed again with their states."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project import recover as recovering
from ollmsandbox.project.backups import clean_up
from ollmsandbox.project.change import State
from ollmsandbox.project.index import count_states, read_changes
from ollmsandbox.project.recover import recover, repair_index
from ollmsandbox.project.review import Review
from ollmsandbox.project.state import read_current
from ollmsandbox.project.write_file import write_file
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.ordinary


def write(person: Person, name: str, text: str, mode: Mode = Mode.AUTO) -> str:
    project = str(person.project)
    report = write_file(
        person.paths,
        RunSpec(project, mode=mode, session_id="s", call_id=f"call {name}"),
        f"{project}/{name}",
        text.encode(),
    )
    return report.run_id


def make_history(person: Person) -> dict[str, str]:
    """Make one run for each state; return their ids."""
    for name in ("applied", "undone", "discarded", "pending", "conflict", "partly"):
        (person.project / name).write_text(f"old {name}\n")
    ids = {name: write(person, name, f"new {name}\n") for name in ("applied", "undone")}
    for name in ("discarded", "pending", "conflict"):
        ids[name] = write(person, name, f"new {name}\n", Mode.REVIEW)
    with closing(Review(person.paths)) as review:
        review.undo(review.manager.run(ids["undone"]))
        review.discard(review.manager.run(ids["discarded"]))
        (person.project / "conflict").write_text("mine\n")
        review.apply(review.manager.run(ids["conflict"]))
    ids["failed command"] = person.record("echo >made; exit 3").run_id
    return ids


def look(person: Person) -> list[object]:
    """Return what is recorded of all runs, the newest first."""
    with closing(Review(person.paths)) as review:
        runs = review.manager.runs(limit=-1)
        counts = count_states(review.manager, [run.id for run in runs])
        return [
            (
                *(run.id, run.command, run.mode, run.exit_code, run.session_id, run.call_id),
                run.project.path,
                counts[run.id],
                read_changes(review.manager, run),
                read_current(review.manager, run),
            )
            for run in runs
        ]


def lose_index(person: Person) -> None:
    for file in person.paths.data.glob("ollmsandbox.db*"):
        file.unlink()


@pytest.mark.parametrize("way", ["deleted", "damaged", "emptied"])
def test_all_runs_are_listed_again_with_their_states(person: Person, way: str) -> None:
    ids = make_history(person)
    before = look(person)
    assert len(before) == len(ids)
    if way == "damaged":
        person.paths.database.write_bytes(b"garbage" * 1000)
    elif way == "deleted":
        lose_index(person)
    else:
        with closing(Review(person.paths)) as review, review.manager.store.transaction() as tables:
            tables.execute("DELETE FROM run")
            tables.execute("DELETE FROM setting")
    recovered = recover(person.paths)
    assert recovered.errors == ()
    assert any("listed again" in notice for notice in recovered.notices)
    assert look(person) == before
    # That is said once.
    assert recover(person.paths).notices == ()

    with closing(Review(person.paths)) as review:
        applied = review.manager.run(ids["applied"])
        assert [item.state for item in review.undo(applied).changes] == [State.UNDONE]
        assert (person.project / "applied").read_text() == "old applied\n"
        undone = review.manager.run(ids["undone"])
        assert [item.state for item in review.apply(undone).changes] == [State.APPLIED]
        assert (person.project / "undone").read_text() == "new undone\n"
        waiting = review.waiting(applied.project)
        assert [run.id for run in waiting] == [ids["pending"], ids["conflict"]]
        discarded = review.manager.run(ids["discarded"])
        chosen = [str(person.project / "discarded")]
        assert [item.state for item in review.apply(discarded, chosen).changes] == [State.APPLIED]


def test_the_program_notices_by_itself_that_the_index_is_lost(person: Person) -> None:
    run_id = write(person, "file", "text")
    lose_index(person)
    document = person.cli_run("true")
    assert document["errors"] == []
    assert "listed again" in "".join(document["notices"])
    assert run_id in person.cli("history").stdout
    assert person.cli("undo", run_id).returncode == 0
    assert not (person.project / "file").exists()


def test_pending_changes_are_listed_again_by_the_command_line(person: Person) -> None:
    for name in ("file", "gone", "folder/leaf"):
        (person.project / name).parent.mkdir(exist_ok=True)
        (person.project / name).write_text("old\n")
    command = "echo new >file; rm gone; rm -r folder; mkdir made; echo new >made/new"
    person.record(command, Mode.REVIEW)
    before = _waiting(person)
    person.paths.database.write_bytes(b"garbage" * 1000)
    first = cli_here(person, "changes", "--all")
    assert "damaged" in first.stderr
    assert "listed again" in first.stderr
    assert _waiting(person) == before
    # Said once, and found once.
    again = cli_here(person, "changes", "--all")
    assert again.stderr == ""
    assert again.stdout.count("modified  file") == 1
    assert cli_here(person, "apply", "--all").returncode == 0
    assert (person.project / "file").read_text() == "new\n"
    assert (person.project / "made/new").read_text() == "new\n"
    assert not (person.project / "gone").exists()
    assert not (person.project / "folder").exists()
    assert cli_here(person, "changes", "--all", "--json").stdout == "[]\n"
    assert cli_here(person, "undo").returncode == 0
    assert (person.project / "folder/leaf").read_text() == "old\n"


def test_a_run_before_the_recovery_does_not_hide_the_rest(person: Person) -> None:
    write(person, "first", "first\n", Mode.REVIEW)
    person.paths.database.write_bytes(b"garbage" * 1000)
    # Only after this one has ended is the database needed.
    command = "cat first; echo second >second"
    done = person.cli("run", "--apply", "review", "-c", command)
    assert (done.returncode, done.stdout) == (0, "first\n")
    assert _waiting(person) == {"first": ("added", "pending"), "second": ("added", "pending")}


def test_a_file_changed_since_is_not_replaced_unasked(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    write(person, "file", "new\n", Mode.REVIEW)
    file.write_text("mine\n")
    person.paths.database.write_bytes(b"garbage" * 1000)
    assert cli_here(person, "apply", "--all").returncode == 1
    assert file.read_text() == "mine\n"
    person.paths.database.write_bytes(b"garbage" * 1000)
    assert cli_here(person, "discard", "--all").returncode == 0
    assert person.cli("run", "-c", "cat file").stdout == "mine\n"


def test_a_project_that_is_not_there_is_found_when_it_is_back(person: Person) -> None:
    write(person, "file", "new\n", Mode.REVIEW)
    away = person.home / "away"
    person.project.rename(away)
    person.paths.database.write_bytes(b"garbage" * 1000)
    other = Person(person.home, person.home / "other", person.environ)
    other.project.mkdir()
    assert _waiting(other) == {}
    away.rename(person.project)
    assert _waiting(person) == {"file": ("added", "pending")}


def _waiting(person: Person) -> dict[str, tuple[str, str]]:
    runs = json.loads(cli_here(person, "changes", "--all", "--json").stdout)
    return {
        change["path"]: (change["kind"], change["state"])
        for run in runs
        for change in run["changes"]
    }


def test_the_next_command_sees_pending_changes_without_the_index(person: Person) -> None:
    write(person, "file", "pending", Mode.REVIEW)
    lose_index(person)
    seen = find_in_layers(person.layers(), "file")
    assert seen is not None
    assert read_seen(seen) == b"pending"
    # What builds on it waits, too.
    assert write(person, "file", "more")
    assert not (person.project / "file").exists()


def test_an_index_that_lacks_one_run_gets_it_back(person: Person, review: Review) -> None:
    ids = make_history(person)
    before = look(person)
    with review.manager.store.transaction() as tables:
        tables.execute("DELETE FROM run WHERE id = ?", (ids["pending"],))
    assert len(look(person)) == len(before) - 1
    [notice] = repair_index(review.manager, always=True)
    assert "1" in notice
    assert look(person) == before
    assert repair_index(review.manager) == []
    # Runs that are known keep their states.
    assert repair_index(review.manager, always=True) == []
    assert look(person) == before


def test_runs_that_cannot_be_read_are_left_out_and_not_cleaned_up(person: Person) -> None:
    ids = [write(person, name, "text", Mode.REVIEW) for name in "abc"]
    (person.paths.runs / ids[0] / "run.json").write_text("{half")
    (person.paths.runs / ids[1] / "changes.jsonl").write_text("[half")
    lose_index(person)
    _make_old(person)
    recover(person.paths)
    with closing(Review(person.paths)) as review:
        assert [run.id for run in review.manager.runs()] == [ids[2]]
    for run_id in ids:
        assert (person.paths.runs / run_id / "result/0").read_text() == "text"


def test_nothing_is_removed_without_index(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = write(person, "file", "text", Mode.REVIEW)
    lose_index(person)
    _make_old(person)

    def fail(*_: object) -> int:
        raise OllmSandboxError("The database is locked.", "Try again.")

    with monkeypatch.context() as patch:
        patch.setattr(recovering, "rebuild", fail)
        assert recover(person.paths).errors
    with closing(Review(person.paths)) as review:
        clean_up(review.manager)
    assert (person.paths.runs / run_id / "result/0").read_text() == "text"
    (person.paths.cache / "cleaned").unlink(missing_ok=True)
    recover(person.paths)
    with closing(Review(person.paths)) as review:
        assert [item.state for item in review.apply(review.manager.run(run_id)).changes] == [
            State.APPLIED
        ]
    assert (person.project / "file").read_text() == "text"


def _make_old(person: Person) -> None:
    """Let the runs be from a week ago, and the last clean-up, too."""
    long_ago = time.time() - 7 * 86400
    for path in (*person.paths.runs.rglob("*"), *person.paths.runs.iterdir()):
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    (person.paths.cache / "cleaned").unlink(missing_ok=True)
