# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a whole file, or nothing: no reader ever sees half of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..paths import make_folder


def write_atomically(file: Path, text: str, *, durably: bool = False) -> None:
    """All of it or nothing, also when two programs write at once; after a power cut only if it is
    done `durably`, which takes longer."""
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


def write_alone(file: Path, text: str, *, durably: bool = False) -> None:
    """The same for who holds a lock meanwhile: a kill leaves nothing that the next one does not use
    up."""
    folder = make_folder(file.parent)
    if file.exists() or not _is_written_unnamed(file, text, durably=durably):
        half = folder / f".{file.name}-half"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            _fill(os.open(half, flags, 0o600), text, durably=durably)
            os.rename(half, file)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
    if durably:
        flush(folder)


def _is_written_unnamed(file: Path, text: str, *, durably: bool) -> bool:
    """Where nothing is yet, it gets its name when it is whole. Not every file system can do that;
    whatever else is wrong, the other way tells."""
    try:
        around = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            new = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=around)
            _fill(new, text, durably=durably, name=(file.name, around))
        finally:
            os.close(around)
    except OSError:
        return False
    return True


def _fill(
    descriptor: int, text: str, *, durably: bool, name: tuple[str, int] | None = None
) -> None:
    """A file that was opened for this, and gets its name then."""
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


def flush(place: str | os.PathLike[str]) -> None:
    """A file or a folder, to the disk itself, where the file system can do that."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
