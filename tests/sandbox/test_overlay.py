# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's overlay folders: removing them, recovering them, and the run's clock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bubble import by, each_way
from support.person import Person

from ollmsandbox.sandbox.overlay import Overlay, Root, clock_offset, find_leftovers, leftovers
from ollmsandbox.sandbox.plan.mounts import OverlayMethod


def left_in(cache: Path) -> list[str]:
    return [name for name in os.listdir(cache) if name.startswith(("overlay-", "done-"))]


def made(tmp_path: Path) -> Overlay:
    """Create a run's folders as a killed program leaves them."""
    (tmp_path / "project").mkdir()
    overlay = Overlay(tmp_path / "cache", [Root(str(tmp_path / "project"))])
    overlay.create()
    return overlay


@each_way
def test_a_run_that_wrote_nothing_leaves_nothing(person: Person, way: OverlayMethod) -> None:
    for _ in range(2):
        assert person.run("cat /etc/hostname; ls", capabilities=by(person, way)).exit_code == 0
        assert not left_in(person.paths.cache)
    # Nor does one that ends the program at once.
    assert person.cli("run", "--", "true").returncode == 0
    assert not left_in(person.paths.cache)


def test_a_folder_that_could_not_be_removed_is_removed_next_time(tmp_path: Path) -> None:
    overlay = made(tmp_path)
    overlay.set_aside()
    cache = tmp_path / "cache"
    assert left_in(cache) == [f"done-{overlay.run_id}"]
    # While another program is removing it, it is left alone.
    assert list(leftovers(cache, print)) == []
    assert left_in(cache)
    overlay.release()
    assert list(leftovers(cache, print)) == []
    assert left_in(cache) == []


def test_a_single_file_counts_as_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may have made very many, and the window waits for this."""
    overlay = made(tmp_path)
    assert overlay.is_untouched()
    for number in range(5):
        Path(overlay.upper("overlay1"), str(number)).touch()
    looked_at: list[str] = []
    really = os.scandir

    def noted(found: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in found:
            looked_at.append(entry.name)
            yield entry

    @contextmanager
    def scandir(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with really(folder) as found:
            yield noted(found)

    def listdir(folder: str) -> list[str]:
        looked_at.extend(entry.name for entry in really(folder))
        return list(looked_at)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "listdir", listdir)
    assert not overlay.is_untouched()
    assert len(looked_at) == 1
    monkeypatch.undo()
    overlay.release()


def test_a_file_written_after_the_overlay_was_set_aside_is_removed(tmp_path: Path) -> None:
    overlay = made(tmp_path)
    overlay.set_aside()
    Path(overlay.upper("overlay1"), "file").touch()
    overlay.cleanup()
    assert left_in(tmp_path / "cache") == []


@pytest.mark.parametrize("what", ["", "something else", "upper/overlay1/earlier version"])
def test_a_run_folder_with_a_damaged_map_is_left_alone_and_reported(
    tmp_path: Path, what: str
) -> None:
    """A power cut may leave an empty map file."""
    overlay = made(tmp_path)
    Path(overlay.folder, "map.json").write_text("")
    if what:
        Path(overlay.folder, what).write_text("the only one")
    overlay.release()
    told: list[str] = []
    assert list(leftovers(tmp_path / "cache", told.append)) == []
    if what:
        assert told == [overlay.folder]
        assert Path(overlay.folder, what).read_text() == "the only one"
    else:
        # Where nothing else is in it, it is removed.
        assert (told, left_in(tmp_path / "cache")) == ([], [])


def test_a_run_that_ends_just_when_it_is_looked_at_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = made(tmp_path)
    overlay.release()

    def read(*_given: object) -> Overlay:
        overlay.cleanup()
        raise FileNotFoundError(overlay.folder)

    monkeypatch.setattr(Overlay, "_read", read)
    before = os.listdir("/proc/self/fd")
    assert list(leftovers(tmp_path / "cache", pytest.fail)) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_power_cut_in_the_middle_of_applying_finds_the_map_on_the_disk(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    person.run("echo new > file")
    # The job has no name yet, unless the file system gives every file one.
    halves = ("#", ".job.json-")
    assert flushed.index("map.json") < next(
        number for number, name in enumerate(flushed) if name.startswith(halves)
    )


# --- whose process lives -------------------------------------------------------------------------


def test_a_run_whose_process_lives_is_left_alone(tmp_path: Path) -> None:
    overlay = made(tmp_path)
    process = subprocess.Popen(["sleep", "1000"])
    try:
        overlay.note_process(process.pid)
        overlay.release()
        assert list(leftovers(tmp_path / "cache", print)) == []
        assert find_leftovers(tmp_path / "cache") == []
        process.kill()
        # Dead and not yet asked for, it does not live.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert find_leftovers(tmp_path / "cache") == [os.path.basename(overlay.folder)]
        (found,) = leftovers(tmp_path / "cache", print)
        assert found.run_id == overlay.run_id
        found.cleanup()
    finally:
        process.wait()


def test_a_process_that_was_gone_when_it_was_noted_does_not_live(tmp_path: Path) -> None:
    overlay = made(tmp_path)
    process = subprocess.Popen(["true"])
    process.wait()
    overlay.note_process(process.pid)
    overlay.release()
    (found,) = leftovers(tmp_path / "cache", print)
    assert found.run_id == overlay.run_id
    found.cleanup()


# --- what time it is -----------------------------------------------------------------------------


def test_another_program_that_runs_between_two_readings_sets_no_clock_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = clock_offset()
    real, slow = time.time_ns, [True] * 5

    def interrupted() -> int:
        now = real()
        if slow and slow.pop():
            time.sleep(0.02)
        return now

    monkeypatch.setattr(time, "time_ns", interrupted)
    # A clock that was set back by a millisecond is believed.
    assert abs(clock_offset() - before) < 1_000_000
    assert not slow


def test_a_file_that_was_changed_just_before_is_no_conflict(person: Person) -> None:
    for number in range(4):
        (person.project / "file").write_text(f"{number}")
        result = person.run("echo changed >>file")
        assert result.exit_code == 0
        assert (person.project / "file").read_text() == f"{number}changed\n"
