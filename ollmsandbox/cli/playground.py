# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox playground`"""

from __future__ import annotations

import os
import stat
import sys
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
    waiting = [str(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # without permissions: what is in it is not known
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            size += found.st_blocks * 512
            files += not stat.S_ISDIR(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                waiting.append(entry.path)
    return files, size


def _clear(folder: Path) -> None:
    if not folder.exists():
        return

    for entry in os.scandir(folder):
        try:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
        except OSError as error:
            raise OllmSandboxError(f"{entry.path} cannot be removed: {error.strerror}.") from error


def _remove(folder: str) -> None:
    """Not shutil.rmtree: it recurses, and stops at folders that a command left closed."""
    folders = [folder]
    for one in folders:
        os.chmod(one, 0o700)
        for entry in os.scandir(one):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                os.unlink(entry.path)
    for one in reversed(folders):
        os.rmdir(one)


def _confirmed(folder: Path, files: int, size: int) -> bool:
    answer = input(f"Delete everything in {folder} ({files} files, {_readable(size)})? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
