# SPDX-License-Identifier: GPL-3.0-or-later
"""The limit for what a command may write to disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.timing import wait_for

from ollmsandbox.sandbox.limits import DiskWatch
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.sandbox.profile.profile import Limits

pytestmark = pytest.mark.ordinary


def test_existing_files_do_not_count_against_the_disk_limit(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.write_bytes(os.urandom(4 << 20))
    began = os.stat(earlier).st_ctime_ns + 1
    disk = DiskWatch(Limits(disk=1 << 20), shared=[str(tmp_path)])

    def is_too_much() -> Stop | None:
        # As if another program had filled the disk meanwhile.
        disk._before, disk._began = {str(tmp_path): 0}, began
        return disk.exceeded([os.getpid()])

    assert is_too_much() is None
    tick = tmp_path / "tick"
    tick.touch()
    while os.stat(tick).st_ctime_ns < began:
        tick.touch()
    (tmp_path / "large").write_bytes(os.urandom(4 << 20))
    assert is_too_much() is Stop.DISK


def test_what_other_programs_delete_hides_nothing(tmp_path: Path) -> None:
    disk = DiskWatch(Limits(disk=1 << 20), [str(tmp_path)])
    # As if they had deleted more than the command writes.
    disk._before = {str(tmp_path): 1 << 60}
    assert disk.exceeded() is None
    (tmp_path / "large").write_bytes(os.urandom(4 << 20))

    def is_found() -> bool:
        disk._before = {str(tmp_path): 1 << 60}
        return disk.exceeded() is Stop.DISK

    wait_for(is_found)


def test_empty_files_count(tmp_path: Path) -> None:
    disk = DiskWatch(Limits(disk=1 << 20), [str(tmp_path)])
    for number in range(200):
        (tmp_path / str(number)).touch()
    assert disk.exceeded() is None
    for number in range(200, 300):
        (tmp_path / str(number)).mkdir()
    disk._due = {str(tmp_path): 0.0}
    assert disk.exceeded() is Stop.DISK


def test_some_inodes_stay_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)
    free = 100_000

    def statvfs(_folder: str) -> os.statvfs_result:
        # The sixth to the eighth are the numbers of inodes: all, free, free for users.
        return os.statvfs_result((*real[:5], 100_000, free, free, *real[8:]))

    monkeypatch.setattr(os, "statvfs", statvfs)
    disk = DiskWatch(Limits(free=0), [str(tmp_path)])
    for left, expected in ((95_000, None), (2_100, None), (1_900, Stop.FULL)):
        free = left
        assert disk.exceeded() is expected
    # On a disk that had none before, a command that makes few may go on.
    assert DiskWatch(Limits(free=0), [str(tmp_path)]).exceeded() is None
