# SPDX-License-Identifier: GPL-3.0-or-later
"""A heart that beats in a main loop, and a bare window beside it with a heart of its own."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

# Milliseconds.
BEAT, MOST, MOST_P99 = 2, 100.0, 20.0


class Neighbour:
    """The bare window, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> str:
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
            self._neighbour.ask("begin")
        self.gaps: list[float] = []
        # Of these, what the loop itself worked: a machine with much to do lets it wait besides.
        self.worked: list[float] = []
        self._last, self._last_work = time.perf_counter(), time.thread_time()
        self._source = GLib.timeout_add(  # type: ignore[call-arg]
            BEAT, self._beat, priority=GLib.PRIORITY_HIGH
        )
        return self

    def __exit__(self, *_: object) -> None:
        from gi.repository import GLib

        GLib.source_remove(self._source)
        if self._neighbour is not None:
            self._beside = self._neighbour.ask("end")

    def _beat(self) -> bool:
        now, work = time.perf_counter(), time.thread_time()
        self.gaps.append(max(0.0, (now - self._last) * 1000 - BEAT))
        self.worked.append((work - self._last_work) * 1000)
        self._last, self._last_work = now, work
        return True

    def tell(self, what: str) -> None:
        worst, p99 = max(self.gaps), _p99(self.gaps)
        word = "reached" if worst < MOST and p99 < MOST_P99 else "MISSED"
        print(
            f"{what:38} longest gap {worst:6.0f} ms (to reach: {MOST:.0f}), p99 {p99:5.1f} ms "
            f"(to reach: {MOST_P99:.0f}): {word}; its own work: {max(self.worked):.0f} ms, "
            f"p99 {_p99(self.worked):.1f} ms; a bare window beside it: {self._beside}",
            flush=True,
        )

    def summary(self) -> str:
        return f"{max(self.gaps):.0f} ms, p99 {_p99(self.gaps):.1f} ms"


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


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
