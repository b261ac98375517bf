# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a command in the sandbox with the same in other sandboxes and without any.

Every candidate takes its turn in every round, so that what else the machine does hits all alike;
medians are compared, never times with a limit.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build-aux")]

import figures  # noqa: E402
from figures import Took  # noqa: E402

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.paths import Paths  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.profile.file import read_profile  # noqa: E402
from ollmsandbox.sandbox.profile.profile import DEFAULT_PROFILE, Profile  # noqa: E402
from ollmsandbox.sandbox.spec import RunSpec  # noqa: E402

# The same namespaces as the sandbox has, and the least mounts a shell can live with.
BARE = (
    *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--unshare-net", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--"),
)
# Codex's own binary, not the Node launcher on PATH, which adds the start of Node.
CODEX = "OLLMSANDBOX_BENCH_CODEX"
BARE_NAME, EXEC, OURS, WITHOUT_CACHES, PYTHON = (
    *("bare bwrap", "Bubble.exec", "ollmsandbox run", "without caches", "bare Python"),
)
_PR_SET_CHILD_SUBREAPER = 36
# A way to run a shell command; it returns how long that took.
Way = Callable[[str], Took]


def run_argv(argv: Sequence[str]) -> Took:
    """Run a program; its processor time includes processes that it does not wait for itself."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        status = 1
        try:
            # What it leaves running becomes a child of this process.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            start = time.perf_counter()
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
            wall = time.perf_counter() - start
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()
            # Of the program alone: this process is a copy of a large one, which takes time, too.
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            os.write(writer, b"%f %f" % (wall, used.ru_utime + used.ru_stime))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    _pid, status = os.waitpid(pid, 0)
    with open(reader, "rb") as told:
        assert status == 0, argv
        return Took(*map(float, told.read().split()))


def through(*prefix: str) -> Way:
    return lambda command: run_argv([*prefix, "/bin/sh", "-c", command])


def in_bubble(project: str, profile: Profile) -> Way:
    """Run it in this process. What starts sandboxes goes on, so its processor time is unknown."""

    def way(command: str) -> Took:
        start = time.perf_counter()
        result = loop.run(Bubble(RunSpec(project), profile=profile).exec(command))
        assert result.exit_code == 0, result.stderr.text
        return Took(time.perf_counter() - start, 0)

    return way


def programs(project: str) -> dict[str, list[str]]:
    """Return the words before a command, for each program that starts here."""
    ours = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox"), "run", "--quiet"]
    ours += ["--project", project]
    found = {BARE_NAME: list(BARE), OURS: [*ours, "--"]}
    others = {
        "firejail": ["firejail", "--quiet"],
        "srt": ["srt"],
        "codex": [os.environ.get(CODEX, "codex"), "sandbox", "--"],
    }
    for name, prefix in others.items():
        if not shutil.which(prefix[0]):
            print(f"{name} is not installed and left out", file=sys.stderr)
            continue
        # Some refuse certain users or machines.
        tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            found[name] = prefix
        else:
            why = tried.stderr.strip() or f"exit status {tried.returncode}"
            print(f"{name} does not start here and is left out: {why}", file=sys.stderr)
    return found


def measure(
    ways: dict[str, Way],
    command: str,
    rounds: int,
    before: Callable[[str], None] | None = None,
) -> Times:
    """Run the command in every way, in turns; `before` is called with each name first."""
    times: dict[str, list[Took]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            if before:
                before(name)
            took = way(command)
            if number:  # the first one warms up
                times[name].append(took)
    return {name: figures.median(found) for name, found in times.items()}


Times = dict[str, Took]


def start_in_a_loop(project: str, ways: dict[str, Way], rounds: int) -> None:
    paths = Paths.from_environ(os.environ)
    standard = read_profile(DEFAULT_PROFILE, paths.profiles, paths.cache)
    bare_home = standard._replace(caches=(), caches_if_present=())
    everything = {
        **ways,
        EXEC: in_bubble(project, standard),
        WITHOUT_CACHES: in_bubble(project, bare_home),
        PYTHON: lambda _command: run_argv([sys.executable, "-I", "-c", "pass"]),
    }
    found = measure(everything, "true", rounds)
    for name, other, wall, cpu in (
        (EXEC, BARE_NAME, 3.0, None),
        (EXEC, WITHOUT_CACHES, 1.15, None),
        (OURS, BARE_NAME, None, None),
        (OURS, PYTHON, None, 100 / 14),
        (OURS, "firejail", 3.0, None),
        (OURS, "srt", 0.27, None),
        (OURS, "codex", None, None),
    ):
        if other in found:
            what = f"start, {name}"
            figures.rows(what, found[name], other, found[other], wall=wall, cpu=cpu)


def start_cold(ways: dict[str, Way]) -> None:
    """Each start reads its files from the disk again, as after the computer was started."""
    if os.getuid():
        print("only root can empty the file cache: cold starts are left out", file=sys.stderr)
        return

    def forget(_name: str) -> None:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")

    compare("start, cold", measure(ways, "true", 3, forget))


def compare(what: str, found: Times, **goals: float) -> None:
    for name, took in found.items():
        if name != OURS:
            figures.rows(what, found[OURS], name, took, wall=goals.get(name))


def build(project: str, ways: dict[str, Way], files: int = 60) -> None:
    """Compile small C files, two at a time."""
    source = Path(project) / "source"
    source.mkdir()
    for number in range(files):
        lines = [f"int f{number}_{line}(int x) {{ return x * {line}; }}" for line in range(200)]
        text = "#include <stdio.h>\n#include <stdlib.h>\n" + "\n".join(lines)
        (source / f"{number}.c").write_text(text)
    objects = " ".join(f"{number}.o" for number in range(files))
    (source / "Makefile").write_text(f"all: {objects}\n")
    folder = shlex.quote(str(source))

    def clean(_name: str) -> None:
        for item in source.glob("*.o"):
            item.unlink()

    # The others do not write to the project by themselves.
    own = {"no sandbox": through(), OURS: ways[OURS]}
    found = measure(own, f"make -s -j2 -C {folder}", 3, clean)
    # The kernel does not add up the processor time of what ends with its namespace.
    clocks = {name: took._replace(cpu=0) for name, took in found.items()}
    compare(f"a build of {files} files", clocks, **{"no sandbox": 1.3})


def output(ways: dict[str, Way], size: str) -> None:
    plain = through()
    found = measure(
        {"a pipe to cat": lambda command: plain(f"{command} | cat"), **ways},
        f"head -c {size} /dev/zero",
        3,
    )
    compare(f"{size} of output", found)


def memory(prefixes: dict[str, list[str]]) -> None:
    """Compare what the processes of a sandbox take while its command waits."""
    found = {}
    for name, prefix in prefixes.items():
        with subprocess.Popen(
            [*prefix, "sleep", "3"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            time.sleep(2)
            found[name] = sum(map(_share, _with_descendants(process.pid))) / 1024
    for name in found.keys() - {OURS}:
        figures.row("memory, a command waits", "MB", found[OURS], name, found[name])


def _with_descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _with_descendants(int(child)))]


def _share(pid: int) -> int:
    """Return the kilobytes of a process, with its share of what several have."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", default="1G", help="how much a command prints (head -c)")
    given = parser.parse_args()
    os.chdir("/")
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-bench-", dir="/var/tmp") as project:
        prefixes = programs(project)
        ways = {name: through(*prefix) for name, prefix in prefixes.items()}
        start_in_a_loop(project, ways, given.rounds)
        start_cold(ways)
        memory(prefixes)
        build(project, ways)
        output(ways, given.output)


if __name__ == "__main__":
    main()
