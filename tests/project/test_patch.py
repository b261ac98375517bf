# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is a patch: it is merged in and out, and the lines of the user stay."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from support.changes import row, states
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.project import state
from ollmsandbox.project.change import State
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.ui.changes.actions import act_on_run

pytestmark = pytest.mark.ordinary

OLD = "".join(f"line {number}\n" for number in range(1, 31))
NEW = OLD.replace("line 3\n", "third\n").replace("line 20\n", "twentieth\n")
MINE = "my own line\n"
CONFLICT = {"file": State.CONFLICT}
APPLIED = {"file": State.APPLIED}
UNDONE = {"file": State.UNDONE}


@pytest.fixture
def file(person: Person) -> Path:
    file = person.project / "file"
    file.write_text(OLD)
    return file


def write(person: Person, review: Review, text: str = NEW, mode: Mode = Mode.AUTO) -> Run:
    return review.manager.run(person.write("file", text, mode))


def run(person: Person, review: Review, command: str) -> Run:
    return review.manager.run(person.record(command).run_id)


def look_at(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode for file in folder.iterdir()}


@pytest.mark.parametrize("by", ["the user", "a command"])
def test_a_later_edit_elsewhere_stays(person: Person, review: Review, file: Path, by: str) -> None:
    edit = "sed -i -e 's/^line 3$/third/' -e 's/^line 20$/twentieth/' file"
    made = run(person, review, edit)
    if by == "the user":
        file.write_text(NEW + MINE)
    else:
        run(person, review, f"printf '{MINE}' >> file")
    assert states(review.undo(made)) == UNDONE
    assert file.read_text() == OLD + MINE
    assert states(review.apply(made)) == APPLIED
    assert file.read_text() == NEW + MINE


def test_a_mode_that_the_user_set_stays(person: Person, review: Review, file: Path) -> None:
    file.chmod(0o644)
    made = run(person, review, "sed -i 's/^line 3$/third/' file; chmod 600 file")
    file.write_text(file.read_text() + MINE)
    file.chmod(0o640)
    review.undo(made)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (OLD + MINE, 0o640)


@pytest.mark.parametrize("command", ["chmod 000 file", "rm -f file", "cp file new; chmod 000 new"])
def test_a_file_nobody_may_read(person: Person, review: Review, file: Path, command: str) -> None:
    file.chmod(0o200 if command.startswith("rm") else 0o600)
    before = look_at(person.project)
    made = run(person, review, command)
    after = look_at(person.project)
    for _ in range(2):
        review.undo(made)
        assert look_at(person.project) == before
        review.apply(made)
        assert look_at(person.project) == after


# --- conflicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_a_conflict_is_told_again(person: Person, review: Review, file: Path, verb: str) -> None:
    made = write(person, review, mode=Mode.REVIEW if verb == "apply" else Mode.AUTO)
    if verb == "redo":
        review.undo(made)
    decide = review.undo if verb == "undo" else review.apply
    for text in ("mine\n", "mine again\n"):
        file.write_text(NEW.replace("third\n", text))
        [item] = decide(made, [str(file)]).changes
        assert item.state is State.CONFLICT and item.is_because(Reason.SAME_LINES)
        assert file.read_text() == NEW.replace("third\n", text)
    assert verb != "undo" or row(review, made).state is State.APPLIED
    assert states(decide(made, [str(file)])) == (UNDONE if verb == "undo" else APPLIED)
    assert file.read_text() == (OLD if verb == "undo" else NEW)


def test_a_conflict_is_told_again_of_a_new_file(person: Person, review: Review) -> None:
    file = person.project / "folder/file"
    file.parent.mkdir()
    file.write_text(OLD)
    made = review.manager.run(person.write("folder/file", NEW, Mode.REVIEW))
    file.unlink()
    [item] = review.apply(made, [str(file)]).changes
    assert item.is_because(Reason.REMOVED)
    file.write_text("mine\n")
    [item] = review.apply(made, [str(file)]).changes
    assert item.is_because(Reason.SAME_LINES)
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to("/")
    [item] = review.apply(made, [str(file)]).changes
    assert item.is_because(Reason.PARENT_REPLACED)
    file.parent.unlink()
    file.parent.mkdir()
    file.write_text("mine\n")
    [item] = review.apply(made, [str(file)]).changes
    assert item.state is State.CONFLICT
    assert file.read_text() == "mine\n"


def test_a_conflict_can_be_resolved_by_hand(person: Person, review: Review, file: Path) -> None:
    made = write(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n"))
    assert states(review.apply(made)) == CONFLICT
    file.write_text(OLD + MINE)
    assert person.cli("apply", "--all").returncode == 0
    file.write_text(NEW.replace("third\n", "mine\n") + MINE)
    assert states(review.undo(made)) == CONFLICT
    file.write_text(NEW + MINE)
    assert states(review.undo(made, [str(file)])) == UNDONE
    assert file.read_text() == OLD + MINE


def test_a_conflict_ends_with_both_versions(person: Person, review: Review, file: Path) -> None:
    made = write(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n"))
    assert states(review.apply(made)) == CONFLICT
    [report] = review.apply_all(made.project)
    assert states(report) == CONFLICT
    assert person.cli("apply", "--both", made.id, "file").returncode == 0
    assert file.read_text() == NEW.replace("third\n", "mine\nthird\n")
    assert row(review, made).state is State.APPLIED
    assert review.waiting(review.manager.add_project(person.project)) == []


def test_a_choice_counts_for_what_is_shown(person: Person, review: Review, file: Path) -> None:
    made = write(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n"))
    assert states(review.apply(made)) == CONFLICT
    file.write_text(OLD.replace("line 3\n", "mine again\n"))
    assert act_on_run(review, "take", made.id, [str(file)]).count == 1
    assert file.read_text() == NEW


# --- states --------------------------------------------------------------------------------------


def test_one_thread_at_a_time_reads_changes(person: Person, review: Review, file: Path) -> None:
    made = write(person, review)
    with ThreadPoolExecutor() as pool:
        with review.manager.reading:
            reading = pool.submit(state.read_current, review.manager, made)
            # Long enough for a thread that does not wait.
            assert not wait([reading], timeout=0.2).done
        assert [item.state for item in reading.result()] == [State.APPLIED]


def test_the_state_is_read_from_the_project(person: Person, review: Review, file: Path) -> None:
    made = write(person, review)
    cases: dict[str, tuple[str | None, State, Reason | None, str]] = {
        "saved again": (NEW, State.APPLIED, None, "applied"),
        "edited elsewhere": (NEW + MINE, State.APPLIED, None, "applied"),
        "reverted": (OLD, State.UNDONE, None, "undone"),
        "reverted and edited elsewhere": (OLD + MINE, State.UNDONE, None, "undone"),
        "one part reverted": (
            NEW.replace("third\n", "line 3\n"), State.APPLIED, Reason.PARTLY, "partly"
        ),
        "the same line": (NEW.replace("third\n", "x\n"), State.APPLIED, Reason.EDITED, "edited"),
        "removed": (None, State.APPLIED, Reason.EDITED, "edited"),
    }  # fmt: skip
    for case, (text, expected, reason, word) in cases.items():
        file.unlink()
        if text is not None:
            file.write_text(text)
        [item] = state.current_changes(review.manager, made, [row(review, made)])
        assert (item.state, item.note and item.note.reason) == (expected, reason), case
        [listed] = json.loads(cli_here(person, "changes", made.id, "--json").stdout)["changes"]
        assert listed["state"] == word, case


@pytest.mark.parametrize("command", ["echo new > other", "rm file"])
def test_reverting_can_be_undone(person: Person, review: Review, file: Path, command: str) -> None:
    made = run(person, review, command)
    for name, text in (("file", OLD), ("other", None)):
        (person.project / name).unlink(missing_ok=True)
        if text:
            (person.project / name).write_text(text)
    [item] = state.read_current(review.manager, made)
    assert item.state is State.UNDONE
    assert [item.state for item in review.apply(made).changes] == [State.APPLIED]
    assert (person.project / "other").exists() is (command != "rm file")
    assert (person.project / "file").exists() is (command == "echo new > other")


def test_what_a_later_run_did_is_undone_too(person: Person, review: Review, file: Path) -> None:
    file.write_text("old\n")
    first = run(person, review, "echo first >file")
    second = run(person, review, "echo second >file")
    done = person.cli("undo", first.id)
    assert done.returncode == 1
    assert "add --later" in done.stdout
    assert file.read_text() == "second\n"
    done = person.cli("undo", "--later", first.id)
    assert (done.returncode, done.stdout) == (0, "2 changes undone.\n")
    assert file.read_text() == "old\n"
    assert row(review, second).state is State.UNDONE
