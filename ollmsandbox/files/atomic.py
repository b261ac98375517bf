# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a file completely or not at all: no reader ever sees half of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..paths import make_folder


def write_atomically(
    file: Path, text: str, *, durably: bool = False, is_locked: bool = False
) -> None:
    """Replace a file, even if another program writes it at the same time.

    `durably`, which is slower, makes sure that a power cut leaves the old content or the new. If
    the caller holds a lock for the file (`is_locked`), a kill leaves at most one temporary file,
    which the next call uses again.
    """
    folder = make_folder(file.parent)
    temporary = folder / f".{file.name}-{'half' if is_locked else os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as new:
            new.write(text)
            new.flush()
            if durably:
                os.fsync(new.fileno())
        os.rename(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durably:
        flush(folder)


def flush(path: str | os.PathLike[str]) -> None:
    """Write a file or a folder through to the disk, where the file system can do that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
