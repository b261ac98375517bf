# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a file that cannot be used under another name beside it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path


def free_name(file: Path, why: str) -> Path:
    """Return an unused name beside a file, such as permissions-broken-20250131-142500.yaml."""
    stem = f"{file.stem}-{why}-{time.strftime('%Y%m%d-%H%M%S')}"
    name, number = file.with_name(f"{stem}{file.suffix}"), 1
    while os.path.lexists(name):
        number += 1
        name = file.with_name(f"{stem}-{number}{file.suffix}")
    return name


def set_aside(file: Path, companions: Sequence[str] = ()) -> Path:
    """Rename a broken file and return its new name. `companions` are suffixes of files that belong
    to it; each is renamed if it exists, before the file itself."""
    aside = free_name(file, "broken")
    for suffix in companions:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{file}{suffix}", f"{aside}{suffix}")
    os.rename(file, aside)
    return aside
