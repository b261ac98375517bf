# SPDX-License-Identifier: GPL-3.0-or-later
"""One table for all measurements: each row compares two ways of doing the same, in the same run.

A row is printed as soon as it is known, in columns that are the same for every measurement, so that
several programs after each other make one table.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Iterable
from typing import NamedTuple


class Took(NamedTuple):
    """Seconds of the clock, and of the processor in all threads and child processes."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Took:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used))

    def since(self, start: Took) -> Took:
        return Took(self.wall - start.wall, self.cpu - start.cpu)


def median(times: Iterable[Took]) -> Took:
    """Return the median of each of both."""
    return Took(*(statistics.median(column) for column in zip(*times, strict=True)))


_COLUMNS = "{:<42} {:>10} {:>5}  {:<15} {:>10} {:>6} {:>6}  {}"


def heading() -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(_COLUMNS.format("", "ours", "", "against", "", "times", "goal", ""), flush=True)


def row(
    what: str,
    kind: str,
    ours: float,
    other: str,
    theirs: float,
    most: float | None = None,
    verdict: str = "",
) -> None:
    """Print one comparison. `kind` is "wall", "cpu" or "MB"; `most` is the highest ratio wanted.
    The verdict follows from it, unless one is given."""
    ratio = ours / theirs if theirs else float("inf")
    goal = "" if most is None else f"{most:.2f}"
    if most is not None and not verdict:
        verdict = "reached" if ratio <= most else "MISSED"
    mine, reference = (_figure(kind, value) for value in (ours, theirs))
    columns = (what, mine, kind, other, reference, f"{ratio:.2f}", goal, verdict)
    print(_COLUMNS.format(*columns).rstrip(), flush=True)


def rows(
    what: str,
    ours: Took,
    other: str,
    theirs: Took,
    *,
    wall: float | None = None,
    cpu: float | None = None,
) -> None:
    """Print the time of the clock and, if it is known, of the processor."""
    row(what, "wall", ours.wall, other, theirs.wall, wall)
    if ours.cpu and theirs.cpu:
        row(what, "cpu", ours.cpu, other, theirs.cpu, cpu)


def _figure(kind: str, value: float) -> str:
    if kind == "MB":
        return f"{value:.1f} MB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


if __name__ == "__main__":
    heading()
