# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from gi.repository import Gtk
from support.screen import Screen, draw_frames
from support.timing import PATIENCE

from ollmsandbox.ui.sessions.tool_text import clock, duration
from ollmsandbox.ui.terminal.graph import POINTS, UsageGraph
from ollmsandbox.ui.terminal.usage import Sample, Sampler, amount, watch

# A process that starts another, which holds 80 MB and keeps a processor busy until told to end.
_FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import sys, threading
held = b"x" * 80_000_000
threading.Thread(target=sys.stdin.read, daemon=True).start()
print("ready", flush=True)
while threading.active_count() > 1:
    pass
'''])
child.wait()
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_a_process_counts_with_all_that_it_started(family: subprocess.Popen[bytes]) -> None:
    sampler = Sampler(family.pid, lambda: 4_000_000)
    first = sampler.sample()
    assert first is not None
    assert first.cpu is None
    assert first.memory > 80_000_000
    assert first.written == 4_000_000
    for _attempt in range(3000):
        time.sleep(0.01)
        sample = sampler.sample()
        assert sample is not None
        assert sample.cpu is not None
        if sample.cpu > 0:
            break
    else:
        raise AssertionError("the busy child was never seen")


def test_watching_ends_with_the_process() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    seen: list[Sample] = []

    def show(sample: Sample) -> None:
        seen.append(sample)
        if len(seen) == 3:
            process.communicate()

    asyncio.run(asyncio.wait_for(watch(Sampler(process.pid), show, interval=0), PATIENCE))
    assert len(seen) == 3


def test_words() -> None:
    assert Sample(120.4, 230_000_000, 4_000_000).text == ("CPU 120%, memory 230 MB, written 4.0 MB")
    assert Sample(None, 999, 0).text == "memory 999 B, written 0 B"
    assert [amount(n) for n in (1000, 12_345, 999_999, 5_000_000_000)] == [
        "1.0 kB",
        "12 kB",
        "1.0 MB",
        "5.0 GB",
    ]


def test_a_duration_is_never_zero() -> None:
    assert [duration(n) for n in (0.0, 0.0004, 0.042, 0.1, 59.94)] == [
        "1 ms",
        "1 ms",
        "42 ms",
        "0.1 s",
        "59.9 s",
    ]
    # What runs does not begin with thousandths, of which there would be one or two to be seen.
    assert clock(0.042) == "0.0 s"


def test_the_graph_draws_and_says_what_it_shows(screen: Screen) -> None:
    graph = UsageGraph()
    box = Gtk.Box()
    box.append(graph)
    graph.set_hexpand(True)
    screen.show(box, 200, 80)
    draw_frames(graph)
    graph.add(Sample(None, 1_000_000, 0))
    assert graph.cpu.values == ()
    for number in range(70):
        graph.add(Sample(float(number), 1_000_000 * number, number))
    draw_frames(graph)
    assert len(graph.cpu.values) == POINTS
    assert graph.cpu.text == "CPU 69%"
    assert graph.memory.text == "Memory 69 MB"
    assert graph.description == "CPU 69%, memory 69 MB, written 69 B"
    assert graph.get_width() <= 200
