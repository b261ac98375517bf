# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs thousands of commands, several at a time in several projects, while a user edits files,
applies, discards and undoes, answers questions about the network, and kills some of it.

It checks that every command that was not killed works, and at the end that the user's lines are
there, that nothing is left over, and that time and memory of a command did not grow. It uses a home
folder and a network of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import random
import select
import shlex
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.servers.world import enter  # noqa: E402

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.paths import Paths  # noqa: E402
from ollmsandbox.project.recorder import Recorder  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.spec import Mode, RunSpec  # noqa: E402

# How often each kind of step is taken, in percent, and the share of programs that are killed.
_KINDS = {"edit": 10, "undo": 8, "apply": 4, "discard": 2, "changes": 4, "ask": 4, "run": 68}
_KILLED = 0.05
_LINES = 40
# Exit status of a program that has nothing to do or reports conflicts.
_FINE = (0, 1)
_LONGEST = 600
# The last commands may take this many times as long as the first ones, and as much memory.
_GROWTH = 1.5


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Project:
    """A project with a user who edits it, and remembers the lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._lines: dict[str, list[str]] = {"mine": [], "file": []}
        folder.mkdir(parents=True)
        (folder / "file").write_text("".join(f"line {number}\n" for number in range(_LINES)))

    def edit(self, chance: random.Random) -> None:
        """Add a line to a file that only the user edits, and to one that commands edit too."""
        with self._lock:
            for name in ("mine", "file"):
                line = f"user {chance.randrange(10**12)}"
                if self._insert(name, line, chance):
                    self._lines[name].append(line)

    def _insert(self, name: str, line: str, chance: random.Random) -> bool:
        """Save a file as an editor does: not if it has changed since it was read."""
        file, new = self.folder / name, self.folder / f"{name}~"
        before = _stamp(file)
        lines = file.read_text().splitlines() if before else []
        lines.insert(chance.randrange(len(lines) + 1), line)
        new.write_text("".join(f"{one}\n" for one in lines))
        if _stamp(file) != before:
            new.unlink()
            return False
        new.replace(file)
        return True

    def faults(self) -> list[str]:
        """Return what was lost, and what was left over."""
        found = []
        for name, lines in self._lines.items():
            file = self.folder / name
            there = set(file.read_text().splitlines()) if file.exists() else set()
            lost = [line for line in lines if line not in there]
            found += [f"{file} lost {line!r}" for line in lost]
        found += [f"{file} was left over" for file in self.folder.rglob(".ollmsandbox*")]
        return found


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


class Soak:
    def __init__(self, folder: Path, steps: int, seconds: float, projects: int, seed: int) -> None:
        self._folder = folder
        self._steps = steps
        self._end = time.monotonic() + seconds
        self._seed = seed
        self._lock = threading.Lock()
        self._began = 0
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        # Seconds of each command that was not killed.
        self.took: list[float] = []
        # Open files and KiB of this process after each command that it ran itself.
        self.sizes: list[tuple[int, int]] = []
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(folder / "home"),
            "TMPDIR": str(self.temporary),
        }
        self.projects = [Project(folder / f"project-{number}") for number in range(projects)]

    def run(self, at_once: int) -> None:
        for project in self.projects:
            # Without any run, the other commands have nothing to work on.
            self._check("first run", self._program(project, "run", "-c", "echo >first"), (0,))
        workers = [
            threading.Thread(target=self._work, args=(number,)) for number in range(at_once - 1)
        ]
        for worker in workers:
            worker.start()
        self._work_here(random.Random(self._seed))
        for worker in workers:
            worker.join()
        for project in self.projects:
            # Settles what was killed.
            self._check("changes", self._program(project, "changes"), _FINE)

    def _next(self) -> int:
        """Return the number of the next step; 0 after the last."""
        with self._lock:
            if self._began >= self._steps or time.monotonic() > self._end:
                return 0
            self._began += 1
            if self._began % 500 == 0:
                recent = statistics.median(self.took[-100:] or [0])
                print(f"{self._began} steps, {recent:.2f} s for a command", flush=True)
            return self._began

    def _work(self, worker: int) -> None:
        chance = random.Random(f"{self._seed}-{worker}")
        kinds = chance.choices(list(_KINDS), list(_KINDS.values()), k=self._steps)
        while number := self._next():
            kind, project = kinds[number - 1], chance.choice(self.projects)
            is_killed = kind not in ("edit", "ask") and chance.random() < _KILLED
            self.done[f"{kind} killed" if is_killed else kind] += 1
            if kind == "edit":
                project.edit(chance)
            elif kind == "ask":
                self._ask(project, is_allowed=chance.random() < 0.5)
            else:
                arguments = self._arguments(kind, project, number, chance)
                kill_after = chance.random() if is_killed else None
                ended = self._program(project, *arguments, kill_after=kill_after)
                fine = (0,) if kind == "run" else _FINE
                if not is_killed:
                    self._check(shlex.join(arguments), ended, fine)

    def _work_here(self, chance: random.Random) -> None:
        """Run commands in this process, as the window does."""
        paths = Paths.from_environ(self.environ)
        while number := self._next():
            project = chance.choice(self.projects)
            spec = RunSpec(str(project.folder), mode=Mode.AUTO)
            bubble = Bubble(spec, environ=self.environ, keeper=Recorder(spec, paths))
            result = loop.run(bubble.exec(_command(number, chance)))
            self.done["run here"] += 1
            self._check("run here", Ended(result.exit_code, "", result.stderr.text), (0,))
            self.sizes.append((len(os.listdir("/proc/self/fd")), _resident()))

    def _arguments(
        self, kind: str, project: Project, number: int, chance: random.Random
    ) -> list[str]:
        if kind == "run":
            mode = chance.choice(["auto", "auto", "review"])
            return ["run", "--apply", mode, "-c", _command(number, chance)]
        if kind in ("apply", "discard"):
            return [kind, "--all"]
        shown = self._program(project, "changes", "--json")
        run = json.loads(shown.out).get("run_id", "") if shown.out.startswith("{") else ""
        return ["undo", run] if kind == "undo" and run else ["changes"]

    def _program(self, project: Project, *arguments: str, kill_after: float | None = None) -> Ended:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox"), *arguments],
            cwd=project.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        if kill_after is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(kill_after)
            process.kill()
        try:
            out, err = process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            return Ended(-1, "", f"no end within {_LONGEST} s")
        if kill_after is None:
            self.took.append(time.monotonic() - started)
        return Ended(process.returncode, out, err)

    def _ask(self, project: Project, *, is_allowed: bool) -> None:
        """Run a command at a terminal that asks for the network, and answer."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(project.folder)
            program = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
            command = "curl -sS --max-time 300 http://www.example.org/"
            words = [*program, "run", "--network", "-c", command]
            os.execve(sys.executable, words, self.environ)
        answer, shown = b"y\n" if is_allowed else b"n\n", b""
        with contextlib.suppress(OSError):
            while select.select([terminal], [], [], _LONGEST)[0]:
                shown += os.read(terminal, 4096)
                if answer and b"[y/N] " in shown:
                    os.write(terminal, answer)
                    answer = b""
        os.close(terminal)
        os.waitpid(pid, 0)
        if answer or (b"hello from" in shown) is not is_allowed:
            self.problems.append(f"network, allowed: {is_allowed}: {shown.decode()[-500:]}")

    def _check(self, what: str, ended: Ended, fine: tuple[int, ...]) -> None:
        if ended.code not in fine or "Traceback" in ended.err:
            self.problems.append(f"{what}: status {ended.code}: {ended.err[-800:]}")
            print(self.problems[-1], flush=True)

    # --- what is left ------------------------------------------------------------------------

    def faults(self) -> list[str]:
        paths = Paths.from_environ(self.environ)
        found = [*self.problems]
        for project in self.projects:
            found += project.faults()
        found += [f"process {line} is left over" for line in self._processes()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found += [f"mount {line}" for line in mounts if f"{self._folder}/home" in line]
        left = [
            *self.temporary.iterdir(),
            *paths.cache.glob("overlay-*"),
            *paths.cache.glob("done-*"),
            *paths.projects.glob("*/job.json"),
            *paths.runs.glob("*/*/*.half"),
        ]
        found += [f"{file} is left over" for file in left]
        with contextlib.closing(sqlite3.connect(paths.database)) as database:
            rows = {row[0] for row in database.execute("SELECT id FROM run")}
            orphans = database.execute(
                "SELECT count(*) FROM change WHERE run_id NOT IN (SELECT id FROM run)"
            ).fetchone()[0]
        runs = {run.name for run in paths.runs.iterdir() if (run / "changes.jsonl").exists()}
        if rows != runs or orphans:
            found.append(f"index and runs differ: {len(rows)}, {len(runs)}, {orphans} orphans")
        return found + self._growth()

    def _processes(self) -> list[str]:
        """Return the processes of ours that live, except for this one."""
        deadline = time.monotonic() + 60
        while True:
            found = []
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    is_ours = f"HOME={self.environ['HOME']}".encode() in (
                        (folder / "environ").read_bytes()
                    )
                    if is_ours and folder.name != str(os.getpid()):
                        found.append(f"{folder.name} {(folder / 'comm').read_text().strip()}")
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def _growth(self) -> list[str]:
        found = []
        fifth = len(self.took) // 5
        # Few say nothing on a busy machine.
        if fifth >= 200:
            first, last = (statistics.median(part) for part in (
                self.took[:fifth], self.took[-fifth:]))  # fmt: skip
            print(f"A command took {first:.2f} s in the first fifth, {last:.2f} s in the last.")
            if last > _GROWTH * first:
                found.append(f"commands got slower: {first:.2f} s, then {last:.2f} s")
        fifth = len(self.sizes) // 5
        if fifth >= 4:
            files, memory = zip(self.sizes[fifth], self.sizes[-1], strict=True)
            print(f"Open files {files[0]}, then {files[1]}; KiB {memory[0]}, then {memory[1]}.")
            if files[1] > files[0] + 2 or memory[1] > _GROWTH * memory[0]:
                found.append(f"this process grew: files {files}, KiB {memory}")
        return found


def _command(number: int, chance: random.Random) -> str:
    folder = f"d{number % 7}"
    return chance.choice(
        [
            f"sed -i 's/^line {chance.randrange(_LINES)}$/theirs {number}/' file",
            f"echo {number} >new{number}",
            f"echo {number} >>log; mkdir -p {folder}; echo x >{folder}/f{number}",
            f"rm -rf {folder}; true",
            "sed -i /^theirs/d file",
            "ls -R >/dev/null",
        ]
    )


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--projects", type=int, default=4)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/var/tmp") as folder:
        enter(folder)
        soak = Soak(Path(folder), given.steps, given.seconds, given.projects, given.seed)
        soak.run(given.at_once)
        faults = soak.faults()
    print(", ".join(f"{kind} {count}" for kind, count in sorted(soak.done.items())))
    print("\n".join(faults) or "Nothing was lost, and nothing is left over.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
