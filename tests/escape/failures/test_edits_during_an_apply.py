# SPDX-License-Identifier: GPL-3.0-or-later
"""The user saves a file while it is being replaced, or after a kill in the middle of that: their
version stays or is kept."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.changes import states
from support.cli_inline import cli_here
from support.escape.copy_back import Counter, review, settle
from support.escape.kill import EVERY, Snapshot, check_finished, look_at
from support.person import Person, make_person

from ollmsandbox.files import exchange
from ollmsandbox.files.copying import copy_whole
from ollmsandbox.files.dirfd import DirEntryAt
from ollmsandbox.project import swap
from ollmsandbox.project.change import State
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.sandbox.spec import Mode


def write_to_it(file: Path) -> None:
    file.write_text("mine\n")


def put_another_there(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("mine\n")
    other.rename(file)


WAYS = [write_to_it, put_another_there]


def once_copied(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, is_new: bool = True
) -> list[str]:
    """Act right after a new version has been copied to the project, or an old one out of it."""
    acted: list[str] = []
    real = copy_whole

    def meanwhile(source: DirEntryAt, target: DirEntryAt) -> None:
        real(source, target)
        if target.name.startswith(".ollmsandbox-") is is_new and not acted:
            acted.append(target.name)
            act()

    monkeypatch.setattr(swap, "copy_whole", meanwhile)
    return acted


# --- while it is copied ---------------------------------------------------------------------------


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.usefixtures("on_another_disk")
def test_a_save_while_a_file_is_copied(
    person: Person, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], None]
) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    acted = once_copied(monkeypatch, lambda: save(file))
    report = settle(person, "echo theirs >file; echo other >other-file")
    assert acted
    assert states(report) == {"file": State.CONFLICT, "other-file": State.APPLIED}
    assert file.read_text() == "mine\n"
    monkeypatch.undo()
    assert sorted(os.listdir(person.project)) == ["file", "other-file"]
    # The user takes the command's version after all, and then their own again.
    took = review(person, "apply", report.run_id, "file")
    assert states(took) == {"file": State.APPLIED}
    assert file.read_text() == "theirs\n"
    # A save while that is undone stays, too, although the file is named.
    acted = once_copied(monkeypatch, lambda: save(file))
    assert states(review(person, "undo", report.run_id, "file")) == {"file": State.CONFLICT}
    assert acted
    assert file.read_text() == "mine\n"


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.parametrize("command", ["echo theirs >file", "rm file"])
@pytest.mark.usefixtures("on_another_disk")
def test_a_save_while_the_replaced_file_is_copied_away(
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    save: Callable[[Path], None],
) -> None:
    """The change is made by then: this is an edit after it, and undoing leaves it."""
    file = person.project / "file"
    file.write_text("old\n")
    acted = once_copied(monkeypatch, lambda: save(file), is_new=False)
    report = settle(person, command)
    assert acted
    assert states(report) == {"file": State.APPLIED}
    monkeypatch.undo()
    assert os.listdir(person.project) == ["file"]
    review(person, "undo", report.run_id)
    assert file.read_text() == "mine\n"


@pytest.mark.usefixtures("on_another_disk")
def test_a_file_that_appears_while_one_is_copied_to_its_name(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.project / "file"
    acted = once_copied(monkeypatch, lambda: file.write_text("mine\n"))
    report = settle(person, "echo theirs >file")
    assert acted
    assert states(report) == {"file": State.CONFLICT}
    assert look_at(person.project)["file"][1] == b"mine\n"
    assert os.listdir(person.project) == ["file"]


def test_one_file_system_that_is_mounted_at_two_places(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file can be renamed from one to the other, though it is the same device."""
    real = exchange._rename

    def refused(one: DirEntryAt, other: DirEntryAt, flag: int) -> None:
        places = {os.readlink(f"/proc/self/fd/{spot.dir_fd}") for spot in (one, other)}
        if len({place.startswith(str(person.project)) for place in places}) > 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(one, other, flag)

    monkeypatch.setattr(exchange, "_rename", refused)
    for name in ("changed", "deleted", "saved"):
        (person.project / name).write_text("old\n")
    before = look_at(person.project)
    run = settle(person, "echo theirs >changed; rm deleted; echo theirs >added").run_id
    assert sorted(os.listdir(person.project)) == ["added", "changed", "saved"]
    assert (person.project / "changed").read_text() == "theirs\n"
    assert set(states(review(person, "undo", run)).values()) == {State.UNDONE}
    assert look_at(person.project) == before
    acted = once_copied(monkeypatch, lambda: write_to_it(person.project / "saved"))
    assert states(settle(person, "echo theirs >saved")) == {"saved": State.CONFLICT}
    assert acted
    assert (person.project / "saved").read_text() == "mine\n"
    check_finished(person)


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("action", "save"),
    [*(("run", way) for way in WAYS), ("undo", put_another_there), ("apply", write_to_it)],
)
def test_a_save_at_any_step(person: Person, action: str, save: Callable[[Path], None]) -> None:
    """On one file system, where nothing takes long."""
    file = person.project / "file"
    at, is_over = 0, False
    while not is_over:
        file.write_text("old\n")
        step = Counter(at, lambda: save(file))
        if action == "run":
            settle(person, "echo theirs >file", step=step)
        else:
            run = settle(person, "echo theirs >file").run_id
            if action == "apply":
                review(person, "undo", run)
            review(person, action, run, step=step)
        is_over = step.steps <= at
        if not is_over:
            assert file.read_text() == "mine\n", f"saved at step {at}"
        cli_here(person, "discard", "--all")
        at += 1


# --- after a failure ------------------------------------------------------------------------------


def _files_of_at_most_a_megabyte() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.usefixtures("on_another_disk")
def test_a_save_after_there_was_no_room(person: Person, save: Callable[[Path], None]) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    command = "head -c 3000000 /dev/zero >file; echo small >small"
    run = settle(person, command, Mode.REVIEW).run_id
    failed = person.cli("apply", run, "--json", preexec_fn=_files_of_at_most_a_megabyte)
    found = {change["path"]: change for change in json.loads(failed.stdout)["changes"]}
    assert (found["file"]["state"], found["file"]["note"]) == ("failed", "File too large.")
    assert (found["small"]["state"], failed.returncode) == ("applied", 1)
    assert sorted(os.listdir(person.project)) == ["file", "small"]
    assert file.read_text() == "old\n"
    save(file)
    assert states(review(person, "apply", run, "file")) == {"file": State.CONFLICT}
    assert file.read_text() == "mine\n"
    assert states(review(person, "apply", run, "file")) == {"file": State.APPLIED}
    assert file.stat().st_size == 3000000
    review(person, "undo", run, "file")
    assert file.read_text() == "mine\n"


# --- after a kill ---------------------------------------------------------------------------------


@pytest.fixture(params=["here", "elsewhere"])
def snapshot(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    person = make_person(tmp_path)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if request.param == "elsewhere":
        person.project = folder
    (person.project / "file").write_text("old\n")
    yield Snapshot(person, person.home, folder)
    shutil.rmtree(folder)


def act_on(snapshot: Snapshot, action: str, *, named: bool) -> None:
    with snapshot.review() as (found, run):
        chosen = [str(snapshot.person.project / "file")] if named else []
        (found.apply if action == "apply" else found.undo)(run, chosen)


def _settle_and_undo(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.AUTO)
    snapshot.undo()


CASES: dict[str, tuple[str, Callable[[Snapshot], object], str]] = {
    "take": ("echo theirs >file", lambda found: found.settle(Mode.REVIEW), "apply"),
    "take-a-deletion": ("rm file", lambda found: found.settle(Mode.REVIEW), "apply"),
    "undo": ("echo theirs >file", lambda found: found.settle(Mode.AUTO), "undo"),
    "redo": ("echo theirs >file", _settle_and_undo, "apply"),
}


def wait_for_the_clock(folder: Path) -> None:
    """Wait until the file system's clock has moved on."""
    probe = folder / "now"
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        os.utime(probe)
    probe.unlink()


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("case", "named"),
    [*((case, True) for case in CASES), ("take", False), ("take-a-deletion", False)],
)
def test_an_edit_after_a_kill_stays(snapshot: Snapshot, case: str, named: bool) -> None:
    command, before, action = CASES[case]
    person = snapshot.person
    file = person.project / "file"
    snapshot.leave(command)
    snapshot.save()

    def prepare() -> None:
        snapshot.restore()
        before(snapshot)

    kills = snapshot.kills(lambda: act_on(snapshot, action, named=named), every=4, prepare=prepare)
    for number, _ in kills:
        told = f"killed after step {number}"
        wait_for_the_clock(person.home)
        WAYS[number // (EVERY or 4) % 2](file)
        assert not [error for report in finish_leftovers(person.paths) for error in report.errors]
        assert file.read_text() == "mine\n", told
        check_finished(person)
        # Neither is anything lost when the user insists.
        act_on(snapshot, action, named=True)
        kept = [one for one in person.paths.runs.glob("**/*") if one.is_file()]
        assert b"mine\n" in [one.read_bytes() for one in (file, *kept) if one.exists()], told
