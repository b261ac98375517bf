# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of the processor time, memory and disk that a command and its children use."""

from __future__ import annotations

import asyncio
import locale
import time
from collections.abc import Callable
from typing import NamedTuple

from ...i18n import _
from ...sandbox.process import usage_below


class Sample(NamedTuple):
    # Percent of one processor; None for the first sample, which has nothing to compare with.
    cpu: float | None
    memory: int
    written: int

    @property
    def text(self) -> str:
        parts = [] if self.cpu is None else [cpu_text(self.cpu)]
        parts.append(_("memory {size}").format(size=amount(self.memory)))
        parts.append(_("written {size}").format(size=amount(self.written)))
        return ", ".join(parts)


class Sampler:
    """Measures a process and its descendants.

    Processes that the command left behind are included: in its sandbox, the first process adopts
    them.
    """

    def __init__(self, pid: int, written: Callable[[], int] = lambda: 0) -> None:
        self._pid = pid
        self._written = written
        self._last: tuple[float, float] | None = None

    def sample(self) -> Sample | None:
        """Return a sample; None when the process has ended."""
        usage = usage_below(self._pid)
        if usage is None:
            return None
        now = time.monotonic()
        last, self._last = self._last, (now, usage.cpu)
        cpu = None
        if last is not None and now > last[0]:
            cpu = max(0.0, (usage.cpu - last[1]) / (now - last[0]) * 100)
        return Sample(cpu, usage.memory, max(0, self._written()))


async def watch(sampler: Sampler, show: Callable[[Sample], None], interval: float = 0.5) -> None:
    """Show samples until the process has ended, taking them on a thread."""
    while (sample := await asyncio.to_thread(sampler.sample)) is not None:
        show(sample)
        await asyncio.sleep(interval)


def cpu_text(percent: float) -> str:
    return _("CPU {percent}%").format(percent=round(percent))


def amount(size: int) -> str:
    """Return a size in powers of ten, as the rest of the desktop counts."""
    value = float(size)
    units = [_("{} B"), _("{} kB"), _("{} MB"), _("{} GB"), _("{} TB")]
    whole = units[0]
    while round(value) >= 1000 and len(units) > 1:
        value /= 1000
        del units[0]
    digits = 1 if units[0] is not whole and value < 9.95 else 0
    return units[0].format(locale.format_string(f"%.{digits}f", value))
