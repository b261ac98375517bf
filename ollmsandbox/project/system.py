# SPDX-License-Identifier: GPL-3.0-or-later
"""In which system a project's commands run: this machine's own, or Alpine.

Kept in a small file beside the project's other things: a command shall not wait until the database
is open.
"""

from __future__ import annotations

from enum import Enum

from ..paths import Paths, write_atomically


class System(Enum):
    HOST = "host"
    ALPINE = "alpine"


def system_of(paths: Paths, project: str) -> System:
    """`project` is the folder with its links resolved."""
    try:
        return System(paths.system(project).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return System.HOST


def set_system(paths: Paths, project: str, system: System) -> None:
    if system is System.HOST:
        paths.system(project).unlink(missing_ok=True)
    else:
        write_atomically(paths.system(project), f"{system.value}\n")
