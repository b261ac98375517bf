# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloading the tarball: interrupted, resumed, replaced, too large."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rootfs import ARCH, Mirror, mirror

from ollmsandbox.errors import RootfsError
from ollmsandbox.sandbox.rootfs.mirror import UnreachableError
from ollmsandbox.sandbox.rootfs.release import Release, download_rootfs, find_release

pytestmark = pytest.mark.ordinary
CONTENT = random.Random(1).randbytes(300_000)


@pytest.fixture
def served() -> Iterator[Mirror]:
    with mirror() as running:
        yield running


@pytest.fixture
def path(served: Mirror) -> str:
    return served.has("3.99.1", CONTENT)


@pytest.fixture
def release(served: Mirror, path: str) -> Release:
    return find_release(served.settings, ARCH)


def ignore_progress(_done: int, _total: int | None) -> None:
    return


def test_the_tarball_is_downloaded_once_with_progress(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    told: list[tuple[int, int | None]] = []
    file = download_rootfs(release, tmp_path / "d", lambda done, total: told.append((done, total)))
    assert file.read_bytes() == CONTENT
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (300_000, 300_000)
    assert len(told) > 2
    assert download_rootfs(release, tmp_path / "d", ignore_progress) == file
    assert served.fetched(path) == [""]


def test_an_interrupted_download_is_resumed_the_next_time(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    served.breaks[path] = [100_000, 50_000]
    for _ in range(2):
        with pytest.raises(UnreachableError) as caught:
            download_rootfs(release, tmp_path, ignore_progress)
        assert "continues where it stopped" in caught.value.remedy
    assert download_rootfs(release, tmp_path, ignore_progress).read_bytes() == CONTENT
    assert served.fetched(path) == ["", "bytes=100000-", "bytes=150000-"]


def test_a_server_that_cannot_begin_in_the_middle_is_served_from_the_beginning(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    served.breaks[path] = [1000]
    served.ranges = False
    with pytest.raises(UnreachableError):
        download_rootfs(release, tmp_path, ignore_progress)
    assert download_rootfs(release, tmp_path, ignore_progress).read_bytes() == CONTENT
    assert served.fetched(path) == ["", "bytes=1000-"]


def test_another_file_than_the_list_names_is_refused_and_not_kept(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    served.files[path] = CONTENT[:-1] + b"!"
    with pytest.raises(RootfsError, match="checksum differs"):
        download_rootfs(release, tmp_path, ignore_progress)
    assert list(tmp_path.iterdir()) == []


def test_a_beginning_that_belongs_to_another_file_is_thrown_away(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    (tmp_path / f"{release.sha256}.part").write_bytes(b"x" * 1000)
    with pytest.raises(RootfsError, match="checksum differs"):
        download_rootfs(release, tmp_path, ignore_progress)
    assert download_rootfs(release, tmp_path, ignore_progress).read_bytes() == CONTENT
    assert served.fetched(path) == ["bytes=1000-", ""]


def test_a_server_error_is_reported(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    served.status[path] = 500
    with pytest.raises(RootfsError, match="500"):
        download_rootfs(release, tmp_path, ignore_progress)


def test_a_file_that_is_too_large_is_not_downloaded(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    with pytest.raises(RootfsError, match="larger than"):
        download_rootfs(release, tmp_path, ignore_progress, largest=200_000)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 200_000


def test_a_download_can_be_cancelled(release: Release, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def tell(_done: int, _total: int | None) -> None:
        raise Enough

    with pytest.raises(Enough):
        download_rootfs(release, tmp_path, tell)
    assert download_rootfs(release, tmp_path, ignore_progress).read_bytes() == CONTENT


def test_a_full_disk_is_not_reported_as_a_broken_connection(
    served: Mirror, path: str, release: Release, tmp_path: Path
) -> None:
    (tmp_path / f"{release.sha256}.part").symlink_to("/dev/full")
    with pytest.raises(RootfsError, match="No space left") as caught:
        download_rootfs(release, tmp_path, ignore_progress)
    assert not isinstance(caught.value, UnreachableError)
    assert served.fetched(path) == [""]
