# SPDX-License-Identifier: GPL-3.0-or-later
"""Which system a project's commands run in: the host's own, or Alpine.

The choice is in a small file, not in the database, and this module does not import the database:
loading it would take longer than starting a sandbox.
"""

from __future__ import annotations

from enum import Enum

from ..files.atomic import write_atomically
from ..paths import Paths


class System(Enum):
    HOST = "host"
    ALPINE = "alpine"


def system_of(paths: Paths, project: str) -> System:
    """Return the system chosen for `project`, a folder with its links resolved."""
    try:
        return System(paths.system(project).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return System.HOST


def set_system(paths: Paths, project: str, system: System) -> None:
    if system is System.HOST:
        paths.system(project).unlink(missing_ok=True)
    else:
        write_atomically(paths.system(project), f"{system.value}\n")
