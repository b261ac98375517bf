# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a file completely or not at all: no reader ever sees half of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..paths import make_folder
from .dirfd import opened_folder


def write_atomically(file: Path, text: str, *, durably: bool = False) -> None:
    """Replace a file, even if another program writes it at the same time.

    `durably`, which is slower, makes sure that a power cut leaves the old content or the new.
    """
    import tempfile

    make_folder(file.parent)
    with tempfile.NamedTemporaryFile(
        "w", dir=file.parent, prefix=f".{file.name}-", delete=False, encoding="utf-8"
    ) as new:
        try:
            new.write(text)
            new.flush()
            if durably:
                os.fsync(new.fileno())
            os.rename(new.name, file)
        except BaseException:
            os.unlink(new.name)
            raise
    if durably:
        flush(file.parent)


def write_locked(file: Path, text: str, *, durably: bool = False) -> None:
    """Replace a file while the caller holds a lock for it.

    A kill leaves at most one temporary file, which the next call uses again.
    """
    folder = make_folder(file.parent)
    if file.exists() or not _try_unnamed(file, text, durably=durably):
        temporary = folder / f".{file.name}-half"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            _fill(os.open(temporary, flags, 0o600), text, durably=durably)
            os.rename(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if durably:
        flush(folder)


def _try_unnamed(file: Path, text: str, *, durably: bool) -> bool:
    """Write a new file that gets its name only when it is complete.

    Return False where that fails: not every file system can do it, and the other way reports any
    other error.
    """
    try:
        with opened_folder(file.parent, follow_link=True) as folder:
            new = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
            _fill(new, text, durably=durably, name=(file.name, folder))
    except OSError:
        return False
    return True


def _fill(
    descriptor: int, text: str, *, durably: bool, name: tuple[str, int] | None = None
) -> None:
    """Write and close a file; then link it to `name`, which is relative to a folder."""
    left = text.encode()
    try:
        while left:
            left = left[os.write(descriptor, left) :]
        if durably:
            os.fsync(descriptor)
        if name:
            os.link(f"/proc/self/fd/{descriptor}", name[0], dst_dir_fd=name[1])
    finally:
        os.close(descriptor)


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
