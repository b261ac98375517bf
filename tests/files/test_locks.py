# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks between programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollmsandbox.files.locks import FileLock
from ollmsandbox.paths import FolderSet, is_inside

pytestmark = pytest.mark.ordinary


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_lock_excludes_others_until_it_is_released(tmp_path: Path, is_folder: bool) -> None:
    path = tmp_path if is_folder else tmp_path / "lock"
    with FileLock(path, is_folder=is_folder):
        for shared in (False, True):
            with pytest.raises(BlockingIOError):
                FileLock(path, is_folder=is_folder, shared=shared, timeout=0)
    FileLock(path, is_folder=is_folder, timeout=0).release()


def test_shared_locks_exclude_only_others(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock(path, shared=True)
    with first, FileLock(path, shared=True, timeout=0), pytest.raises(BlockingIOError):
        FileLock(path, timeout=0.05)


def test_a_callback_runs_during_the_wait_and_may_end_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = FileLock(path)
    FileLock(path, on_wait=held.release).release()

    def give_up() -> None:
        raise KeyError

    with FileLock(path), pytest.raises(KeyError):
        FileLock(path, on_wait=give_up)
    FileLock(path, timeout=0).release()


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("path", "folder", "inside"),
    [("/a/b", "/a", True), ("/a", "/a", True), ("/ab", "/a", False), ("/a", "/", True)],
)
def test_a_path_is_inside_a_folder_by_whole_names(path: str, folder: str, inside: bool) -> None:
    assert is_inside(path, "/other", folder) is inside
    assert (path in FolderSet(("/other", folder))) is inside
