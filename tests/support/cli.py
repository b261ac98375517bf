# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests of the command line."""

from __future__ import annotations

import subprocess

# Starts what follows in a folder that is gone.
WITHOUT_FOLDER = ("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh")


def assert_failed(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Assert that the command did not run and that a message says why."""
    assert done.returncode == 125
    assert done.stdout == ""
    assert done.stderr.startswith("ollmsandbox: ")
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr
