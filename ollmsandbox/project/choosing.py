# SPDX-License-Identifier: GPL-3.0-or-later
"""Which changes of a run are meant by the paths that a person names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import N_
from ..errors import OllmSandboxError
from .change import Recorded


def choose(items: Sequence[Recorded], chosen: Sequence[str]) -> list[Recorded]:
    """By full path. A folder stands for all that is in it."""
    if not chosen:
        return list(items)
    found: dict[int, Recorded] = {}
    for path in chosen:
        matching = [item for item in items if _is_at(item, path)]
        if not matching:
            raise OllmSandboxError(
                N_("The run did not change {path}."),
                N_("`ollmsandbox changes` shows what it changed."),
                path=path,
            )
        found.update((item.number, item) for item in matching)
    return [found[number] for number in sorted(found)]


def _is_at(item: Recorded, path: str) -> bool:
    full = os.path.normpath(f"{item.change.root}/{item.change.path}")
    return full == path or full.startswith(f"{path.rstrip('/')}/")
