# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long a main loop is blocked.

A probe runs a timer in the main loop and notes how late each tick is. An empty window in another
process does the same: if it is blocked at the same moments, the machine is too busy to tell.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures

# Milliseconds.
INTERVAL, MOST, MOST_P99 = 2, 50.0, 16.0
# A time in which the empty window was blocked: seconds of the monotonic clock.
Span = tuple[float, float]


class Verdict(Enum):
    """The result for one limit."""

    MISSED = "MISSED"
    SLOW = "cannot be told here: the machine kept a bare window waiting, too"
    BUSY = "cannot be told here: others had the machine's cores"
    REACHED = "reached"


@dataclass(frozen=True)
class Figures:
    """The worst value and the 99th percentile of many ticks, in milliseconds."""

    worst: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figures:
        return cls(max(values), statistics.quantiles(values, n=100)[98])

    def __str__(self) -> str:
        return f"{self.worst:.0f} ms, p99 {self.p99:.1f} ms"


@dataclass(frozen=True)
class Tick:
    """The time between two ticks. All durations are in milliseconds.

    `gap` is how late the second tick was, `worked` the CPU time of the main loop's thread, `used`
    that of all threads, and `waited` how long the main loop's thread waited for a core.
    """

    start: float
    end: float
    gap: float
    worked: float
    used: float
    waited: float = 0.0

    @property
    def without_others(self) -> float:
        """The gap without the time that other programs had the core. The work of our own threads
        is included: the main loop may have waited for them."""
        return self.gap - max(0.0, self.waited - (self.used - self.worked))

    def share(self, standing: Iterable[Span]) -> float:
        """Return our own part of the gap: the CPU time of all our threads, except while the empty
        window was blocked, too. A scheduler wakes a sleeping process within milliseconds, so the
        host must have stopped the whole machine, and that time is counted as used."""
        return max(0.0, min(self.gap, self.used) - self._beside(standing))

    def alone(self, standing: Iterable[Span]) -> float:
        """Return the gap without the time in which the empty window was blocked, too."""
        return max(0.0, self.gap - self._beside(standing))

    def _beside(self, standing: Iterable[Span]) -> float:
        both = (min(self.end, end) - max(self.start, start) for start, end in standing)
        return sum(max(0.0, seconds) for seconds in both) * 1000


def judge(
    limit: float, gap: float, ours: float, beside: float, without: float, alone: float
) -> Verdict:
    """Compare a gap with its limit, and say whether the machine is to blame.

    `ours` is our own share of it; `beside` is the gap of the empty window. `without` is our gap
    without the time that other programs had the cores; the empty window, mostly asleep, hardly
    needs them. `alone` is our gap outside the moments in which the empty window was blocked: a
    wait for the disk takes no CPU time, and counts as ours.
    """
    if gap < limit:
        return Verdict.REACHED
    if max(ours, alone) < limit <= beside:
        return Verdict.SLOW
    return Verdict.BUSY if max(ours, without) < limit else Verdict.MISSED


class BareWindow:
    """An empty window with a probe, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> None:
        self._ask("begin")

    def finish(self) -> tuple[Figures, list[Span]]:
        worst, p99, standing = json.loads(self._ask("end"))
        return Figures(worst, p99), [(start, end) for start, end in standing]

    def _ask(self, what: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


class MainLoopProbe:
    """Ticks in the main loop, before anything is drawn, and notes how late each tick is."""

    def __init__(self, bare_window: BareWindow | None = None) -> None:
        self._bare_window = bare_window

    def __enter__(self) -> MainLoopProbe:
        from gi.repository import GLib

        if self._bare_window is not None:
            self._bare_window.begin()
        self.ticks: list[Tick] = []
        self._stolen = _stolen()
        self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._last = self._clocks()
        self._source = GLib.timeout_add(  # type: ignore[call-arg]
            INTERVAL, self._tick, priority=GLib.PRIORITY_HIGH
        )
        return self

    def __exit__(self, *_: object) -> None:
        from gi.repository import GLib

        GLib.source_remove(self._source)
        os.close(self._waits)
        before, now = self._stolen, _stolen()
        self._stolen_share = (now[0] - before[0]) / max(1, now[1] - before[1])
        if self._bare_window is not None:
            self._beside, self._standing = self._bare_window.finish()

    def _tick(self) -> bool:
        last, self._last = self._last, self._clocks()
        passed, *spent = ((now - then) * 1000 for now, then in zip(self._last, last, strict=True))
        self.ticks.append(Tick(last[0], self._last[0], max(0.0, passed - INTERVAL), *spent))
        return True

    def _clocks(self) -> tuple[float, float, float, float]:
        """Return the time, the CPU time of this thread and of all, and this one's waiting time."""
        waited = int(os.pread(self._waits, 100, 0).split()[1]) / 1e9
        return time.monotonic(), time.thread_time(), time.process_time(), waited

    @property
    def gaps(self) -> Figures:
        return Figures.of([tick.gap for tick in self.ticks])

    def print_result(self, what: str) -> None:
        gaps = self.gaps
        ours = Figures.of([tick.share(self._standing) for tick in self.ticks])
        worked = Figures.of([tick.worked for tick in self.ticks])
        without = Figures.of([tick.without_others for tick in self.ticks])
        alone = Figures.of([tick.alone(self._standing) for tick in self.ticks])
        kinds = (gaps, ours, self._beside, without, alone)
        for which, found, limit in (
            ("gap", [each.worst for each in kinds], MOST),
            ("p99", [each.p99 for each in kinds], MOST_P99),
        ):
            verdict = judge(limit, *found).value
            reference = f"{limit:.0f} ms"
            figures.row(
                f"{what}, {which}", "wall", found[0] / 1000, reference, limit / 1000, 1, verdict
            )
        print(
            f"  its own work: {worked}; our share of the gaps: {ours}; a bare window beside it: "
            f"{self._beside}; had others left us the cores: {without}; "
            f"the host took {self._stolen_share:.0%}",
            file=sys.stderr,
        )

    def summary(self) -> str:
        standing = [(tick.start, tick.end) for tick in self.ticks if tick.gap >= MOST_P99]
        return json.dumps([self.gaps.worst, self.gaps.p99, standing])


def _stolen() -> tuple[int, int]:
    """Return the time that the host took from this machine, and the total, in ticks."""
    with Path("/proc/stat").open() as lines:
        ticks = [int(word) for word in lines.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def open_bare(opened: Callable[[object], None]) -> None:
    import gi

    gi.require_version("Adw", "1")
    from gi.repository import Adw

    def activate(app: Adw.Application) -> None:
        window = Adw.ApplicationWindow(application=app, default_width=1100, default_height=750)
        window.set_content(Adw.HeaderBar())
        opened(window)
        window.present()

    application = Adw.Application(application_id="io.github.ollmsandbox.Bare")
    application.connect("activate", activate)
    application.run([])


def answer_requests(_window: object) -> None:
    """Start and stop a probe as standard input says, and print its summary."""
    from gi.repository import GLib

    probes: list[MainLoopProbe] = []

    def asked(_input: int, _condition: GLib.IOCondition) -> bool:
        match sys.stdin.readline():
            case "begin\n":
                probes.append(MainLoopProbe().__enter__())
                print(flush=True)
            case "end\n":
                probes[-1].__exit__()
                print(probes[-1].summary(), flush=True)
            case _:
                os._exit(0)
        return True

    wake = GLib.IOCondition.IN | GLib.IOCondition.HUP
    GLib.unix_fd_add_full(GLib.PRIORITY_DEFAULT, sys.stdin.fileno(), wake, asked)


if __name__ == "__main__":
    open_bare(answer_requests)
