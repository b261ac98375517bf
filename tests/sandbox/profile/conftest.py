# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests of profiles share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "profiles"
    made.mkdir()
    return made
