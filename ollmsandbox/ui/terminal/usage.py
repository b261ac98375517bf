# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command takes of the machine: processor, memory and disk, of it and all it started."""

from __future__ import annotations

import asyncio
import locale
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from gettext import gettext as _
from pathlib import Path

INTERVAL = 0.5
# A sample of a build with more processes than this is short of some.
_MOST_PROCESSES = 500
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Sample:
    # Percent of one processor; none for the first one, which has nothing to compare with.
    cpu: float | None
    memory: int
    written: int

    @property
    def words(self) -> str:
        parts = [] if self.cpu is None else [cpu_words(self.cpu)]
        parts.append(_("memory {size}").format(size=amount(self.memory)))
        parts.append(_("written {size}").format(size=amount(self.written)))
        return ", ".join(parts)


class Sampler:
    """Of a process and all below it. What the command left behind is still below: in its sandbox
    the first process takes it over."""

    def __init__(self, pid: int, written: Callable[[], int] = lambda: 0) -> None:
        self._pid = pid
        self._written = written
        self._last: tuple[float, int] | None = None

    def sample(self) -> Sample | None:
        """None when the process is gone."""
        ticks = pages = count = 0
        for pid in _tree(self._pid):
            try:
                ticks += _ticks(pid)
                pages += int((_PROC / str(pid) / "statm").read_bytes().split()[1])
            except (OSError, IndexError):
                # It ended between the two looks; its parent counts its time from now on.
                continue
            count += 1
        if not count:
            return None
        now = time.monotonic()
        last, self._last = self._last, (now, ticks)
        cpu = None
        if last is not None and now > last[0]:
            cpu = max(0.0, (ticks - last[1]) / _TICKS / (now - last[0]) * 100)
        return Sample(cpu, pages * _PAGE, max(0, self._written()))


def disk_bytes(pid: int) -> int:
    """What it and all below it sent to a disk; of those that have ended, their parents know."""
    total = 0
    for one in _tree(pid):
        try:
            lines = (_PROC / str(one) / "io").read_bytes().splitlines()
        except OSError:
            # It ended just now, or it is somebody else's.
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes"))
    return total


async def watch(
    sampler: Sampler, show: Callable[[Sample], None], interval: float = INTERVAL
) -> None:
    """Until the process is gone, or this is cancelled. Looking is done on another thread."""
    while (sample := await asyncio.to_thread(sampler.sample)) is not None:
        show(sample)
        await asyncio.sleep(interval)


def _tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    parents: dict[int, list[int]] | None = None
    for _number in range(_MOST_PROCESSES):
        if not waiting:
            return
        current = waiting.pop()
        yield current
        try:
            waiting += _children(current)
        except FileNotFoundError:
            if not (_PROC / str(current)).exists():
                continue
            # A kernel without these lists: ask every process for its parent, once.
            parents = _all_by_parent() if parents is None else parents
            waiting += parents.get(current, [])


def _children(pid: int) -> list[int]:
    """Each thread has its own: a program may start others from any of them."""
    found: list[int] = []
    try:
        for task in os.scandir(_PROC / str(pid) / "task"):
            found += map(int, Path(task.path, "children").read_bytes().split())
    except ProcessLookupError:
        # It ended just now.
        return found
    return found


def _all_by_parent() -> dict[int, list[int]]:
    result: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                fields = _fields(int(folder.name))
            except (OSError, IndexError):
                continue
            result.setdefault(int(fields[1]), []).append(int(folder.name))
    return result


def _ticks(pid: int) -> int:
    """Its own time, and that of its children which have ended."""
    return sum(map(int, _fields(pid)[11:15]))


def _fields(pid: int) -> list[bytes]:
    """Of /proc/PID/stat, from the state on. The name before it can hold anything."""
    return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def cpu_words(percent: float) -> str:
    return _("CPU {percent} %").format(percent=round(percent))


def amount(size: int) -> str:
    """In powers of ten, as the rest of the desktop counts."""
    value = float(size)
    units = [_("{} B"), _("{} kB"), _("{} MB"), _("{} GB"), _("{} TB")]
    whole = units[0]
    while round(value) >= 1000 and len(units) > 1:
        value /= 1000
        del units[0]
    digits = 1 if units[0] is not whole and value < 9.95 else 0
    return units[0].format(locale.format_string(f"%.{digits}f", value))
