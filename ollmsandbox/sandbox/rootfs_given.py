# SPDX-License-Identifier: GPL-3.0-or-later
"""A tarball that the person has, instead of the mirror's."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ..errors import RootfsError
from .rootfs_download import sha256_of
from .rootfs_http import FLAVOR

_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}")
_NAME_IT = f"Name the tarball of {FLAVOR}, as it is on a mirror."


def check_given(tarball: Path) -> None:
    """A file of the person's. Where its checksum lies beside it, as on a mirror, it has to be
    right."""
    try:
        if not stat.S_ISREG(os.stat(tarball).st_mode):
            raise RootfsError(f"{tarball} is no file.", _NAME_IT)
        found = sha256_of(tarball)
    except FileNotFoundError as error:
        raise RootfsError(f"There is no file {tarball}.", _NAME_IT) from error
    except OSError as error:
        raise RootfsError(
            f"{tarball} cannot be read: {error.strerror or error}.",
            _NAME_IT,
        ) from error
    beside = tarball.with_name(f"{tarball.name}.sha256")
    try:
        words = beside.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RootfsError(
            f"{beside} cannot be read: {error.strerror or error}.", "Mend it or remove it."
        ) from error
    if not words or words[0].lower() != found:
        raise RootfsError(
            f"The checksum of {tarball} is not the one in {beside.name}.", "Fetch both again."
        )


def version_in(folder: Path) -> str:
    try:
        version = (folder / "etc/alpine-release").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        version = ""
    if not _VERSION.fullmatch(version):
        raise RootfsError(
            "This is no Alpine system: it does not say its version.",
            _NAME_IT,
        )
    return version
