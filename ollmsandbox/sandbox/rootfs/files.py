# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write files of a root file system from outside, without following its links."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ... import N_
from ...errors import RootfsError
from ...files.dirfd import open_regular_file, opened_folder

# Where the sandbox mounts something.
RESOLVER = "etc/resolv.conf"
MOUNT_POINTS = (
    *("workspace", "playground", "skills", "home"),
    *("dev", "proc", "sys", "tmp", "var/tmp", "run"),
)


def prepare_mount_points(folder: Path) -> None:
    """Create what the sandbox mounts over: later the root file system is read-only."""
    for point in MOUNT_POINTS:
        with _inside(folder, f"{point}/."):
            pass
    write_inside(folder, RESOLVER, "")


def write_inside(folder: Path, name: str, text: str) -> None:
    """Write a new file in place of whatever is there: a link could lead out."""
    with _inside(folder, name) as around:
        last = os.path.basename(name)
        try:
            os.unlink(last, dir_fd=around)
        except FileNotFoundError:
            pass  # there was none
        except IsADirectoryError as error:
            raise _not_alpine(name) from error
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(last, flags, 0o644, dir_fd=around), "w", encoding="utf-8") as file:
            file.write(text)


def read_inside(folder: Path, name: str, most: int) -> str:
    """Return the beginning of a file, or "" if it is missing or not a regular file."""
    with contextlib.suppress(OSError, RootfsError), _inside(folder, name, make=False) as around:
        return _read(os.path.basename(name), around, most)
    return ""


def add_user(folder: Path) -> None:
    """Add the user to etc/passwd and etc/group: git and others fail for an unknown user."""
    uid, gid = os.getuid(), os.getgid()
    for name, number, line in (
        ("etc/passwd", uid, f"user:x:{uid}:{gid}:user:/{MOUNT_POINTS[0]}:/bin/sh\n"),
        ("etc/group", gid, f"user:x:{gid}:\n"),
    ):
        with _inside(folder, name) as around:
            text = _read(os.path.basename(name), around, 1 << 16)
        known = {fields[2] for row in text.splitlines() if len(fields := row.split(":")) > 2}
        if str(number) not in known:
            write_inside(folder, name, f"{text.rstrip()}\n{line}".lstrip())


def _read(name: str, around: int, most: int) -> str:
    try:
        with open_regular_file(name, around) as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""  # missing, or not a file


@contextlib.contextmanager
def _inside(folder: Path, name: str, *, make: bool = True) -> Iterator[int]:
    """Open the folder that contains a name, and create it where it is missing."""
    with contextlib.ExitStack() as opened:
        here = opened.enter_context(opened_folder(folder, follow_link=True))
        for part in name.split("/")[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            try:
                here = opened.enter_context(opened_folder(part, here))
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                raise _not_alpine(name) from error
        yield here


def _not_alpine(name: str) -> RootfsError:
    return RootfsError(
        N_("This is not an Alpine root file system: {name} has an unexpected type."),
        N_("Download it from another place."),
        name=name.rstrip("/."),
    )
