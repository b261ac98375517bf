# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that work takes linear time."""

from __future__ import annotations

import time
from collections.abc import Callable


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Assert that 16 times the size takes nowhere near 256 times as long, as quadratic time would.

    It compares CPU time, of which a busy machine may still take its share."""
    short, long = (_cpu_seconds(work, number) for number in (size, 16 * size))
    # The constant is for work that takes no time at all.
    assert long < 80 * short + 0.05


def _cpu_seconds(work: Callable[[int], object], size: int) -> float:
    def once() -> float:
        began = time.process_time()
        work(size)
        return time.process_time() - began

    return min(once() for _ in range(3))
