# SPDX-License-Identifier: GPL-3.0-or-later
"""A heart that beats in a main loop, and a bare window beside it with a heart of its own."""

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

# Milliseconds.
BEAT, MOST, MOST_P99 = 2, 100.0, 20.0
# When a bare window, which has nothing to do, stood still: seconds of the monotonic clock.
Span = tuple[float, float]


class Verdict(Enum):
    """Of two, the first one holds."""

    MISSED = "MISSED"
    SLOW = "cannot be told here: the machine kept a bare window waiting, too"
    BUSY = "cannot be told here: others had the machine's cores"
    REACHED = "reached"


@dataclass(frozen=True)
class Figures:
    """Of many beats, in milliseconds."""

    worst: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figures:
        return cls(max(values), statistics.quantiles(values, n=100)[98])

    def __str__(self) -> str:
        return f"{self.worst:.0f} ms, p99 {self.p99:.1f} ms"


@dataclass(frozen=True)
class Beat:
    """From one to the next: when, how late the second was, and what was worked meanwhile by the
    main loop's thread and by all threads of the process, in milliseconds; and how long the first
    was ready to work and had to wait for a core."""

    start: float
    end: float
    gap: float
    worked: float
    used: float
    waited: float = 0.0

    @property
    def without_others(self) -> float:
        """The gap, had nobody else had the core that it waited for. What our other threads did is
        left in: it may have waited for those."""
        return self.gap - max(0.0, self.waited - (self.used - self.worked))

    def share(self, standing: Iterable[Span]) -> float:
        """What of the gap is our own: what all our threads used, for whoever waits for one of them
        waits for us. Not what passed while a bare window stood still as well: a scheduler gives who
        sleeps a turn within milliseconds, whatever others do, and a host that stops the whole
        machine is seen in the time that was used, too."""
        return max(0.0, min(self.gap, self.used) - self._beside(standing))

    def alone(self, standing: Iterable[Span]) -> float:
        """The gap, without what passed while a bare window stood still as well."""
        return max(0.0, self.gap - self._beside(standing))

    def _beside(self, standing: Iterable[Span]) -> float:
        both = (min(self.end, end) - max(self.start, start) for start, end in standing)
        return sum(max(0.0, seconds) for seconds in both) * 1000


def judge(
    gaps: Figures, ours: Figures, beside: Figures, without: Figures, alone: Figures
) -> Verdict:
    """`ours`: our own share of the gaps; `beside`: the gaps of a bare window meanwhile; `without`:
    our gaps, had others left us the cores. Who sleeps most of the time, as a bare window does,
    hardly waits for those. `alone`: our gaps, but for the moments in which it stood still, too. Who
    waits for a disk, say, uses nothing, and is no excuse at another moment."""
    found = {
        _judge(gaps.worst, ours.worst, beside.worst, without.worst, alone.worst, MOST),
        _judge(gaps.p99, ours.p99, beside.p99, without.p99, alone.p99, MOST_P99),
    }
    return next(verdict for verdict in Verdict if verdict in found)


def _judge(
    gap: float, ours: float, beside: float, without: float, alone: float, limit: float
) -> Verdict:
    if gap < limit:
        return Verdict.REACHED
    if max(ours, alone) < limit <= beside:
        return Verdict.SLOW
    return Verdict.BUSY if max(ours, without) < limit else Verdict.MISSED


class Neighbour:
    """The bare window, in a process of its own."""

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


class Heart:
    """Beats in the main loop, ahead of what draws; notes how late it was."""

    def __init__(self, neighbour: Neighbour | None = None) -> None:
        self._neighbour = neighbour

    def __enter__(self) -> Heart:
        from gi.repository import GLib

        if self._neighbour is not None:
            self._neighbour.begin()
        self.beats: list[Beat] = []
        self._stolen = _stolen()
        self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._last = self._clocks()
        self._source = GLib.timeout_add(  # type: ignore[call-arg]
            BEAT, self._beat, priority=GLib.PRIORITY_HIGH
        )
        return self

    def __exit__(self, *_: object) -> None:
        from gi.repository import GLib

        GLib.source_remove(self._source)
        os.close(self._waits)
        before, now = self._stolen, _stolen()
        self._stolen_share = (now[0] - before[0]) / max(1, now[1] - before[1])
        if self._neighbour is not None:
            self._beside, self._standing = self._neighbour.finish()

    def _beat(self) -> bool:
        last, self._last = self._last, self._clocks()
        passed, *spent = ((now - then) * 1000 for now, then in zip(self._last, last, strict=True))
        self.beats.append(Beat(last[0], self._last[0], max(0.0, passed - BEAT), *spent))
        return True

    def _clocks(self) -> tuple[float, float, float, float]:
        """Of the day, of this thread's work, of all threads', of this one's waiting for a core."""
        waited = int(os.pread(self._waits, 100, 0).split()[1]) / 1e9
        return time.monotonic(), time.thread_time(), time.process_time(), waited

    @property
    def gaps(self) -> Figures:
        return Figures.of([beat.gap for beat in self.beats])

    def tell(self, what: str) -> None:
        gaps = self.gaps
        ours = Figures.of([beat.share(self._standing) for beat in self.beats])
        worked = Figures.of([beat.worked for beat in self.beats])
        without = Figures.of([beat.without_others for beat in self.beats])
        alone = Figures.of([beat.alone(self._standing) for beat in self.beats])
        print(
            f"{what:38} longest gap {gaps.worst:6.0f} ms (to reach: {MOST:.0f}), "
            f"p99 {gaps.p99:5.1f} ms (to reach: {MOST_P99:.0f}): "
            f"{judge(gaps, ours, self._beside, without, alone).value}; its own work: {worked}; "
            f"our share of the gaps: {ours}; a bare window beside it: {self._beside}; "
            f"had others left us the cores: {without}; the host took {self._stolen_share:.0%}",
            flush=True,
        )

    def summary(self) -> str:
        standing = [(beat.start, beat.end) for beat in self.beats if beat.gap >= MOST_P99]
        return json.dumps([self.gaps.worst, self.gaps.p99, standing])


def _stolen() -> tuple[int, int]:
    """So far, of how much: what the machine's host gave to others, in ticks of all cores."""
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


def beat_beside(_window: object) -> None:
    """Answers what it is asked on its standard input."""
    from gi.repository import GLib

    hearts: list[Heart] = []

    def asked(_input: int, _condition: GLib.IOCondition) -> bool:
        match sys.stdin.readline():
            case "begin\n":
                hearts.append(Heart().__enter__())
                print(flush=True)
            case "end\n":
                hearts[-1].__exit__()
                print(hearts[-1].summary(), flush=True)
            case _:
                os._exit(0)
        return True

    wake = GLib.IOCondition.IN | GLib.IOCondition.HUP
    GLib.unix_fd_add_full(GLib.PRIORITY_DEFAULT, sys.stdin.fileno(), wake, asked)


if __name__ == "__main__":
    open_bare(beat_beside)
