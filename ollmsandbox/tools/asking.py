# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to the question that a person is asked about it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

from ..permission.request import Fact, PermissionRequest, Source, Verdict
from ..sandbox.mounts import Overlaid, Writable
from ..sandbox.plan import Plan
from ..sandbox.probe import Capabilities
from ..sandbox.rootfs_environment import PLAYGROUND
from .base import Watcher
from .workbench import Workbench

EVERY_TIME = Fact("asked", "every time, and never remembered")


def make_request(
    bench: Workbench,
    tool: str,
    question: str,
    subject: str,
    *,
    target: str = "",
    sandboxed: bool = True,
    network: bool = False,
    facts: Sequence[Fact] = (),
    sees: Sequence[str] = (),
    call_id: str = "",
) -> PermissionRequest:
    """Without a target it is asked once only: no rule can be made of it, and none is found."""
    return PermissionRequest(
        id=uuid.uuid4().hex,
        tool=tool,
        project=os.path.realpath(bench.project) if bench.project else "",
        question=question,
        subject=subject,
        target_path=target or f"once:{uuid.uuid4().hex}",
        one_time_only=not target,
        sandboxed=sandboxed,
        network=network,
        facts=(*facts, *(() if target else (EVERY_TIME,))),
        sees=tuple(sees),
        session_id=bench.session_id,
        call_id=call_id,
    )


async def ask(bench: Workbench, watcher: Watcher, request: PermissionRequest) -> Verdict:
    watcher.asking(request)
    verdict = await bench.permissions.decide(request)
    watcher.answered(verdict)
    return verdict


def facts_of(bench: Workbench, plan: Plan) -> list[Fact]:
    writes = [m.folder for m in plan.mounts if isinstance(m, Overlaid | Writable)]
    playground = (f"{bench.paths.real_home}/playground", PLAYGROUND)
    names = ["playground" if folder in playground else bench.shown(folder) for folder in writes]
    # The project first; the plan has the order of the mounts.
    names.sort(key=lambda name: name == "playground")
    return [
        Fact("in", bench.shown(plan.working_dir)),
        Fact("network", "ON for this command" if plan.network else "off"),
        Fact("writes", ", ".join(names)),
    ]


def plain_facts(bench: Workbench, folder: str) -> list[Fact]:
    return [
        Fact("in", bench.shown(folder)),
        Fact("network", "not held back"),
        Fact("writes", "whatever you can write"),
    ]


def without_sandbox(found: Capabilities, meaning: str) -> list[str]:
    """What that means, and why it is so."""
    return [f"This is not sandboxed: {meaning}", *(miss.cause for miss in found.misses)]


def denial(verdict: Verdict, what: str) -> str:
    """For the model."""
    if verdict.source is Source.NOBODY:
        return f"ERROR: {what} was not allowed: nobody was there to ask. Nothing was done."
    return (
        f"ERROR: {what} was denied by the person. Nothing was done. "
        "Do not try the same again; go on without it, or ask what to do instead."
    )
