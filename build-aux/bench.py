# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a sandbox takes, as a ratio to others measured in the same run.

Every candidate takes its turn in every round, so that what else the machine does hits all alike;
medians are compared, never times with a limit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.paths import Paths  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.profile.file import read_profile  # noqa: E402
from ollmsandbox.sandbox.profile.profile import DEFAULT_PROFILE  # noqa: E402

# The same namespaces as the sandbox has, and the least mounts a shell can live with.
BARE = (
    *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--unshare-net", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--", "/bin/sh", "-c", "true"),
)


@dataclass
class Candidate:
    name: str
    once: Callable[[], Awaitable[None]]
    times: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def process(*argv: str) -> Callable[[], Awaitable[None]]:
    async def once() -> None:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)  # noqa: ASYNC221

    return once


def candidates(project: str) -> list[Candidate]:
    async def bubble() -> None:
        result = await Bubble(project).exec("true")
        assert result.exit_code == 0

    paths = Paths.from_environ(os.environ)
    standard = read_profile(DEFAULT_PROFILE, paths.profiles, paths.cache)
    bare_home = standard._replace(caches=(), caches_if_present=())

    async def without_caches() -> None:
        result = await Bubble(project, profile=bare_home).exec("true")
        assert result.exit_code == 0

    program = (sys.executable, "-I", str(ROOT / "build" / "ollmsandbox"))
    found = [
        Candidate("bare bwrap", process(*BARE)),
        Candidate("Bubble.exec", bubble),
        Candidate("without caches", without_caches),
        Candidate("ollmsandbox run", process(*program, "run", "--project", project, "--", "true")),
    ]
    for name, argv in (("firejail", ("firejail", "--quiet", "true")), ("srt", ("srt", "true"))):
        if not shutil.which(name):
            print(f"{name} is not installed and left out", file=sys.stderr)
            continue
        # Some refuse certain users or machines.
        tried = subprocess.run(argv, capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            found.append(Candidate(name, process(*argv)))
        else:
            why = tried.stderr.strip() or f"exit status {tried.returncode}"
            print(f"{name} does not start here and is left out: {why}", file=sys.stderr)
    return found


async def measure(found: list[Candidate], rounds: int) -> None:
    for number in range(rounds + 2):
        for candidate in found:
            start = time.perf_counter()
            await candidate.once()
            if number >= 2:  # the first ones warm up
                candidate.times.append(time.perf_counter() - start)
            await asyncio.sleep(0)


def table(found: list[Candidate]) -> None:
    by_name = {candidate.name: candidate for candidate in found}
    bare = by_name["bare bwrap"].median
    print(f"{'':18}{'median':>10}{'times bare bwrap':>20}")
    for candidate in found:
        ratio = candidate.median / bare
        print(f"{candidate.name:18}{candidate.median * 1000:>7.1f} ms{ratio:>20.2f}")
    print()
    goals = [("Bubble.exec", "bare bwrap", 2.5), ("Bubble.exec", "without caches", 1.15)]
    goals.append(("ollmsandbox run", "firejail", 3.0))
    goals.append(("ollmsandbox run", "srt", 1 / 3))
    for name, reference, most in goals:
        if reference in by_name:
            ratio = by_name[name].median / by_name[reference].median
            verdict = "reached" if ratio <= most else "MISSED"
            print(f"{name} / {reference}: {ratio:.2f}, to reach: {most:.2f} at most: {verdict}")


def throughput(project: str, size: str) -> None:
    """A command that prints much, against the same through a pipe to cat."""
    command = f"head -c {size} /dev/zero"

    def timed(argv: list[str], output: int) -> float:
        start = time.perf_counter()
        subprocess.run(argv, stdout=output, check=True)
        return time.perf_counter() - start

    program = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
    plain = ["/bin/sh", "-c", f"{command} | cat >/dev/null"]
    ours = [*program, "run", "--project", project, "-c", command]
    rounds = [(timed(plain, subprocess.DEVNULL), timed(ours, subprocess.DEVNULL)) for _ in range(3)]
    reference, measured = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = reference / measured
    print(f"{size} of output: {ratio:.2f} of the speed of `cmd | cat >/dev/null`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", default="2G", help="how much a command prints (head -c)")
    given = parser.parse_args()
    os.chdir("/")
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-bench-") as project:
        found = candidates(project)
        loop.run(measure(found, given.rounds))
        table(found)
        throughput(project, given.output)


if __name__ == "__main__":
    main()
