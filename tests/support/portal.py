# SPDX-License-Identifier: GPL-3.0-or-later
"""A user in a Flatpak, and what the Flatpak portal starts for them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.escape.processes import children_of
from support.person import ROOT, Person
from support.servers.bus import Bus, private_bus, service_on
from support.timing import PATIENCE, wait_for
from support.tools import Agent, Asking

from ollmsandbox import loop
from ollmsandbox.permission.request import Answer
from ollmsandbox.sandbox.flatpak.runner import InnerRunner
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import Confinement

PORTAL = ROOT / "tests/support/servers/flatpak_portal.py"


class Flatpak:
    """A user in a Flatpak, with a portal on a private bus."""

    def __init__(self, person: Person, bus: Bus, service: subprocess.Popen[str]) -> None:
        self.person = person
        self.bus = bus
        self.service = service
        self.times_asked = 0
        self.answer = True
        self.environ = {"FLATPAK_ID": "org.example.App", "DBUS_SESSION_BUS_ADDRESS": bus.address}
        # Seconds that no other process sleeps for.
        self.mark = f"100.{uuid.uuid4().int}"

    async def _ask(self) -> bool:
        await asyncio.sleep(0)
        self.times_asked += 1
        return self.answer

    def runner(self, **options: Any) -> Asking:
        ask, profile = options.pop("ask", self._ask), options.pop("profile", None)
        confinement = options.pop("confinement", Confinement.INNER)
        spec = RunSpec(str(self.person.project), **{"timeout": PATIENCE, **options})
        environ = {**self.person.environ, **self.environ}
        return Asking(InnerRunner(spec, confinement, profile=profile, environ=environ), ask)

    def run(self, command: str | Sequence[str], **options: Any) -> Result:
        return loop.run(self.runner(**options).exec(command))

    def agent(self, answer: Answer = Answer.ALLOW) -> Agent:
        agent = Agent(self.person, environ=self.environ)
        agent.asker.answer = answer
        return agent

    def lose(self, what: str) -> None:
        if what == "bus":
            self.bus.kill()
        elif what == "portal":
            self.service.kill()
            self.service.wait()
        else:
            for pid in children_of(self.service.pid):
                os.killpg(pid, signal.SIGKILL)
            wait_for(lambda: not children_of(self.service.pid))

    def sleeping(self) -> list[str]:
        """Return the processes with the mark that are still alive."""
        return [pid for pid in os.listdir("/proc") if pid.isdecimal() and self._is_marked(pid)]

    def _is_marked(self, pid: str) -> bool:
        try:
            return Path("/proc", pid, "cmdline").read_bytes() == f"sleep\0{self.mark}\0".encode()
        except OSError:
            return False


@contextmanager
def portal(person: Person, *faults: str) -> Iterator[Flatpak]:
    with private_bus() as bus, service_on(bus, PORTAL, str(person.home), *faults) as service:
        yield Flatpak(person, bus, service)


def hiding(flatpak: Flatpak, then: str) -> str:
    """Return a command that leaves a process hidden from signals, its group and its parent."""
    return (
        "trap '' TERM INT HUP; mkfifo begun; "
        f"(setsid sh -c 'echo >begun; exec sleep {flatpak.mark}' &) ; read x <begun; "
        f"rm begun; echo begun; {then}"
    )
