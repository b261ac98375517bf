# SPDX-License-Identifier: GPL-3.0-or-later
"""A graph of what a command takes of the machine, for as long as it runs."""

from __future__ import annotations

import asyncio

from .usage import Sample, Sampler, watch
from .usage_graph import UsageGraph
from .weakly import weakly


class UsageWatch:
    def __init__(self, pid: int) -> None:
        self.graph = UsageGraph()
        work = watch(Sampler(pid), weakly(self._show))
        self._task = asyncio.get_event_loop().create_task(work)

    def stop(self) -> None:
        """What was drawn stays."""
        self._task.cancel()

    def _show(self, sample: Sample) -> None:
        self.graph.add(sample)
