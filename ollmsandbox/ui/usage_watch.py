# SPDX-License-Identifier: GPL-3.0-or-later
"""A graph of what a command takes of the machine, for as long as it runs."""

from __future__ import annotations

import asyncio

from .usage import Sample, Sampler, disk_bytes, watch
from .usage_graph import UsageGraph
from .weakly import weakly


class UsageWatch:
    def __init__(self, pid: int) -> None:
        self.graph = UsageGraph()
        work = watch(Sampler(pid, lambda: disk_bytes(pid)), weakly(self._show))
        # Cancelled when the call ends; the process may go on for a moment.
        self._task = asyncio.get_event_loop().create_task(work)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def stop(self) -> None:
        """What was drawn stays."""
        self._task.cancel()

    def _show(self, sample: Sample) -> None:
        self.graph.add(sample)
