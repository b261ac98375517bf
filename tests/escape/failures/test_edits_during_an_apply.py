# SPDX-License-Identifier: GPL-3.0-or-later
"""The user saves a file while it is being replaced, or after a kill in the middle of that: their
version stays or is kept."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cli_inline import cli_here
from support.escape.copy_back import Counter, review, settle, states
from support.escape.kill import Snapshot, check_finished, killed_after, look_at
from support.person import Person, make_person

from ollmsandbox.files.dirfd import DirEntryAt
from ollmsandbox.project.apply import swap
from ollmsandbox.project.apply.swap import Step
from ollmsandbox.project.changes.change import Report, State
from ollmsandbox.project.changes.mode import Mode, no_step
from ollmsandbox.project.recovery.recover import finish_leftovers


@pytest.fixture
def elsewhere(person: Person) -> Iterator[Person]:
    """The project is on another file system than all else: a file has to be copied there."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    person.project = folder
    yield person
    shutil.rmtree(folder)


def write_to_it(file: Path) -> None:
    file.write_text("mine\n")


def put_another_there(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("mine\n")
    other.rename(file)


WAYS = [write_to_it, put_another_there]


def once_copied(
    monkeypatch: pytest.MonkeyPatch, is_it: Callable[[str], bool], act: Callable[[], object]
) -> list[str]:
    """Act right after a copy has been made under such a name."""
    acted: list[str] = []
    real = swap.copy

    def meanwhile(source: DirEntryAt, target: DirEntryAt) -> None:
        real(source, target)
        if is_it(target.name) and not acted:
            acted.append(target.name)
            act()

    monkeypatch.setattr(swap, "copy", meanwhile)
    return acted


def is_new(name: str) -> bool:
    return name.startswith(".ollmsandbox-")


def is_kept(name: str) -> bool:
    return name.endswith(".half")


# --- while it is copied ---------------------------------------------------------------------------


def saved_while_copied(
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    is_copied: Callable[[str], bool],
    save: Callable[[Path], None],
    command: str,
) -> tuple[Path, Report]:
    """A file that the user saves while what a command did to it is put in place."""
    file = person.project / "file"
    file.write_text("old\n")
    acted = once_copied(monkeypatch, is_copied, lambda: save(file))
    report = settle(person, command)
    assert acted
    assert states(report)["file"] is State.CONFLICT
    assert file.read_text() == "mine\n"
    monkeypatch.undo()
    return file, report


def assert_apply_and_undo(person: Person, file: Path, report: Report, taken: str | None) -> None:
    """The user takes the command's version after all, and then their own again."""
    took = review(person, "apply", report.run_id, "file")
    assert states(took) == {"file": State.APPLIED}
    assert (file.read_text() if file.exists() else None) == taken
    review(person, "undo", report.run_id, "file")
    assert file.read_text() == "mine\n"


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.parametrize("is_copied", [is_new, is_kept])
def test_a_save_while_a_file_is_copied(
    elsewhere: Person,
    monkeypatch: pytest.MonkeyPatch,
    is_copied: Callable[[str], bool],
    save: Callable[[Path], None],
) -> None:
    command = "echo theirs >file; echo other >other-file"
    file, report = saved_while_copied(elsewhere, monkeypatch, is_copied, save, command)
    assert states(report)["other-file"] is State.APPLIED
    assert sorted(os.listdir(elsewhere.project)) == ["file", "other-file"]
    assert_apply_and_undo(elsewhere, file, report, "theirs\n")


def test_a_file_that_appears_while_one_is_copied_to_its_name(
    elsewhere: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = elsewhere.project / "file"
    acted = once_copied(monkeypatch, is_new, lambda: file.write_text("mine\n"))
    report = settle(elsewhere, "echo theirs >file")
    assert acted
    assert states(report) == {"file": State.CONFLICT}
    assert look_at(elsewhere.project)["file"][1] == b"mine\n"
    assert os.listdir(elsewhere.project) == ["file"]


@pytest.mark.parametrize("save", WAYS)
def test_a_save_while_a_file_is_copied_to_be_deleted(
    elsewhere: Person, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], None]
) -> None:
    file, report = saved_while_copied(elsewhere, monkeypatch, is_kept, save, "rm file")
    assert_apply_and_undo(elsewhere, file, report, None)


@pytest.mark.parametrize("save", WAYS)
def test_a_save_while_an_undo_copies(
    elsewhere: Person, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], None]
) -> None:
    file = elsewhere.project / "file"
    file.write_text("old\n")
    report = settle(elsewhere, "echo theirs >file")
    acted = once_copied(monkeypatch, is_new, lambda: save(file))
    # Also where it was named: what was not there then was not meant.
    undone = review(elsewhere, "undo", report.run_id, "file")
    assert acted
    assert states(undone) == {"file": State.CONFLICT}
    assert file.read_text() == "mine\n"


def test_one_file_system_that_is_mounted_at_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file can be renamed or linked from one to the other, though it is the same device."""
    around = os.open(tmp_path, os.O_RDONLY)
    real = {name: getattr(os, name) for name in ("rename", "link")}

    def refused(name: str, source: str, target: str, **folders: Any) -> None:
        if source == "incoming" or (target.startswith("kept") and source == "place"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real[name](source, target, **folders)

    for name in real:
        monkeypatch.setattr(os, name, partial(refused, name))
    place, incoming, kept = (DirEntryAt(around, name) for name in ("place", "incoming", "kept"))
    for was_there, saves in ((True, False), (False, False), (True, True)):
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()
        (tmp_path / "incoming").write_text("theirs\n")
        if was_there:
            (tmp_path / "place").write_text("old\n")
        if saves:
            acted = once_copied(
                monkeypatch, lambda name: name == "half", lambda: write_to_it(tmp_path / "place")
            )
            with pytest.raises(swap.ConflictError):
                exchange_all(place, incoming, kept)
            assert acted
            assert (tmp_path / "place").read_text() == "mine\n"
        else:
            exchange_all(place, incoming, kept)
            assert (tmp_path / "place").read_text() == "theirs\n"
            assert sorted(os.listdir(tmp_path)) == ["kept", "place"][not was_there :]
    os.close(around)


def exchange_all(place: DirEntryAt, incoming: DirEntryAt, kept: DirEntryAt) -> None:
    swap.exchange(
        place,
        incoming,
        kept,
        may_replace=lambda _found: True,
        expects=False,
        temporary="half",
        step=no_step,
    )


@pytest.mark.anybody
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
def test_a_save_after_there_was_no_room(elsewhere: Person, save: Callable[[Path], None]) -> None:
    file = elsewhere.project / "file"
    file.write_text("old\n")
    run = settle(elsewhere, "head -c 3000000 /dev/zero >file", Mode.REVIEW).run_id
    failed = elsewhere.cli("apply", run, preexec_fn=_files_of_at_most_a_megabyte)
    assert "File too large" in failed.stdout + failed.stderr
    assert file.read_text() == "old\n"
    save(file)
    assert states(review(elsewhere, "apply", run)) == {"file": State.CONFLICT}
    assert file.read_text() == "mine\n"
    assert states(review(elsewhere, "apply", run, "file")) == {"file": State.APPLIED}
    assert file.stat().st_size == 3000000
    review(elsewhere, "undo", run)
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


def act_on(snapshot: Snapshot, action: str, step: Step, *, named: bool) -> None:
    with snapshot.review(step) as (found, run):
        chosen = [str(snapshot.person.project / "file")] if named else []
        if action == "apply":
            found.apply(run, chosen)
        else:
            found.undo(run, chosen)


def _take_a_change(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.REVIEW)


def _undo_one(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.AUTO)


def _redo_one(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.AUTO)
    snapshot.undo()


CASES: dict[str, tuple[str, Callable[[Snapshot], None], str]] = {
    "take": ("echo theirs >file", _take_a_change, "apply"),
    "take-a-deletion": ("rm file", _take_a_change, "apply"),
    "undo": ("echo theirs >file", _undo_one, "undo"),
    "redo": ("echo theirs >file", _redo_one, "apply"),
}


def wait_for_the_clock(folder: Path) -> None:
    """Wait until the file system's clock has moved on."""
    probe = folder / "now"
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        os.utime(probe)
    probe.unlink()


def killed_at(number: int, act: Callable[[Step], object]) -> bool:
    """Between two of the things that are done with a file, not after each call for them."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return killed_after(sys.maxsize, lambda _step: act(Counter(number, kill)))


@pytest.mark.anybody
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
    number = -1
    is_killed = True
    while is_killed:
        number += 1
        snapshot.restore()
        before(snapshot)
        is_killed = killed_at(number, lambda step: act_on(snapshot, action, step, named=named))
        told = f"killed at step {number}"
        wait_for_the_clock(person.home)
        WAYS[(number + named) % 2](file)
        assert not [error for report in finish_leftovers(person.paths) for error in report.errors]
        assert file.read_text() == "mine\n", told
        check_finished(person)
        # Neither is anything lost when the user insists.
        act_on(snapshot, action, no_step, named=True)
        kept = [one for one in person.paths.versions.glob("*/*") if one.is_file()]
        assert b"mine\n" in [one.read_bytes() for one in (file, *kept) if one.exists()], told
