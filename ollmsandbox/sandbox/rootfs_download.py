# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball is fetched, taken up again where it broke off, and compared with its checksum."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from .. import N_
from ..errors import RootfsError
from ..paths import make_folder
from .rootfs_http import UnreachableError, get, pieces, without_password
from .rootfs_release import Release

# The real one has less than 4 MiB.
LARGEST = 256 << 20
# It is taken up again so often before a person is told.
_ATTEMPTS = 3

# How much is there, and of how much; called before each piece is written, and may raise to end it.
Tell = Callable[[int, int | None], None]


def download_rootfs(release: Release, folder: Path, tell: Tell, largest: int = LARGEST) -> Path:
    """Blocks. The file is whole and the right one, or there is an error."""
    make_folder(folder)
    # By its checksum: what is left of another version is never taken up.
    part = folder / f"{release.sha256}.part"
    whole = folder / f"{release.sha256}.tar.gz"
    try:
        if whole.exists() and sha256_of(whole) == release.sha256:
            return whole
        for attempt in range(_ATTEMPTS):
            resumed = part.exists() and part.stat().st_size > 0
            try:
                _fetch(release, part, tell, largest)
            except UnreachableError:
                if attempt == _ATTEMPTS - 1:
                    raise
                tell(part.stat().st_size if part.exists() else 0, release.size)
                continue
            if sha256_of(part) == release.sha256:
                os.rename(part, whole)
                return whole
            part.unlink()
            if not resumed:
                break
    except OSError as error:
        raise cannot_write(folder, error) from error
    raise RootfsError(
        N_(
            "{address} is not the file that the mirror's list names: its checksum differs. "
            "It was not unpacked."
        ),
        N_("Try again; if it stays so, set another mirror and do not use this one."),
        address=without_password(release.url),
    )


def _fetch(release: Release, part: Path, tell: Tell, largest: int) -> None:
    have = part.stat().st_size if part.exists() else 0
    with get(release.url, {"Range": f"bytes={have}-"} if have else None) as answer:
        if answer.status_code == 416:
            return  # all of it is there, or it is another file's: the checksum tells
        begins = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code != 206 or not begins:
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if re.fullmatch("[0-9]{1,15}", length) else None
        if (total or release.size or 0) > largest:
            raise _too_large(release, largest)
        # Whoever is not waited for any more ends here, and has changed nothing.
        tell(have, total or release.size)
        with open(part, "r+b" if have else "wb", buffering=0) as file:
            if have:
                file.truncate(file.seek(have))
            for piece in pieces(answer, release.url):
                have += len(piece)
                if have > largest:
                    raise _too_large(release, largest)
                tell(have, total or release.size)
                left = memoryview(piece)
                while left:
                    left = left[file.write(left) :]
        if total is not None and have < total:
            raise UnreachableError(release.url)


def cannot_write(folder: Path, error: OSError) -> RootfsError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RootfsError(
            N_("There is no room left on the disk that {folder} is on."),
            N_("Make room, and try again."),
            folder=folder,
        )
    return RootfsError(
        N_("{folder} cannot be written: {why}."), folder=folder, why=error.strerror or str(error)
    )


def _too_large(release: Release, largest: int) -> RootfsError:
    return RootfsError(
        N_("{address} is larger than {size} MiB, as no such system is."),
        N_("Set another mirror: ollmsandbox settings rootfs-mirror ADDRESS"),
        address=without_password(release.url),
        size=largest >> 20,
    )


def sha256_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
