# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that run at once, and changes on pending ones: nothing is applied or discarded
unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changes import states
from support.escape.copy_back import during
from support.person import Person

from ollmsandbox.project import hunks, state
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

LINES = "".join(f"{number}\n" for number in range(1, 31))


@pytest.fixture
def hook(person: Person) -> Path:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    return person.project / ".git/hooks/pre-commit"


def review_run(person: Person, command: str) -> str:
    """Run a command while another one runs; return the id of the run."""
    return str(person.cli_run(command, "--apply", "review")["run_id"])


def states_of(review: Review, run_id: str) -> dict[str, State]:
    rows = read_changes(review.manager, review.manager.run(run_id))
    return {row.change.path: row.state for row in rows}


def test_undo_applies_no_held_hook(person: Person, review: Review, hook: Path) -> None:
    first = person.record("echo evil >.git/hooks/pre-commit").run_id
    second = person.record("rm .git/hooks/pre-commit; echo junk >junk")
    assert states(second) == {".git/hooks/pre-commit": State.PENDING, "junk": State.APPLIED}
    review.undo(review.manager.run(second.run_id))
    assert not hook.exists()
    assert states_of(review, first) == {".git/hooks/pre-commit": State.PENDING}


def test_a_hunk_applies_no_held_change_of_another_run(
    person: Person, review: Review, hook: Path
) -> None:
    hook.write_text(LINES)
    first = person.record("sed -i '2s/.*/evil/' .git/hooks/pre-commit").run_id
    second = person.record("sed -i '25s/.*/fine/' .git/hooks/pre-commit").run_id
    run = review.manager.run(second)
    [item] = read_changes(review.manager, run)
    found = state.text_versions(review.manager, run, item)
    assert found is not None
    hunks.apply_hunks(review.manager, run, item, found.hunks)
    assert hook.read_text() == LINES.replace("25\n", "fine\n")
    assert set(states_of(review, first).values()) == {State.PENDING}


@pytest.mark.parametrize(
    ("first", "second"),
    [("rm d/x", "rmdir d"), ("rm -r d", "echo second >d"), ("rm f", "echo second >f")],
)
def test_what_was_restored_meanwhile_is_not_deleted(
    person: Person, review: Review, first: str, second: str
) -> None:
    (person.project / "d").mkdir()
    for name in ("d/x", "f"):
        (person.project / name).write_text("precious\n")
    run = person.record(first, Mode.REVIEW).run_id
    done = during(person, second, lambda: review.discard(review.manager.run(run)), Mode.AUTO)
    assert set(states(done).values()) == {State.CONFLICT}
    assert [(person.project / name).read_text() for name in ("d/x", "f")] == ["precious\n"] * 2


def test_of_two_parallel_versions_the_chosen_one_keeps_what_both_saw(
    person: Person, review: Review
) -> None:
    file = person.project / "f"
    file.write_text(LINES)
    person.record("sed -i '1s/.*/ZERO/' f", Mode.REVIEW)
    firsts: list[str] = []

    def meanwhile() -> None:
        firsts.append(review_run(person, "sed -i '5s/.*/A/' f"))

    second = during(person, "sed -i '5s/.*/B/' f", meanwhile, Mode.REVIEW)
    assert states(second) == {"f": State.PENDING}
    third = person.record("sed -i '25s/.*/C/' f", Mode.REVIEW).run_id
    for run_id, expected in (
        (second.run_id, LINES.replace("5\n", "B\n", 1)),
        (third, LINES.replace("5\n", "B\n", 1).replace("25\n", "C\n")),
    ):
        assert states(review.apply(review.manager.run(run_id))) == {"f": State.APPLIED}
        assert file.read_text() == expected
    # The other one stays a conflict until the user decides.
    assert states(review.apply(review.manager.run(firsts[0]))) == {"f": State.CONFLICT}
    assert states_of(review, firsts[0]) == {"f": State.CONFLICT}
    assert file.read_text() == expected
    waiting = review.waiting(review.manager.add_project(person.project))
    assert len(waiting) == 2


def test_an_edit_is_reported_before_one_of_two_replaces_it(person: Person, review: Review) -> None:
    file = person.project / "f"
    file.write_text("old\n")
    second = during(person, "echo B >f", lambda: review_run(person, "echo A >f"), Mode.REVIEW)
    file.write_text("mine\n")
    run = review.manager.run(second.run_id)
    assert states(review.apply(run, [str(file)])) == {"f": State.CONFLICT}
    assert file.read_text() == "mine\n"
    assert states(review.apply(run, [str(file)])) == {"f": State.APPLIED}
    assert file.read_text() == "B\n"
    assert states(review.undo(run)) == {"f": State.UNDONE}
    assert file.read_text() == "mine\n"


def test_a_command_that_did_not_see_a_pending_change_is_applied_by_itself(
    person: Person, review: Review
) -> None:
    file = person.project / "f"
    file.write_text(LINES)
    firsts: list[str] = []

    def meanwhile() -> None:
        firsts.append(review_run(person, "sed -i '5s/.*/A/' f"))

    second = during(person, "sed -i '25s/.*/B/' f", meanwhile, Mode.AUTO)
    assert states(second) == {"f": State.APPLIED}
    assert file.read_text() == LINES.replace("25\n", "B\n")
    assert states_of(review, firsts[0]) == {"f": State.PENDING}
    assert states(review.apply(review.manager.run(firsts[0]))) == {"f": State.APPLIED}
    assert file.read_text() == LINES.replace("25\n", "B\n").replace("5\n", "A\n", 1)


def test_modes_of_two_runs_are_merged(person: Person, review: Review) -> None:
    file = person.project / "f"
    file.write_text(LINES)
    file.chmod(0o644)
    during(
        person,
        "sed -i '5s/.*/five/' f",
        lambda: review_run(person, "chmod 755 f"),
        Mode.REVIEW,
    )
    project = review.manager.find_project(person.project)
    assert project is not None
    for report in review.apply_all(project):
        assert set(states(report).values()) == {State.APPLIED}
    assert (file.read_text(), file.stat().st_mode & 0o777) == (
        LINES.replace("5\n", "five\n", 1),
        0o755,
    )


def test_a_pending_mode_is_not_applied(person: Person, review: Review) -> None:
    (person.project / "s").write_text("s\n")
    run = review.manager.run(person.record("chmod 755 s; echo t >t", Mode.REVIEW).run_id)
    review.apply(run, [f"{person.project}/t"])
    assert states(review.undo(run)) == {"t": State.UNDONE}
    assert states_of(review, run.id)["s"] is State.PENDING
