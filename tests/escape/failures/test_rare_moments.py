# SPDX-License-Identifier: GPL-3.0-or-later
"""Things that hardly ever come together: a save in the instant of a kill, a full disk in the middle
of an exchange, times that do not tell two versions apart. No version is lost."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from contextlib import closing

import pytest
from support.changes import states
from support.escape.copy_back import during, review, settle
from support.escape.kill import killed_when
from support.person import Person

from ollmsandbox.files import copying, exchange
from ollmsandbox.files.dirfd import DirEntryAt
from ollmsandbox.files.locks import FileLock
from ollmsandbox.project import backups, swap
from ollmsandbox.project.change import MANY, State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.overlay import Overlay, Root
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

# Too large to be copied or compared, so versions are moved.
LARGE = 3 << 20


def is_kept(person: Person, data: bytes) -> bool:
    """Return whether a file in the project or a run's folder has this content."""
    places = (person.project, person.paths.runs)
    files = (file for place in places for file in place.rglob("*") if file.is_file())
    return any(file.read_bytes() == data for file in files)


def make_large(person: Person) -> bytes:
    users = b"u" * LARGE
    (person.project / "file").write_bytes(users)
    return users


SAME_TIME_AND_SIZE = (
    "cp -p file /tmp/old; head -c 3145728 /dev/zero | tr '\\0' c >file; touch -r /tmp/old file"
)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_kill_with_versions_of_the_same_time_and_size(person: Person, is_after: bool) -> None:
    users = make_large(person)
    run = settle(person, SAME_TIME_AND_SIZE, Mode.REVIEW).run_id

    def is_time() -> bool:
        exchanged = (person.project / "file").read_bytes() != users
        return exchanged if is_after else any(person.paths.projects.glob("*/job.json"))

    assert killed_when(is_time, lambda: review(person, "apply", run))
    finish_leftovers(person.paths)
    assert (person.project / "file").read_bytes() == b"c" * LARGE
    review(person, "undo", run)
    assert (person.project / "file").read_bytes() == users


@pytest.mark.usefixtures("on_another_disk")
def test_another_file_system_with_versions_of_the_same_time_and_size(person: Person) -> None:
    users = make_large(person)
    run = settle(person, SAME_TIME_AND_SIZE).run_id
    assert (person.project / "file").read_bytes() == b"c" * LARGE
    review(person, "undo", run)
    assert (person.project / "file").read_bytes() == users


@pytest.mark.parametrize("command", ["echo new >file", "rm file"])
@pytest.mark.usefixtures("on_another_disk")
def test_no_room_for_what_comes_out_of_another_file_system(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    users = make_large(person)
    real = copying.copy_whole

    def full(source: DirEntryAt, target: DirEntryAt) -> None:
        if source.name.startswith(".ollmsandbox-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(swap, "copy_whole", full)
    assert states(settle(person, command)) == {"file": State.FAILED}
    assert (person.project / "file").read_bytes() == users
    assert os.listdir(person.project) == ["file"]


def test_no_room_for_the_name_of_what_came_out(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = make_large(person)
    real = DirEntryAt.rename_to

    def full(self: DirEntryAt, other: DirEntryAt) -> None:
        if os.readlink(f"/proc/self/fd/{other.dir_fd}").endswith("/base"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, other)

    monkeypatch.setattr(DirEntryAt, "rename_to", full)
    run = settle(person, f"head -c {LARGE} /dev/zero >file")
    assert states(run) == {"file": State.FAILED}
    assert (person.project / "file").read_bytes() == users


def test_a_save_just_before_one_of_many_files_is_replaced(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [person.project / f"{n}" for n in range(MANY)]
    for file in files:
        file.write_text("old\n")
    real = swap.Swapper.do

    def save_first(self: swap.Swapper, item: swap.Item) -> swap.Left:
        if item.path == "7":
            files[7].write_text("mine\n")
        return real(self, item)

    with monkeypatch.context() as patch:
        patch.setattr(swap.Swapper, "do", save_first)
        report = settle(person, "for file in *; do echo new >$file; done")
    found = states(report)
    assert found.pop("7") is State.CONFLICT and set(found.values()) == {State.APPLIED}
    assert files[7].read_text() == "mine\n"
    # What the command wrote was not lost with its upper folder.
    with closing(Review(person.paths)) as found_review:
        run = found_review.manager.run(report.run_id)
        found_review.apply(run, [str(files[7])], anyway=True)
    assert {file.read_text() for file in files} == {"new\n"}
    review(person, "undo", report.run_id)
    assert [file.read_text() for file in files].count("old\n") == MANY - 1
    assert files[7].read_text() == "mine\n"


@pytest.mark.parametrize("command", ["rm file", "echo new >file"])
def test_a_save_in_the_instant_of_a_kill(
    person: Person, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Between the look at the file and the step that takes it out; the kill comes right after."""
    file = person.project / "file"
    file.write_text("old\n")
    run = settle(person, command, Mode.REVIEW).run_id
    real = exchange._rename
    is_taken = False

    def save_first(one: DirEntryAt, other: DirEntryAt, flag: int) -> None:
        nonlocal is_taken
        if "file" in (one.name, other.name) and not is_taken:
            new = person.project / "new"
            new.write_text("mine\n")
            os.replace(new, file)
            real(one, other, flag)
            is_taken = True
        else:
            real(one, other, flag)

    monkeypatch.setattr(exchange, "_rename", save_first)
    assert killed_when(lambda: is_taken, lambda: review(person, "apply", run))
    monkeypatch.undo()
    finish_leftovers(person.paths)
    person.write("other", "1")
    person.write("other", "2")
    assert is_kept(person, b"mine\n")


def test_a_write_in_place_where_files_cannot_be_exchanged(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    real = exchange.check_expected
    looks = 0

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def write_after(found: os.stat_result | None, expected: exchange.Expected) -> None:
        nonlocal looks
        real(found, expected)
        looks += 1
        if looks == 2:
            file.write_text("mine, longer\n")

    monkeypatch.setattr(exchange, "_rename", refuse)
    monkeypatch.setattr(exchange, "check_expected", write_after)
    person.write("file", "new\n")
    assert file.read_text() == "mine, longer\n"


def test_a_large_file_with_another_name_is_copied(person: Person) -> None:
    """An edit through the other name must not change the version that undo restores."""
    users = make_large(person)
    os.link(person.project / "file", person.project / "twin")
    run = settle(person, "rm file; echo new >file").run_id
    with open(person.project / "twin", "r+b") as twin:
        twin.write(b"edited")
    review(person, "undo", run)
    assert (person.project / "file").read_bytes() == users


@pytest.mark.parametrize("damage", ["deleted", "emptied"])
def test_a_pending_layer_that_is_lost_while_a_run_is_unsettled(person: Person, damage: str) -> None:
    file = person.project / "file"
    file.write_text("1\n2\n3\n")
    settle(person, "sed -i s/2/two/ file", Mode.REVIEW)

    def lose() -> None:
        [layer] = person.paths.projects.glob("*/layer-*")
        if damage == "deleted":
            shutil.rmtree(layer)
        else:
            (layer / "index.json").write_text("")

    report = during(person, "sed -i s/two/TWO/ file; echo x >added", lose, Mode.REVIEW)
    assert states(report)["file"] is State.CONFLICT
    assert file.read_text() == "1\n2\n3\n"


def test_a_kill_while_old_runs_are_removed(person: Person) -> None:
    (person.project / "a").write_text("old\n")
    person.write("a", "new\n")
    later = time.time() + 40 * 86400

    def clean() -> None:
        with closing(ProjectManager(person.paths)) as manager:
            backups.cleanup_old_runs(manager, now=later)

    assert killed_when(lambda: not any(person.paths.runs.glob("*/changes.jsonl")), clean)
    clean()
    assert not os.listdir(person.paths.runs)


def test_a_folder_of_a_run_that_another_program_looks_at(person: Person) -> None:
    """Whether a folder is locked is found out by locking it for a moment."""
    overlay = Overlay(person.paths.cache, [Root(str(person.project))])
    real = os.mkdir
    looking: list[FileLock] = []

    def look(path: str, *arguments: int, **options: int) -> None:
        real(path, *arguments, **options)
        if path == overlay.folder:
            looking.append(FileLock(path, is_folder=True))
            threading.Timer(0.05, looking[0].release).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", look)
        overlay.create()
    assert looking
    overlay.cleanup()


def test_a_question_about_a_discarded_change_changes_nothing(person: Person) -> None:
    """What applying it would do is planned, and then forgotten."""
    (person.project / "file").write_text("old\n")
    first = settle(person, "echo new >file", Mode.REVIEW).run_id
    settle(person, "echo x >other", Mode.REVIEW)
    review(person, "discard", first)
    with closing(Review(person.paths)) as found:
        run = found.manager.run(first)
        before = sorted(map(str, (person.paths.runs / first).rglob("*")))
        found.also_applied(run, [str(person.project / "file")])
        assert sorted(map(str, (person.paths.runs / first).rglob("*"))) == before
