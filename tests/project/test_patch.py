# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is a patch: it is merged in and out, and the lines of the user stay."""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from support.changes import parts, row
from support.cli_inline import cli_here
from support.escape.copy_back import WAIT
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.database.tables import Run
from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project import hunks, state
from ollmsandbox.project.change import MANY, Report, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.ui.changes.actions import act_on_run

pytestmark = pytest.mark.ordinary

OLD = "".join(f"line {number}\n" for number in range(1, 31))
NEW = OLD.replace("line 3\n", "third\n").replace("line 20\n", "twentieth\n")
MINE = "my own line\n"
FIRST = OLD.replace("line 3\n", "third\n")
SECOND = OLD.replace("line 20\n", "twentieth\n")
EDIT = "sed -i -e 's/^line 3$/third/' -e 's/^line 20$/twentieth/' file"


@pytest.fixture(autouse=True)
def file(person: Person) -> None:
    (person.project / "file").write_text(OLD)


def run(person: Person, review: Review, command: str = EDIT, mode: Mode = Mode.AUTO) -> Run:
    recorder = Recorder(RunSpec(str(person.project), mode=mode, command=command), person.paths)
    assert person.run(command, keeper=recorder).exit_code == 0
    assert recorder.report is not None
    return review.manager.run(recorder.report.run_id)


def look_at(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode for file in folder.iterdir()}


def waiting(person: Person) -> str:
    """Return the file as the next command sees it."""
    seen = find_in_layers(person.layers(), "file")
    assert seen is not None
    return read_seen(seen).decode()


def test_the_users_line_stays_when_a_hunk_and_then_the_file_are_applied(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    with file.open("a") as opened:
        opened.write(MINE)
    # The diff is what the command did.
    assert [part.new for part in parts(review, made)] == [("third\n",), ("twentieth\n",)]
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert file.read_text() == FIRST + MINE
    review.apply(made)
    assert file.read_text() == NEW + MINE
    assert row(review, made).state is State.APPLIED
    review.undo(made)
    assert file.read_text() == OLD + MINE
    assert review.waiting(review.manager.add_project(person.project)) == []


def test_a_hunk_is_undone_then_the_file_and_both_come_back(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review)
    hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert file.read_text() == NEW.replace("third\n", "line 3\n")
    # It is not a run of its own.
    assert [one.id for one in review.manager.runs(made.project)] == [made.id]
    review.undo(made)
    assert file.read_text() == OLD
    assert row(review, made).state is State.UNDONE
    review.apply(made)
    assert file.read_text() == NEW


@pytest.mark.parametrize("by", ["the user", "a command"])
def test_a_later_edit_elsewhere_stays_when_the_file_is_undone_and_redone(
    person: Person, review: Review, by: str
) -> None:
    file = person.project / "file"
    made = run(person, review)
    if by == "the user":
        file.write_text(NEW + MINE)
    else:
        run(person, review, f"printf '{MINE}' >> file")
    [item] = review.undo(made).changes
    assert item.state is State.UNDONE
    assert file.read_text() == OLD + MINE
    [item] = review.apply(made).changes
    assert item.state is State.APPLIED
    assert file.read_text() == NEW + MINE


def test_an_edit_of_the_same_lines_is_a_conflict_that_writes_nothing(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(mine := NEW.replace("third\n", "mine\n"))
    [item] = review.undo(made).changes
    assert item.state is State.CONFLICT and item.is_because(Reason.SAME_LINES)
    assert file.read_text() == mine
    assert row(review, made).state is State.APPLIED


def test_a_mode_that_the_user_set_stays(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.chmod(0o644)
    made = run(person, review, f"{EDIT}; chmod 600 file")
    file.write_text(NEW + MINE)
    file.chmod(0o640)
    review.undo(made)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (OLD + MINE, 0o640)


def test_a_change_whose_hunks_are_all_redone_is_applied(person: Person, review: Review) -> None:
    made = run(person, review)
    review.undo(made)
    hunks.redo_hunks(review.manager, made, row(review, made), parts(review, made))
    assert (person.project / "file").read_text() == NEW
    assert row(review, made).state is State.APPLIED


def test_the_conflict_of_a_hunk_does_not_allow_to_replace_the_file(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(mine := NEW.replace("third\n", "mine\n") + MINE)
    with pytest.raises(OllmSandboxError):
        hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    [item] = review.undo(made, [str(file)]).changes
    assert item.state is State.CONFLICT
    assert file.read_text() == mine


def test_a_conflict_that_the_user_has_resolved_is_none(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(NEW.replace("third\n", "mine\n") + MINE)
    assert review.undo(made).changes[0].state is State.CONFLICT
    file.write_text(NEW + MINE)
    review.undo(made, [str(file)])
    assert file.read_text() == OLD + MINE


def test_the_last_hunk_is_applied_after_the_user_has_resolved_a_conflict(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n") + MINE)
    assert review.apply(made).changes[0].state is State.CONFLICT
    file.write_text(FIRST + MINE)
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[1:])
    assert file.read_text() == NEW + MINE
    assert row(review, made).state is State.APPLIED


def test_a_discarded_hunk_stays_out_and_can_be_redone(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    both = parts(review, made)
    hunks.discard_hunks(review.manager, made, row(review, made), both[:1])
    review.apply(made)
    review.undo(made)
    assert file.read_text() == OLD
    # The diff still is what the command did.
    assert parts(review, made) == both
    review.apply(made)
    assert file.read_text() == SECOND
    hunks.redo_hunks(review.manager, made, row(review, made), both[:1])
    assert file.read_text() == NEW
    review.undo(made)
    assert file.read_text() == OLD
    review.apply(made)
    assert file.read_text() == NEW


def test_a_discarded_hunk_that_is_applied_is_seen_by_the_next_command(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert waiting(person) == SECOND
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert waiting(person) == NEW


def test_a_discarded_hunk_stays_out_when_a_later_run_is_discarded(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    later = run(person, review, "echo more >>file", mode=Mode.REVIEW)
    assert waiting(person) == f"{SECOND}more\n"
    review.discard(later)
    assert waiting(person) == SECOND


def test_a_hunk_is_discarded_if_the_data_are_on_another_disk(person: Person) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        person.environ["XDG_CACHE_HOME"] = elsewhere
        review = Review(person.paths)
        made = run(person, review, mode=Mode.REVIEW)
        hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
        review.close()
        assert waiting(person) == SECOND


def test_a_change_with_no_hunk_left_to_decide_is_not_pending(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    first, second = parts(review, made)
    hunks.apply_hunks(review.manager, made, row(review, made), [first])
    hunks.discard_hunks(review.manager, made, row(review, made), [second])
    assert (person.project / "file").read_text() == FIRST
    assert row(review, made).state is State.APPLIED
    assert review.waiting(review.manager.add_project(person.project)) == []


def test_an_applied_hunk_of_a_discarded_change_can_be_undone(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    first, second = parts(review, made)
    hunks.apply_hunks(review.manager, made, row(review, made), [first])
    review.discard(made)
    assert file.read_text() == FIRST
    [item] = state.read_current(review.manager, made)
    assert (item.state, item.is_because(Reason.PARTLY)) == (State.APPLIED, True)
    hunks.undo_hunks(review.manager, made, row(review, made), [first])
    assert file.read_text() == OLD
    assert row(review, made).state is State.UNDONE
    hunks.redo_hunks(review.manager, made, row(review, made), [second])
    assert file.read_text() == SECOND
    assert row(review, made).state is State.APPLIED


@pytest.mark.parametrize("command", ["chmod 000 file", "rm -f file", "cp file new; chmod 000 new"])
def test_a_file_that_even_its_owner_may_not_read_comes_and_goes(
    person: Person, review: Review, command: str
) -> None:
    file = person.project / "file"
    file.chmod(0o200 if command.startswith("rm") else 0o600)
    before = look_at(person.project)
    made = run(person, review, command)
    after = look_at(person.project)
    for _ in range(2):
        review.undo(made)
        assert look_at(person.project) == before
        review.apply(made)
        assert look_at(person.project) == after


def meanwhile(person: Person, command: str, other: str) -> tuple[Report, Report]:
    """Run two commands of two sessions: the other one begins later and ends first."""
    project = str(person.project)
    outer, inner = (
        Recorder(RunSpec(project, command=text), person.paths) for text in (command, other)
    )
    person.share_playground()

    async def both() -> None:
        async def work(_data: bytes) -> None:
            if inner.report is None:
                await person.bubble(keeper=inner).exec(other)
                (person.playground / "go").touch()

        await person.bubble(keeper=outer).exec(f"{command}\n{WAIT}", sinks=Sinks(work))

    loop.run(both())
    assert inner.report is not None and outer.report is not None
    return inner.report, outer.report


def test_two_sessions_change_different_lines_of_one_file(person: Person, review: Review) -> None:
    file = person.project / "file"
    first, second = meanwhile(person, "sed -i 's/^line 3$/third/' file", "sed -i '$a more' file")
    assert [item.state for item in (*first.changes, *second.changes)] == [State.APPLIED] * 2
    assert file.read_text() == OLD.replace("line 3\n", "third\n") + "more\n"
    review.undo(review.manager.run(first.run_id))
    assert file.read_text() == OLD.replace("line 3\n", "third\n")
    review.undo(review.manager.run(second.run_id))
    assert file.read_text() == OLD


def test_two_sessions_change_the_same_line(person: Person, review: Review) -> None:
    file = person.project / "file"
    first, second = meanwhile(
        person, "sed -i 's/^line 3$/mine/' file", "sed -i 's/^line 3$/other/' file"
    )
    assert [item.state for item in first.changes] == [State.APPLIED]
    assert [item.state for item in second.changes] == [State.CONFLICT]
    assert file.read_text() == OLD.replace("line 3\n", "other\n")


def test_an_edit_while_the_command_runs_is_not_merged_with_a_wrong_base(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    project = str(person.project)
    recorder = Recorder(RunSpec(project), person.paths)
    person.share_playground()

    async def both() -> None:
        async def work(_data: bytes) -> None:
            if not (person.playground / "go").exists():
                # By the user, and then a command that has seen this.
                file.write_text(OLD + MINE)
                await person.bubble().exec("sed -i 's/^line 20$/other/' file")
                (person.playground / "go").touch()

        command = "sed -i 's/^line 3$/third/' file"
        await person.bubble(keeper=recorder).exec(f"{command}\n{WAIT}", sinks=Sinks(work))

    loop.run(both())
    assert recorder.report is not None
    assert [item.state for item in recorder.report.changes] == [State.CONFLICT]
    assert file.read_text() == OLD.replace("line 20\n", "other\n") + MINE


@pytest.mark.parametrize("others", [0, MANY])
def test_an_edit_while_the_command_runs_in_review_mode_is_no_part_of_its_diff(
    person: Person, review: Review, others: int
) -> None:
    file = person.project / "file"
    recorder = Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    person.share_playground()

    async def both() -> None:
        async def work(_data: bytes) -> None:
            file.write_text(OLD + MINE)
            (person.playground / "go").touch()

        command = f"{EDIT}; seq {others} | xargs -r touch"
        await person.bubble(keeper=recorder).exec(f"{command}\n{WAIT}", sinks=Sinks(work))

    loop.run(both())
    assert recorder.report is not None
    made = review.manager.run(recorder.report.run_id)
    [item] = [one for one in read_changes(review.manager, made) if one.change.path == "file"]
    assert (item.state, item.is_because(Reason.CHANGED)) == (State.CONFLICT, True)
    # Nobody knows which lines the command saw.
    assert state.text_versions(review.manager, made, item) is None
    shown = cli_here(person, "changes", "--diff").stdout
    assert f"-{MINE}" in shown and "+third\n" in shown
    # The user was told about the first edit only.
    file.write_text(OLD + MINE * 2)
    [item] = review.apply(made, [str(file)]).changes
    assert item.state is State.CONFLICT
    assert file.read_text() == OLD + MINE * 2
    review.keep_both(made, [str(file)])
    assert set(file.read_text().splitlines()) == {*(OLD + NEW + MINE).splitlines()}


def test_an_edit_while_two_commands_run_in_review_mode_stays(
    person: Person, review: Review
) -> None:
    file, project = person.project / "file", str(person.project)
    outer, inner = (Recorder(RunSpec(project, mode=Mode.REVIEW), person.paths) for _ in range(2))
    person.share_playground()

    async def both() -> None:
        async def work(_data: bytes) -> None:
            # The second command sees the user's line, the first does not.
            file.write_text(OLD + MINE)
            await person.bubble(keeper=inner).exec("sed -i 's/^line 20$/twentieth/' file")
            (person.playground / "go").touch()

        command = f"sed -i 's/^line 3$/third/' file\n{WAIT}"
        await person.bubble(keeper=outer).exec(command, sinks=Sinks(work))

    loop.run(both())
    assert inner.report is not None and outer.report is not None
    assert [item.state for item in inner.report.changes] == [State.PENDING]
    [conflict] = outer.report.changes
    assert (conflict.state, conflict.is_because(Reason.CHANGED)) == (State.CONFLICT, True)
    review.apply(review.manager.run(inner.report.run_id))
    assert file.read_text() == SECOND + MINE


def test_an_edit_after_a_run_with_many_changes_is_no_part_of_its_diff(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, f"{EDIT}; seq {MANY} | xargs touch", Mode.REVIEW)
    item = next(one for one in read_changes(review.manager, made) if one.change.path == "file")
    found = state.text_versions(review.manager, made, item)
    assert found is not None
    hunks.apply_hunks(review.manager, made, item, found.hunks[:1])
    assert file.read_text() == FIRST
    file.write_text(FIRST + MINE)
    assert state.text_versions(review.manager, made, item) == found
    hunks.apply_hunks(review.manager, made, item, found.hunks[1:])
    assert file.read_text() == NEW + MINE


def test_a_hunk_is_not_applied_to_a_project_that_is_missing(person: Person, review: Review) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    item, first = row(review, made), parts(review, made)[:1]
    person.project.rename(person.home / "elsewhere")
    with pytest.raises(ProjectError, match="was removed"):
        hunks.apply_hunks(review.manager, made, item, first)


def test_a_hunk_that_is_not_in_the_project_cannot_be_undone(person: Person, review: Review) -> None:
    run(person, review, "sed -i '/^line 3$/a more' file", Mode.REVIEW)
    made = run(person, review, "sed -i '/^line 3$/d' file", Mode.REVIEW)
    for _pending_and_discarded in range(2):
        with pytest.raises(OllmSandboxError):
            hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made))
        assert (person.project / "file").read_text() == OLD
        review.discard(made)


def test_a_hunk_beside_lines_that_differ_is_not_applied_twice(
    person: Person, review: Review
) -> None:
    run(person, review, "sed -i '1i earlier' file", Mode.REVIEW)
    made = run(person, review, "sed -i '1i more' file", Mode.REVIEW)
    with pytest.raises(OllmSandboxError):
        hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made))
    assert (person.project / "file").read_text() == OLD


def test_undo_takes_out_the_applied_hunk_of_a_discarded_change(
    person: Person, review: Review
) -> None:
    # Beside the second hunk, which is therefore neither in the project nor undone.
    earlier = run(person, review, "sed -i 's/^line 21$/next/' file", Mode.REVIEW)
    made = run(person, review, mode=Mode.REVIEW)
    first = parts(review, made)[:1]
    hunks.apply_hunks(review.manager, made, row(review, made), first)
    review.discard(made)
    assert (person.project / "file").read_text() == FIRST
    assert review.waiting(made.project) == [earlier]
    [item] = review.undo(made).changes
    assert item.state is State.UNDONE
    assert (person.project / "file").read_text() == OLD


def test_a_conflict_ends_with_both_versions(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n"))
    assert [item.state for item in review.apply(made).changes] == [State.CONFLICT]
    [report] = review.apply_all(made.project)
    assert [item.state for item in report.changes] == [State.CONFLICT]
    assert person.cli("apply", "--both", made.id, "file").returncode == 0
    assert file.read_text() == NEW.replace("third\n", "mine\nthird\n")
    assert row(review, made).state is State.APPLIED
    assert review.waiting(review.manager.add_project(person.project)) == []


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_a_conflict_is_reported_again_if_the_user_has_edited_the_file_since(
    person: Person, review: Review, verb: str
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW if verb == "apply" else Mode.AUTO)
    decide = review.apply if verb == "apply" else review.undo
    for text in ("mine\n", "mine again\n"):
        file.write_text(NEW.replace("third\n", text))
        [item] = decide(made, [str(file)]).changes
        assert item.state is State.CONFLICT
        assert file.read_text() == NEW.replace("third\n", text)
    [item] = decide(made, [str(file)]).changes
    assert item.state is (State.APPLIED if verb == "apply" else State.UNDONE)
    assert file.read_text() == (NEW if verb == "apply" else OLD)


def test_a_conflict_is_reported_again_if_the_user_has_made_the_file_again_since(
    person: Person, review: Review
) -> None:
    file = person.project / "folder/file"
    file.parent.mkdir()
    file.write_text(OLD)
    made = run(person, review, f"cd folder; {EDIT}", Mode.REVIEW)
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


def test_a_choice_in_the_window_counts_for_the_version_that_it_shows(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    for text in ("mine\n", "mine again\n"):
        file.write_text(OLD.replace("line 3\n", text))
        if text == "mine\n":
            assert [item.state for item in review.apply(made).changes] == [State.CONFLICT]
    assert act_on_run(review, "take", made.id, [str(file)]).count == 1
    assert file.read_text() == NEW


def test_a_conflict_that_is_none_any_more_is_decided_with_all(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n"))
    assert [item.state for item in review.apply(made).changes] == [State.CONFLICT]
    file.write_text(OLD + MINE)
    assert person.cli("apply", "--all").returncode == 0
    assert file.read_text() == NEW + MINE


def test_one_thread_at_a_time_reads_changes(person: Person, review: Review) -> None:
    made = run(person, review)
    with ThreadPoolExecutor() as pool:
        with review.manager.reading:
            reading = pool.submit(state.read_current, review.manager, made)
            # Long enough for a thread that does not wait.
            assert not wait([reading], timeout=0.5).done
        assert [item.state for item in reading.result()] == [State.APPLIED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(NEW, (State.APPLIED, None), id="saved again"),
        pytest.param(NEW + MINE, (State.APPLIED, None), id="edited elsewhere"),
        pytest.param(OLD, (State.UNDONE, None), id="reverted by hand"),
        pytest.param(OLD + MINE, (State.UNDONE, None), id="reverted and edited elsewhere"),
        pytest.param(
            NEW.replace("third\n", "line 3\n"), (State.APPLIED, Reason.PARTLY), id="one part"
        ),
        pytest.param(
            NEW.replace("third\n", "mine\n"), (State.APPLIED, Reason.EDITED), id="the same line"
        ),
        pytest.param(None, (State.APPLIED, Reason.EDITED), id="removed"),
    ],
)
def test_the_state_of_a_change_is_read_from_the_project(
    person: Person, review: Review, text: str | None, expected: tuple[State, Reason | None]
) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.unlink()
    if text is not None:
        file.write_text(text)
    [item] = state.current_changes(review.manager, made, [row(review, made)])
    assert (item.state, item.note and item.note.reason) == expected
    [listed] = json.loads(person.cli("changes", made.id, "--json").stdout)["changes"]
    words = {Reason.PARTLY: "partly", Reason.EDITED: "edited"}
    word = words.get(expected[1]) if expected[1] else None
    assert listed["state"] == (word or expected[0].value)


@pytest.mark.parametrize("command", ["echo new > other", "rm file"])
def test_what_the_user_reverted_can_be_made_again(
    person: Person, review: Review, command: str
) -> None:
    made = run(person, review, command)
    for name, text in (("file", OLD), ("other", None)):
        (person.project / name).unlink(missing_ok=True)
        if text:
            (person.project / name).write_text(text)
    [item] = state.current_changes(review.manager, made, [row(review, made)])
    assert item.state is State.UNDONE
    assert [item.state for item in review.apply(made).changes] == [State.APPLIED]
    assert (person.project / "other").exists() is (command != "rm file")
    assert (person.project / "file").exists() is (command == "echo new > other")


def test_a_forced_undo_keeps_the_versions_of_the_command(person: Person, review: Review) -> None:
    made = run(person, review)
    file = person.project / "file"
    both = texts_of(review, made)
    file.write_text("mine\n")
    for _ in range(2):
        review.undo(made, [str(file)])
    assert file.read_text() == both[0]
    assert texts_of(review, made) == both
    review.apply(made, [str(file)])
    assert file.read_text() == both[1]


def texts_of(review: Review, made: Run) -> tuple[str, str]:
    versions = Versions(review.manager)
    item = row(review, made)
    return (
        versions.before(made, item).read().decode(),
        versions.after(made, item).read().decode(),
    )


def test_what_a_later_run_did_is_undone_too(person: Person, review: Review) -> None:
    file = person.project / "file"
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


def test_the_state_in_one_word(person: Person, review: Review) -> None:
    made = run(person, review)
    file = person.project / "file"
    file.write_text(f"{file.read_text()}mine\n")

    def word() -> str:
        [change] = json.loads(person.cli("changes", "--json").stdout)["changes"]
        return str(change["state"])

    assert word() == "applied"
    hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert word() == "partly"
    file.write_text("all mine\n")
    assert word() == "edited"


def test_history_counts_what_is_in_the_project(person: Person) -> None:
    file, other = person.project / "file", person.project / "other"
    for each in (file, other):
        each.write_text("old\n")
    assert person.cli("run", "-c", "echo new >file; echo new >other").returncode == 0
    file.write_text("old\n")
    other.write_text("by hand\n")
    [run] = json.loads(cli_here(person, "history", "--json").stdout)
    assert run["states"] == {"edited": 1, "undone": 1}
    assert "  1 edited, 1 undone\n" in cli_here(person, "history").stdout
