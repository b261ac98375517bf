# SPDX-License-Identifier: GPL-3.0-or-later
"""What several attacks need."""

from __future__ import annotations

import tempfile
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


@pytest.fixture
def on_another_disk(person: Person) -> Iterator[None]:
    """Put the project on another file system than all else, where a file has to be copied to."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        person.project = Path(folder).resolve()
        yield
