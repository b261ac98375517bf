# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox playground`"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import OllmSandboxError
from ..paths import Paths


def playground(action: str) -> int:
    folder = Paths.from_environ(os.environ).playground
    if action == "path":
        print(folder)
    elif action == "size":
        files, size = _measure(folder)
        print(f"{_readable(size)} in {files} {'file' if files == 1 else 'files'}")
    else:
        files, size = _measure(folder)
        if sys.stdin.isatty() and not _confirmed(folder, files, size):
            return 1
        _clear(folder)
    return 0


def _measure(folder: Path) -> tuple[int, int]:
    """Names and bytes on disk; links are not followed."""
    files = size = 0
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            found = os.lstat(os.path.join(path, name))
            size += found.st_blocks * 512
            files += not stat.S_ISDIR(found.st_mode)
    return files, size


def _clear(folder: Path) -> None:
    if not folder.exists():
        return

    def retry(remove: Callable[[str], object], path: str, failure: object) -> None:
        # A command may have left folders without permissions, and everything in it is ours.
        os.chmod(os.path.dirname(path), 0o700)
        if not os.path.islink(path) and os.path.isdir(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    for entry in os.scandir(folder):
        try:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, onerror=retry)
            else:
                os.unlink(entry.path)
        except OSError as error:
            raise OllmSandboxError(f"{entry.path} cannot be removed: {error.strerror}.") from error


def _confirmed(folder: Path, files: int, size: int) -> bool:
    answer = input(f"Delete everything in {folder} ({files} files, {_readable(size)})? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
