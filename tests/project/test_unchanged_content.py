# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that was touched but not changed is recognized without reading its holes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ollmsandbox.files.overlayfs import same_bytes
from ollmsandbox.project import scan as changes
from ollmsandbox.project.change import Kind
from ollmsandbox.project.held.git.view import View
from ollmsandbox.project.scan import scan

pytestmark = pytest.mark.anybody

HUGE = 300 << 30
BLOCK = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def make(file: Path, size: int, *data: tuple[int, bytes]) -> None:
    with file.open("wb") as made:
        made.truncate(size)
        for at, words in data:
            os.pwrite(made.fileno(), words, at)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes of each read."""
    found: list[int] = []

    def counted(read: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(file: int, size: int, *at: int) -> bytes:
            data = read(file, size, *at)
            found.append(len(data))
            assert sum(found) <= 1 << 30, "it reads what was never written"
            return data

        return call

    for name in ("read", "pread"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return found


def test_a_hole_larger_than_the_disk(tmp_path: Path, folder: int, reads: list[int]) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, HUGE, (HUGE // 2, b"in the middle"), (HUGE - 3, b"end"))
    assert same_bytes("one", folder, "two", folder)
    assert sum(reads) <= 8 * BLOCK


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, HUGE // 2, HUGE - 1])
def test_one_byte_in_a_hole(tmp_path: Path, folder: int, reads: list[int], at: int) -> None:
    make(tmp_path / "one", HUGE)
    make(tmp_path / "two", HUGE, (at, b"x"))
    assert not same_bytes("one", folder, "two", folder)
    assert not same_bytes("two", folder, "one", folder)
    assert sum(reads) <= 8 * BLOCK


def test_zeros_that_were_written_are_a_hole_s(tmp_path: Path, folder: int) -> None:
    make(tmp_path / "one", 3 * BLOCK, (BLOCK, b"x"))
    (tmp_path / "two").write_bytes(bytes(BLOCK) + b"x" + bytes(2 * BLOCK - 1))
    assert same_bytes("one", folder, "two", folder)


@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1])
def test_files_of_any_size(tmp_path: Path, folder: int, size: int) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"x" * size)
    assert same_bytes("one", folder, "two", folder)
    (tmp_path / "two").write_bytes(b"x" * (size + 1))
    assert not same_bytes("one", folder, "two", folder)


def test_a_file_with_too_much_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_MOST_COMPARED", 2 * BLOCK)
    upper, root = tmp_path / "upper", tmp_path / "root"
    for around in (upper, root):
        around.mkdir()
        (around / "some").write_bytes(b"x" * 2 * BLOCK)
        (around / "much").write_bytes(b"x" * 3 * BLOCK)
    found = scan(str(root), View({str(root): (str(upper), str(root))}))
    assert [(change.path, change.kind) for change in found.changes] == [("much", Kind.MODIFIED)]
