# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball is fetched, taken up again where it broke off, and compared with its checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from urllib3.exceptions import HTTPError

from ..errors import RootfsError
from ..paths import make_folder
from .rootfs_release import Release, UnreachableError, get

# The real one has less than 4 MiB.
LARGEST = 256 << 20
_PIECE = 1 << 16
# It is taken up again so often before a person is told.
_ATTEMPTS = 3

# How much is there, and of how much; called between two pieces, and may raise to end it.
Tell = Callable[[int, int | None], None]


def download_rootfs(release: Release, folder: Path, tell: Tell, largest: int = LARGEST) -> Path:
    """Blocks. The file is whole and the right one, or there is an error."""
    make_folder(folder)
    # By its checksum: what is left of another version is never taken up.
    part = folder / f"{release.sha256}.part"
    whole = folder / f"{release.sha256}.tar.gz"
    if whole.exists() and sha256_of(whole) == release.sha256:
        return whole
    for attempt in range(_ATTEMPTS):
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _fetch(release, part, tell, largest)
        except UnreachableError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        if sha256_of(part) == release.sha256:
            os.rename(part, whole)
            return whole
        part.unlink()
        if not resumed:
            break
    raise RootfsError(
        f"{release.url} is not the file that the mirror's list names: its checksum differs. "
        "It was not unpacked.",
        "Try again; if it stays so, set another mirror and do not use this one.",
    )


def _fetch(release: Release, part: Path, tell: Tell, largest: int) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with get(release.url, headers) as answer:
        if answer.status_code == 416:
            return  # all of it is there, or it is another file's: the checksum tells
        if answer.status_code != 206 or not _begins_at(answer.headers, have):
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        if (total or release.size or 0) > largest:
            raise _too_large(release, largest)
        with open(part, "r+b" if have else "wb") as file:
            file.seek(have)
            file.truncate()
            try:
                # As it is on the server: the checksum is of that.
                for piece in answer.raw.stream(_PIECE, decode_content=False):
                    file.write(piece)
                    have += len(piece)
                    if have > largest:
                        raise _too_large(release, largest)
                    tell(have, total or release.size)
            except HTTPError as error:
                raise UnreachableError(release.url) from error
            file.flush()
        if total is not None and have < total:
            raise UnreachableError(release.url)


def _begins_at(headers: object, have: int) -> bool:
    found = headers.get("Content-Range", "") if hasattr(headers, "get") else ""
    return str(found).startswith(f"bytes {have}-")


def _too_large(release: Release, largest: int) -> RootfsError:
    return RootfsError(
        f"{release.url} is larger than {largest >> 20} MiB, which no such system is.",
        "Set another mirror: ollmsandbox settings rootfs-mirror ADDRESS",
    )


def sha256_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
