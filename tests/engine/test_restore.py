# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a project's files back to an earlier point."""

from __future__ import annotations

from support.changes import states
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.engine.restore import changes_to_restore, runs_since, undo_runs
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode


def _since(review: Review, person: Person, run_id: str) -> list[Run]:
    return runs_since(review.manager, person.project, review.manager.run(run_id).started_at)


def _states(review: Review, run_id: str) -> set[State]:
    return {item.state for item in read_changes(review.manager, review.manager.run(run_id))}


def test_all_later_runs_are_undone_and_earlier_ones_stay(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("0\n")
    person.record("echo 1 > file; echo first > kept")
    second = person.record("echo 2 > file; mkdir folder; echo > folder/new")
    person.record("echo 3 > file; echo more > folder/new; rm kept")
    runs = _since(review, person, second.run_id)
    listed = {i.change.path for r in changes_to_restore(review.manager, runs) for i in r.changes}
    assert listed == {"file", "folder", "folder/new", "kept"}
    done = undo_runs(review, runs)
    assert {item.state for report in done for item in report.changes} == {State.UNDONE}
    assert file.read_text() == "1\n"
    assert (person.project / "kept").read_text() == "first\n"
    assert not (person.project / "folder").exists()
    # Then there is nothing left to restore.
    assert changes_to_restore(review.manager, runs) == []
    assert undo_runs(review, runs) == []


def test_pending_changes_are_discarded(person: Person, review: Review) -> None:
    applied = person.record("echo 1 > one")
    pending = person.record("echo 2 > two; echo 3 >> one", Mode.REVIEW)
    runs = _since(review, person, applied.run_id)
    undo_runs(review, runs)
    assert not (person.project / "one").exists()
    assert _states(review, applied.run_id) == {State.UNDONE}
    assert _states(review, pending.run_id) == {State.DISCARDED}
    # The next command does not see them either.
    assert person.run("ls").stdout.text == ""


def test_edits_of_the_user_stay_and_their_lines_are_a_conflict(
    person: Person, review: Review
) -> None:
    merged, edited = person.project / "merged", person.project / "edited"
    for file in (merged, edited):
        file.write_text("1\n2\n3\n4\n5\n6\n7\n")
    first = person.record("sed -i s/1/one/ merged edited")
    person.record("sed -i s/2/two/ merged edited")
    merged.write_text(merged.read_text().replace("7", "mine"))
    edited.write_text(edited.read_text().replace("two", "mine"))
    done = undo_runs(review, _since(review, person, first.run_id))
    assert merged.read_text() == "1\n2\n3\n4\n5\n6\nmine\n"
    assert "mine" in edited.read_text()
    left = {path for r in done for path, state in states(r).items() if state is State.CONFLICT}
    assert left == {"edited"}
    # Only the runs of a session, of this project and of that time are meant.
    since = review.manager.run(first.run_id).started_at
    assert runs_since(review.manager, person.project, since, session_id="another") == []
    assert runs_since(review.manager, person.project, since + 600) == []
    assert runs_since(review.manager, person.home, since) == []
