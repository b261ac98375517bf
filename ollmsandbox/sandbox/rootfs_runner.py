# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of a system that is being prepared: walled in like every command, with no project."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence

from .. import N_
from ..errors import SandboxError, Sentence, in_lines
from ..paths import Paths
from .launch import Programs, make_order, open_descriptors
from .output import Sink, readable
from .plan import Plan
from .probe import Capabilities
from .process import Running, Sinks
from .result import Result
from .starter_client import shared_starter
from .watch import watch

_CAPTURE = 1 << 16


async def run_in(
    plan: Plan,
    argv: Sequence[str],
    *,
    paths: Paths,
    found: Capabilities,
    told: Sink | None = None,
    watched: Sequence[str] = (),
) -> Result:
    """`watched`: folders that may not grow beyond the limit. Cancelled, it is killed."""
    programs = Programs(found.bwrap, found.namespaces)
    order, arguments = make_order(plan, argv, programs, paths.runtime, first_descriptor=3)
    async with contextlib.AsyncExitStack() as closing:
        ours, theirs = [], []
        with contextlib.ExitStack() as handed_over:
            for _ in range(3):
                reader, writer = os.pipe()
                closing.callback(os.close, reader)
                handed_over.callback(os.close, writer)
                ours.append(reader)
                theirs.append(writer)
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            handed_over.callback(os.close, nothing)
            options, filter_ = open_descriptors(plan, arguments, paths.cache)
            handed_over.callback(os.close, options)
            handed_over.callback(os.close, filter_)
            given = [nothing, theirs[0], theirs[1], options, filter_, theirs[2]]
            started = shared_starter().start(order, given)
            closing.callback(os.close, started.pidfd)

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)

        running = Running(
            stdout=ours[0],
            stderr=ours[1],
            ended=readable(started.pidfd),
            kill=kill,
            capture=_CAPTURE,
            sinks=Sinks(told, told),
        )
        closing.push_async_callback(running.close)
        limits = watch(plan.limits, started.pid, watched)
        await running.wait(asyncio.ensure_future(limits))
        await running.drain(patience=5.0)
        os.set_blocking(ours[2], False)
        with contextlib.suppress(BlockingIOError):
            said = os.read(ours[2], 1 << 16)
    return _result(running, said)


def _result(running: Running, said: bytes) -> Result:
    code, problem = None, ""
    for line in said.split(b"\n"):
        with contextlib.suppress(ValueError):
            status = json.loads(line)
            code = status.get("exit-code", code)
            problem = status.get("error", problem)
    result = running.result(125 if code is None else code)
    if code is None and result.stop is None:
        why = problem or result.stderr.text.strip()
        raise SandboxError(
            in_lines(Sentence(N_("The sandbox could not be started.")), why),
            N_("See `ollmsandbox doctor`."),
        )
    return result
