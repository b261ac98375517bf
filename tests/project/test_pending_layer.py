# SPDX-License-Identifier: GPL-3.0-or-later
"""What the next command sees: the project, as it would be with all pending changes."""

from __future__ import annotations

import os

import pytest
from support.changes import seen, states
from support.escape.copy_back import WAIT
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.database.tables import Run
from ollmsandbox.files import trees
from ollmsandbox.files.overlayfs import find_in_layers, names_in_layers
from ollmsandbox.project import state
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.ordinary

TEXT = "1\n2\n3\n4\n5\n"
# More runs than overlayfs can mount one by one.
MANY = 40


def write(person: Person, review: Review, text: str, name: str = "file") -> Run:
    """Write a file in a run whose change is pending."""
    return review.manager.run(person.write(name, text, Mode.REVIEW))


def look(person: Person, command: str) -> str:
    """Return what a command prints that changes nothing."""
    return str(person.run(command).stdout.text)


# --- files -------------------------------------------------------------------------------------


def test_an_edit_below_a_pending_text_is_seen(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(TEXT)
    write(person, review, TEXT.replace("1", "ONE"))
    assert look(person, "cat file") == TEXT.replace("1", "ONE")
    file.write_text(TEXT.replace("5", "mine"))
    assert look(person, "cat file") == "ONE\n2\n3\n4\nmine\n"
    # Another one, and as many editors save.
    other = person.project / "file~"
    other.write_text(TEXT.replace("5", "mine again"))
    os.replace(other, file)
    assert look(person, "cat file") == "ONE\n2\n3\n4\nmine again\n"
    # What a command does to that is its own change only.
    second = review.manager.run(person.record("sed -i s/3/THREE/ file", Mode.REVIEW).run_id)
    [item] = read_changes(review.manager, second)
    found = state.text_versions(review.manager, second, item)
    assert found is not None
    assert [(part.old, part.new) for part in found.hunks] == [(("3\n",), ("THREE\n",))]
    for report in review.apply_all(second.project):
        assert states(report) == {"file": State.APPLIED}
    assert file.read_text() == "ONE\n2\nTHREE\n4\nmine again\n"


def test_of_one_line_the_pending_version_is_seen(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(TEXT)
    run = write(person, review, TEXT.replace("1", "ONE"))
    file.write_text(TEXT.replace("1", "mine"))
    assert look(person, "cat file") == TEXT.replace("1", "ONE")
    assert states(review.apply(run)) == {"file": State.CONFLICT}
    assert file.read_text() == TEXT.replace("1", "mine")


def test_a_command_does_not_change_a_pending_version(person: Person, review: Review) -> None:
    run = write(person, review, "pending\n")
    report = person.record("echo more >>file", Mode.REVIEW)
    assert (person.paths.runs / run.id / "result/0").read_text() == "pending\n"
    review.discard(review.manager.run(report.run_id))
    assert seen(person) == "pending\n"


# --- folders -----------------------------------------------------------------------------------


def test_both_names_of_a_pending_file_keep_their_mode(person: Person) -> None:
    person.record("echo text > one; ln one two; chmod 000 one", Mode.REVIEW)
    assert look(person, "stat -c %a one two") == "0\n0\n"


def test_what_is_added_to_a_deleted_folder_is_seen(person: Person, review: Review) -> None:
    folder = person.project / "folder"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (folder / name).write_text(name)
    run = review.manager.run(person.record("rm -r folder", Mode.REVIEW).run_id)
    assert look(person, "ls") == ""
    (folder / "deep/mine").write_text("mine")
    assert look(person, "find folder | sort; cat folder/deep/mine") == (
        "folder\nfolder/deep\nfolder/deep/mine\nmine"
    )
    (folder / "deep/mine").unlink()
    assert look(person, "ls") == ""
    (folder / "deep/mine").write_text("mine")
    report = review.apply(run)
    assert states(report)["folder/a"] is State.APPLIED
    assert states(report)["folder"] is State.CONFLICT
    assert sorted(path.name for path in folder.rglob("*")) == ["deep", "mine"]


def test_what_is_added_to_a_folder_made_again_is_seen(person: Person, review: Review) -> None:
    folder = person.project / "folder"
    folder.mkdir()
    (folder / "old").write_text("old")
    person.record("rm -r folder; mkdir folder; echo new >folder/new", Mode.REVIEW)
    assert look(person, "ls folder") == "new\n"
    (folder / "mine").write_text("mine")
    assert look(person, "ls folder") == "mine\nnew\n"


def test_a_deleted_folder_that_the_user_deletes_too(person: Person, review: Review) -> None:
    folder = person.project / "folder"
    folder.mkdir()
    (folder / "old").write_text("old")
    run = review.manager.run(person.record("rm -r folder", Mode.REVIEW).run_id)
    (folder / "old").unlink()
    folder.rmdir()
    assert look(person, "ls") == ""
    assert set(states(review.apply(run)).values()) == {State.APPLIED}


def test_a_later_mode_of_a_folder_is_seen(person: Person, review: Review) -> None:
    (person.project / "folder").mkdir(mode=0o755)

    def visible_mode() -> int:
        found = find_in_layers(person.layers(), "folder")
        assert found is not None
        return found.found.st_mode & 0o777

    write(person, review, "text", "folder/file")
    report = person.record("chmod 750 folder")
    assert visible_mode() == (person.project / "folder").stat().st_mode & 0o777 == 0o750
    review.undo(review.manager.run(report.run_id))
    assert visible_mode() == (person.project / "folder").stat().st_mode & 0o777 == 0o755
    person.record("chmod 500 folder")
    assert visible_mode() == 0o500


# --- many runs, and several commands at once ---------------------------------------------------


def test_changes_of_many_runs_are_decided_one_by_one(person: Person, review: Review) -> None:
    def run(command: str) -> str:
        keeper = Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
        return str(person.run(command, keeper=keeper).stdout.text)

    (person.project / "gone").mkdir()
    (person.project / "gone" / "old").write_text("old")
    (person.project / "deleted").write_text("old")
    (person.project / "file").write_text("old")
    run("rm -r gone; mkdir closed; echo secret > closed/file; chmod 000 closed; ln -s file link")
    run("mkdir gone; echo new > gone/new; rm deleted; chmod 640 file")
    made = [write(person, review, f"{n}", "file") for n in range(MANY)]
    more = [write(person, review, f"{n}", f"more/{n}") for n in range(10)]
    last = MANY - 1
    look = "ls; ls gone more | wc -l; cat file link more/1; chmod 700 closed; cat closed/file"
    listed = "closed\nfile\ngone\nlink\nmore\n"
    assert run(look) == f"{listed}14\n{last}{last}1secret\n"
    review.discard(made[-1])
    review.discard(more[3])
    assert run(look) == f"{listed}13\n{last - 1}{last - 1}1secret\n"
    assert states(review.apply(made[10])) == {"file": State.APPLIED}
    assert (person.project / "file").read_text() == "10"
    assert run(look) == f"{listed}13\n{last - 1}{last - 1}1secret\n"
    review.discard_all(made[0].project)
    assert run(look) == "deleted\nfile\ngone\n2\n10"
    assert not list(person.paths.project_data(str(person.project)).glob("*layer-*"))


def test_a_running_command_sees_what_it_saw_at_first(person: Person, review: Review) -> None:
    """Meanwhile the user decides, and another command starts and sees that."""
    person.share_playground()
    (person.project / "edited").write_text(TEXT)
    made = [write(person, review, f"{n}", f"{n}") for n in range(4)]
    edited = write(person, review, TEXT.replace("1", "ONE"), "edited")
    printed: list[str] = []

    def decide() -> None:
        own = Review(person.paths)
        try:
            own.discard(own.manager.run(made[0].id))
            own.apply(own.manager.run(made[1].id))
            own.apply(own.manager.run(edited.id))
            own.undo(own.manager.run(edited.id))
            own.discard_all(own.manager.add_project(person.project))
        finally:
            own.close()

    def work(_data: bytes) -> None:
        if not printed:
            decide()
            found = person.bubble().run("ls; cat edited")
            printed.append(found.stdout.text)
            (person.playground / "go").touch()

    command = f"{WAIT}\ncat 0 1 2 3 edited; rm 2"
    keeper = Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    result = loop.run(person.bubble(keeper=keeper).exec(command, sinks=Sinks(work)))
    del keeper
    assert result.stdout.text == f"ready\n0123{TEXT.replace('1', 'ONE')}"
    assert printed == [f"1\nedited\n{TEXT}"]
    assert (person.project / "edited").read_text() == TEXT
    assert sorted(os.listdir(person.project)) == ["1", "edited"]
    # No generation stays that nobody sees.
    review.discard_all(made[0].project)
    assert look(person, "ls") == "1\nedited\n"
    assert not list(person.paths.project_data(str(person.project)).glob("*layer-*"))


# --- it can be made again ----------------------------------------------------------------------


def test_a_lost_or_damaged_layer_is_made_again(person: Person, review: Review) -> None:
    (person.project / "file").write_text("old")
    (person.project / "gone").write_text("old")
    run = write(person, review, "new")
    person.record("rm gone", Mode.REVIEW)
    data = person.paths.project_data(str(person.project))
    for lost in ("nothing", "layer.json", "layers", "both"):
        if lost in ("layer.json", "both"):
            (data / "layer.json").unlink()
        if lost in ("layers", "both"):
            for layer in data.glob("layer-*"):
                trees.empty(layer)
                layer.rmdir()
        assert finish_leftovers(person.paths) == [], lost
        assert look(person, "ls; cat file") == "file\nnew", lost
    for damage in ("", "{half", "[]"):
        (data / "layer.json").write_text(damage)
        assert seen(person) == "new", damage
    assert names_in_layers(person.layers(), "") == ["file"]
    assert len(review.waiting(run.project)) == 2
    for report in review.apply_all(run.project):
        assert set(states(report).values()) == {State.APPLIED}
    assert [(path.name, path.read_text()) for path in person.project.iterdir()] == [("file", "new")]
