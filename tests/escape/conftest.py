# SPDX-License-Identifier: GPL-3.0-or-later
"""What several attacks need: the user's other files, a folder elsewhere, a mark for processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.escape.attack import folder_elsewhere
from support.escape.copy_back import untouched_home
from support.escape.processes import Mark
from support.person import Person


@pytest.fixture
def home(person: Person) -> Iterator[Path]:
    """The home folder with other files, which nothing may change."""
    with untouched_home(person) as folder:
        yield folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    with folder_elsewhere(tmp_path / "elsewhere") as folder:
        yield folder


@pytest.fixture
def mark() -> Iterator[Mark]:
    made = Mark()
    yield made
    made.kill()
