# SPDX-License-Identifier: GPL-3.0-or-later
"""A tarball that the person has, instead of the mirror's."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from .. import N_
from ..errors import RootfsError, Sentence
from .rootfs_download import sha256_of
from .rootfs_http import FLAVOR

_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}")
_NAME_IT = Sentence(N_("Name the tarball of {name}, as it is on a mirror."), name=FLAVOR)


def check_given(tarball: Path) -> None:
    """A file of the person's. Where its checksum lies beside it, as on a mirror, it has to be
    right."""
    try:
        if not stat.S_ISREG(os.stat(tarball).st_mode):
            raise RootfsError(N_("{file} is no file."), _NAME_IT, file=tarball)
        found = sha256_of(tarball)
    except FileNotFoundError as error:
        raise RootfsError(N_("There is no file {file}."), _NAME_IT, file=tarball) from error
    except OSError as error:
        raise RootfsError(
            N_("{file} cannot be read: {why}."),
            _NAME_IT,
            file=tarball,
            why=error.strerror or str(error),
        ) from error
    beside = tarball.with_name(f"{tarball.name}.sha256")
    try:
        words = beside.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RootfsError(
            N_("{file} cannot be read: {why}."),
            N_("Mend it or remove it."),
            file=beside,
            why=error.strerror or str(error),
        ) from error
    if not words or words[0].lower() != found:
        raise RootfsError(
            N_("The checksum of {file} is not the one in {list}."),
            N_("Fetch both again."),
            file=tarball,
            list=beside.name,
        )


def version_in(folder: Path) -> str:
    try:
        version = (folder / "etc/alpine-release").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        version = ""
    if not _VERSION.fullmatch(version):
        raise RootfsError(N_("This is no Alpine system: it does not say its version."), _NAME_IT)
    return version
