# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic writes, and real paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ollmsandbox.files.atomic import write_atomically
from ollmsandbox.paths import real_path

pytestmark = pytest.mark.ordinary


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "half a character: \udcff")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_atomically(folder, "new")
    assert sorted(tmp_path.iterdir()) == [file, folder]


def test_a_real_path_is_what_python_says_too(tmp_path: Path) -> None:
    (tmp_path / "folder" / "a (deleted)").mkdir(parents=True)
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "nowhere").symlink_to("folder/missing")
    (tmp_path / "circle").symlink_to("circle")
    for name in (
        *("folder", "folder/", "link", "link/file", "link/a (deleted)", "link/../folder"),
        *("nowhere", "missing", "missing/deeper", "circle", "circle/x", ".", "/"),
    ):
        path = tmp_path / name if name == "/" else f"{tmp_path}/{name}"
        assert real_path(path) == os.path.realpath(path)
