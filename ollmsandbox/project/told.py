# SPDX-License-Identifier: GPL-3.0-or-later
"""What cannot be finished, since its project is gone, is told once. As long as that is so, nobody
has to look at it again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..errors import OllmSandboxError
from ..paths import Paths, make_folder


class Told:
    """While all that was cut off is gone through. A small file for each holds its project."""

    def __init__(self, paths: Paths) -> None:
        self._folder = _folder(paths)
        self._left: set[str] = set()

    def is_news(self, name: str, project: str) -> bool:
        self._left.add(name)
        try:
            make_folder(self._folder)
            with open(self._folder / name, "xb") as file:
                file.write(os.fsencode(project))
        except FileExistsError:
            return False
        except (OllmSandboxError, OSError):
            return True  # a disk is full, perhaps; better told again than not at all
        return True

    def end(self) -> None:
        # A note too many does no harm, and goes the next time.
        with contextlib.suppress(OSError):
            for name in set(os.listdir(self._folder)) - self._left:
                _remove(self._folder, name)


def forget(paths: Paths, name: str) -> None:
    with contextlib.suppress(OSError):  # as above
        _remove(_folder(paths), name)


def is_told(paths: Paths, name: str) -> bool:
    """And its project is still gone. If in doubt, it is not."""
    try:
        project = (_folder(paths) / name).read_bytes()
    except OSError:
        return False
    return bool(project) and not os.path.isdir(project)


def _folder(paths: Paths) -> Path:
    return paths.cache / "told"


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there are others
        folder.rmdir()
