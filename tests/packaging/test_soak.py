# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parent.parent.parent / "build-aux" / "soak.py"


@pytest.mark.ordinary
def test_nothing_is_lost_or_left_over_after_a_minute() -> None:
    done = subprocess.run(
        # Three at once meet as well as more do, and leave room for the tests beside this one.
        [sys.executable, "-I", SOAK, "--seconds", "60", "--at-once", "3", "--projects", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
