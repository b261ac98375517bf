# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parent.parent.parent / "build-aux" / "soak.py"


@pytest.mark.ordinary
def test_nothing_is_lost_or_left_over() -> None:
    # Three at once meet as well as more do. 400 steps take a minute beside the other tests, and
    # there is no more on a slower machine.
    limits = ["--steps", "400", "--seconds", "60", "--at-once", "3", "--projects", "2"]
    done = subprocess.run(
        [sys.executable, "-I", SOAK, *limits],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
