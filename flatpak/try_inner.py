# SPDX-License-Identifier: GPL-3.0-or-later
"""Run inside the Flatpak: commands in the inner sandbox, as the real portal makes it."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from ollmsandbox import loop
from ollmsandbox.sandbox.flatpak.runner import InnerRunner
from ollmsandbox.sandbox.process import Result, Stop
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import Confinement

DEVICES = Path("/proc/net/dev")
MARK = "100.987654321"


async def approved(runner: InnerRunner, command: str | list[str]) -> Result:
    with closing(runner):
        await runner.prepare()
        runner.approve()
        return await runner.exec(command)


def sleeping() -> bool:
    """Whether one with the mark is still there: what runs inside is to be seen from here."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if Path("/proc", pid, "cmdline").read_bytes() == f"sleep\0{MARK}\0".encode():
                return True
        except OSError:
            continue
    return False


def check(condition: object, what: str, result: Result | None = None) -> None:
    if not condition:
        said = f"{result.exit_code} {result.stdout.text} {result.stderr.text}" if result else ""
        sys.exit(f"not so: {what} {said}")
    print(what)


def main(project: str, data: str) -> None:
    def run(command: str, *, network: bool = False, timeout: float = 60) -> Result:
        spec = RunSpec(project, network=network, timeout=timeout)
        return loop.run(approved(InnerRunner(spec), command))

    Path(data, "secret").write_text("s3cret")
    found = run(f"pwd; echo new >made; cat {data}/secret; ls /run/flatpak/bus $XDG_RUNTIME_DIR/bus")
    check(
        found.stdout.text == f"{project}\n", "a command sees the project, no secret, no bus", found
    )
    check(Path(project, "made").read_text() == "new\n", "and writes to the project", found)
    devices = "tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '"
    found = run(devices)
    check(found.stdout.text == "lo\n", "the network is cut off", found)
    found = run(devices, network=True)
    expected = {line.split(":")[0].strip() for line in DEVICES.read_text().splitlines()[2:]}
    check(set(found.stdout.text.split()) == expected, "unless it was asked for", found)
    check(run("exit 7").exit_code == 7, "the exit status is the command's")
    check(run("kill -9 $$").exit_code == 137, "and so is the signal")
    hidden = f"trap '' INT TERM; (setsid sleep {MARK} &); echo begun;"
    found = run(f"{hidden} sleep 60", timeout=5)
    check(found.stop is Stop.TIME and found.stdout.text == "begun\n", "time runs out", found)
    check(not sleeping(), "then nothing goes on")
    found = run(f"{hidden} kill -9 $PPID; sleep 60")
    check(found.exit_code == 137 and not sleeping(), "nor if a command ends its keeper", found)
    try_loose(project, data, devices)
    print("all is as it should be")


# What a command could try in order to get out: ask the portal for a sandbox with network.
OUT = """
import os, sys
sys.path[:0] = ["/app/share/ollmsandbox", "/app/lib/ollmsandbox"]
from ollmsandbox import loop
from ollmsandbox.sandbox.flatpak.runner import InnerRunner
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import Confinement
os.environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/run/flatpak/bus"
async def main():
    runner = InnerRunner(RunSpec(sys.argv[1], network=True), Confinement.OFFLINE)
    await runner.prepare()
    runner.approve()
    return await runner.exec(sys.argv[2])
print(loop.run(main()).stdout.text, end="")
"""


def try_loose(project: str, data: str, devices: str) -> None:
    """For a project that cannot be handed on."""

    def run(command: str | list[str]) -> Result:
        runner = InnerRunner(RunSpec(project, timeout=60), Confinement.OFFLINE)
        return loop.run(approved(runner, command))

    found = run(f"cat {data}/secret; {devices}; echo newer >made")
    check(found.stdout.text == "s3cretlo\n", "one that is not tight has no network either", found)
    check(Path(project, "made").read_text() == "newer\n", "and writes to the project", found)
    found = run(["python3", "-I", "-c", OUT, project, devices])
    check(found.stdout.text == "lo\n", "nor does it get any from the portal", found)


if __name__ == "__main__":
    mine = os.environ["XDG_DATA_HOME"]
    with tempfile.TemporaryDirectory(dir=mine) as folder:
        main(folder, mine)
