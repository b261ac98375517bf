# SPDX-License-Identifier: GPL-3.0-or-later
"""Both versions of each change of an earlier run, searching runs, and cleaning up at start."""

from __future__ import annotations

import os
import threading
import time

import pytest
from support.person import Person
from support.timing import PATIENCE, wait_for

from ollmsandbox.database.tables import FileRecord, Run
from ollmsandbox.files.overlayfs import find_in_layers, names_in_layers
from ollmsandbox.project import backups
from ollmsandbox.project.change import Type
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.jobs import project_lock
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.project.recover import recover
from ollmsandbox.project.review import Review
from ollmsandbox.project.settings import KEEP_DAYS
from ollmsandbox.project.versions import Version, Versions
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.text.diff import LARGEST

pytestmark = pytest.mark.ordinary


def write(person: Person, review: Review, name: str, text: str, mode: Mode = Mode.AUTO) -> Run:
    return review.manager.run(person.write(name, text, mode))


def both(review: Review, run: Run) -> tuple[Version, Version]:
    [item] = read_changes(review.manager, run)
    versions = Versions(review.manager)
    return versions.before(run, item), versions.after(run, item)


def texts(review: Review, run: Run) -> tuple[str | None, str | None]:
    """None for what is not known."""
    before, after = both(review, run)
    return (
        before.read().decode() if before.note is None else None,
        after.read().decode() if after.note is None else None,
    )


# --- versions ----------------------------------------------------------------------------------


def test_a_run_shows_its_own_versions_after_later_ones(person: Person, review: Review) -> None:
    (person.project / "file").write_text("0")
    runs = [write(person, review, "file", str(number)) for number in (1, 2, 3)]
    assert [texts(review, run) for run in runs] == [("0", "1"), ("1", "2"), ("2", "3")]
    review.undo(runs[2])
    assert [texts(review, run) for run in runs] == [("0", "1"), ("1", "2"), ("2", "3")]
    review.undo(runs[1])
    assert [texts(review, run) for run in runs] == [("0", "1"), ("1", "2"), ("2", "3")]


def test_what_a_command_did_does_not_change(person: Person, review: Review) -> None:
    (person.project / "file").write_text("0\n")
    run = write(person, review, "file", "1\n")
    (person.project / "file").write_text("by hand\n")
    for _ in range(2):
        assert texts(review, run) == ("0\n", "1\n")
        shown = person.cli("changes", run.id, "--diff").stdout
        assert "-0\n+1\n" in shown and "by hand" not in shown and "later" not in shown
        person.write("file", "later\n")


def test_an_overwritten_large_version_is_gone(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("0")
    run = write(person, review, "file", "1" * (LARGEST + 1))
    file.write_text("by hand")
    assert texts(review, run) == ("0", None)
    assert both(review, run)[1].note == Note(Reason.CHANGED_SINCE)
    assert "not available" in person.cli("changes", run.id, "--diff").stdout


def test_pending_and_discarded_changes_have_both_versions(person: Person, review: Review) -> None:
    (person.project / "file").write_text("disk")
    first = write(person, review, "file", "first", Mode.REVIEW)
    assert texts(review, first) == ("disk", "first")
    second = write(person, review, "file", "second", Mode.REVIEW)
    assert texts(review, first) == ("disk", "first")
    assert texts(review, second) == ("first", "second")
    review.discard(second)
    assert texts(review, second) == ("first", "second")


def test_a_version_has_its_type_and_size(person: Person, review: Review) -> None:
    run = write(person, review, "picture.png", "12345")
    before, after = both(review, run)
    assert (before.type, before.size, before.note) == (None, 0, None)
    assert (after.type, after.size) == (Type.FILE, 5)
    assert after.read(2) == b"12"


def test_a_link_around_a_file_does_not_lead_to_another(person: Person, review: Review) -> None:
    (person.project / "folder").mkdir()
    run = write(person, review, "folder/file", "mine")
    secret = person.home / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    (person.project / "folder").rename(person.home / "away")
    (person.project / "folder").symlink_to(secret)
    assert texts(review, run) == ("", "mine")
    layers = [str(person.project)]
    assert find_in_layers(layers, "folder/file") is None
    assert names_in_layers(layers, "folder") == []


# --- runs --------------------------------------------------------------------------------------


def test_runs_are_found_by_command_and_by_path(person: Person, review: Review) -> None:
    for name in ("src/main.c", "100%_done", "README"):
        write(person, review, name, "text")
    manager = review.manager
    project = manager.add_project(person.project)

    def found(text: str) -> list[str]:
        return [run.command for run in manager.runs(project, text=text)]

    assert found("MAIN.c") == ["Edit of main.c"]
    assert found("src/") == ["Edit of main.c"]
    assert found("%_") == ["Edit of 100%_done"]
    assert found("edit of") == ["Edit of README", "Edit of 100%_done", "Edit of main.c"]
    assert found("\udcff") == []
    assert [run.command for run in manager.runs(project, 1, text="edit")] == ["Edit of README"]


# --- care --------------------------------------------------------------------------------------


def test_the_start_recovers_cleans_up_and_reports(person: Person, review: Review) -> None:
    run = write(person, review, "file", "text", Mode.REVIEW)
    review.close()
    stale = person.paths.backups / "1-20-01-01-file"
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    person.paths.database.write_bytes(b"garbage" * 100)
    recovered = recover(person.paths)
    assert not stale.exists()
    assert any("The database was damaged" in notice for notice in recovered.notices)
    assert (recovered.errors, recovered.finished) == ((), ())
    assert recover(person.paths) == type(recovered)()
    # The runs are listed again.
    review = Review(person.paths)
    assert [one.id for one in review.waiting(review.manager.add_project(person.project))] == [
        run.id
    ]
    review.close()


def test_a_locked_project_is_not_cleaned_up(person: Person, review: Review) -> None:
    old = write(person, review, "file", "1")
    write(person, review, "file", "2")
    later = time.time() + (KEEP_DAYS.default + 1) * 86400
    removed: list[str] = []

    def clean() -> None:
        removed.extend(backups.cleanup_old_runs(review.manager, now=later))
        review.manager.store.close()

    cleaner = threading.Thread(target=clean)
    with project_lock(person.paths, str(person.project)):
        cleaner.start()
        _wait_until_locked_out(person)
        assert (person.paths.runs / old.id).is_dir()
        review.manager.store.connection.execute(
            "UPDATE change SET state = 'failed' WHERE run_id = ?", (old.id,)
        )
        review.manager.store.connection.commit()
    cleaner.join(timeout=PATIENCE)
    # One whose changes have begun to wait stays.
    assert old.id not in removed
    assert len(removed) == 1


def _wait_until_locked_out(person: Person) -> None:
    lock = person.paths.project_data(str(person.project)) / "lock"
    inode = f":{lock.stat().st_ino} "

    def is_awaited() -> bool:
        with open("/proc/locks", encoding="ascii") as locks:
            return any("->" in line and inode in line for line in locks)

    wait_for(is_awaited)


def test_records_of_deleted_files_go_with_their_backups(person: Person, review: Review) -> None:
    for name in ("gone", "kept"):
        (person.project / name).write_text(name)
        write(person, review, name, "new")
    person.record("rm gone")
    assert review.manager.cleanup_old_backups(now=time.time() + 6 * 86400) == 0
    assert FileRecord.select().count() == 2
    assert review.manager.cleanup_old_backups(now=time.time() + 9 * 86400) == 2
    assert list(person.paths.backups.iterdir()) == []
    [kept] = FileRecord.select()
    assert (os.path.basename(kept.path), kept.last_approved_copy_path) == ("kept", None)
