# SPDX-License-Identifier: GPL-3.0-or-later
"""What recording changes costs, as a ratio to the plainest way of doing the same."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build-aux")]

import figures  # noqa: E402
from figures import Took  # noqa: E402

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.paths import Paths  # noqa: E402
from ollmsandbox.project.recorder import Recorder  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.overlay import Overlay  # noqa: E402
from ollmsandbox.sandbox.plan.mounts import BindMounts  # noqa: E402
from ollmsandbox.sandbox.spec import RunSpec  # noqa: E402


class Person:
    """With a home folder of their own: nothing of the real one is touched."""

    def __init__(self, folder: Path) -> None:
        self.environ = {**os.environ, "HOME": str(folder)}
        self.paths = Paths.from_environ(self.environ)

    async def run(self, project: Path, command: str) -> Took:
        """Returns how long scan and apply took."""
        keeper = Timed(RunSpec(str(project)), self.paths)
        result = await Bubble(RunSpec(str(project)), environ=self.environ, keeper=keeper).exec(
            command
        )
        assert result.exit_code == 0, result.stderr.text
        return keeper.took


class Timed(Recorder):
    took = Took(0, 0)

    def settle(self, overlay: Overlay) -> None:
        start = Took.now()
        super().settle(overlay)
        self.took = Took.now().since(start)
        states = {item.state.value for item in (self.report.changes if self.report else ())}
        assert states == {"applied"}, states


async def against_pipeline(person: Person, project: Path, rounds: int) -> None:
    """The same mounts, made by hand with the usual programs."""

    def by_hand() -> None:
        spec = RunSpec(str(project))
        subject = Bubble(spec, environ=person.environ, keeper=Recorder(spec, person.paths))
        plan, overlay = subject.plan, subject.overlay
        plain = [plan.caches.plain] if plan.caches else []
        words = [f"mkdir -p {shlex.join([*plain, overlay.folder])}"]
        for mount in plan.overlay_mounts():
            if isinstance(mount, BindMounts):
                for name in mount.names:
                    source, target = f"{mount.source}/{name}", f"{mount.target}/{name}"
                    words.append(f"mount --bind {shlex.quote(source)} {shlex.quote(target)}")
                continue
            if mount.upper:
                words.append(f"mkdir -p {shlex.join([mount.upper, mount.work])}")
            options = f"{mount.options},lowerdir={':'.join(mount.lower)}"
            if mount.upper:
                options += f",upperdir={mount.upper},workdir={mount.work}"
            words.append(f"mount -t overlay -o {shlex.quote(options)} overlay {mount.target}")
        argv = ["bwrap", *plan.args(), "--", "/bin/sh", "-c", "true"]
        words.append(f"exec {shlex.join(argv)}")
        script = " && ".join(words)
        user = ["--user", "--map-root-user"] if os.getuid() else []
        scripts.append((["unshare", *user, "--mount", "sh", "-c", script], overlay.folder))

    scripts: list[tuple[list[str], str]] = []
    for _ in range(rounds + 2):
        by_hand()
    ours, theirs = [], []
    for number, (argv, folder) in enumerate(scripts):
        start = Took.now()
        await person.run(project, "true")
        middle = Took.now()
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)  # noqa: ASYNC221
        subprocess.run(["rm", "-rf", folder], check=True)  # noqa: ASYNC221
        if number >= 2:
            ours.append(middle.since(start))
            theirs.append(Took.now().since(middle))
    mine, hand = figures.median(ours), figures.median(theirs)
    figures.rows("Bubble.exec, overlay and scan", mine, "by hand", hand, wall=0.5)


async def against_size(person: Person, folder: Path, files: int, rounds: int) -> None:
    small, large = folder / "small", folder / "large"
    for project, count in ((small, 100), (large, files)):
        for number in range(0, count, 1000):
            part = project / f"{number // 100000}" / f"{number}"
            part.mkdir(parents=True)
            for inner in range(min(1000, count - number)):
                os.close(os.open(part / f"{inner}", os.O_CREAT | os.O_WRONLY))
    times: dict[Path, list[Took]] = {small: [], large: []}
    for number in range(rounds + 2):
        for project, taken in times.items():
            start = Took.now()
            await person.run(project, "true")
            if number >= 2:
                taken.append(Took.now().since(start))
    many, few = figures.median(times[large]), figures.median(times[small])
    figures.rows(f"a project of {files:,} files", many, "one of 100", few, wall=1.1)


# What a command does to so many files; each makes as many changes as there are files.
KINDS = {
    "replaced": 'for f in $(find . -type f); do echo changed >>"$f"; done',
    "added": 'for f in $(find . -type f); do echo "a new file with some words" >"$f.new"; done',
    "replaced, added and deleted": (
        "for f in $(find . -type f); do case $f in"
        ' *[0-4]) echo changed >>"$f";; *[56]) mv "$f" "$f.new";; *7) rm "$f";; esac; done'
    ),
}


def make_files(project: Path, files: int) -> None:
    for start in range(0, files, 200):
        part = project / f"d{start}"
        part.mkdir(parents=True)
        for inner in range(200):
            (part / f"{inner}").write_text(f"{inner} " * 100)


def copying(source: Path, target: Path, files: int) -> Took:
    """How long it takes for so many."""
    start = Took.now()
    subprocess.run(["cp", "-a", source, target], check=True)
    took = Took.now().since(start)
    part = files / sum(len(names) for _, _, names in os.walk(source))
    return Took(took.wall * part, took.cpu * part)


async def against_copying(person: Person, folder: Path, files: int, rounds: int) -> None:
    """Both with what they read in memory, one after the other. The time of the processor counts:
    that of the clock depends on what the disk did before."""
    for kind, command in KINDS.items():
        ours: list[Took] = []
        theirs: list[Took] = []
        for number in range(rounds):
            project = folder / f"{kind}{number}"
            make_files(project, files)
            theirs.append(copying(project, folder / f"{kind}{number}-before", files))
            ours.append(await person.run(project, command))
        mine, plain = figures.median(ours), figures.median(theirs)
        figures.rows(f"{files:,} files {kind}", mine, "cp -a", plain, cpu=2.2)


async def one_large_file(person: Person, project: Path, size: int) -> None:
    small = figures.median(
        [await person.run(project, f"head -c 4096 /dev/zero > small{n}") for n in range(3)]
    )
    large = await person.run(project, f"head -c {size} /dev/zero > large")
    figures.rows(f"a file of {size >> 20:,} MiB is applied", large, "4 KiB", small, wall=2.0)


async def measure(given: argparse.Namespace, folder: Path) -> None:
    person = Person(folder)
    project = folder / "project"
    project.mkdir()
    await person.run(project, "echo first > file")
    await against_pipeline(person, project, given.rounds)
    await against_copying(person, folder / "many", given.changed, given.copies)
    await one_large_file(person, project, given.large << 20)
    shutil.rmtree(folder / "many")
    await against_size(person, folder / "sizes", given.files, given.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--files", type=int, default=1_000_000, help="in the large project")
    parser.add_argument("--changed", type=int, default=20_000, help="files that one run changes")
    parser.add_argument("--copies", type=int, default=3, help="how often they are changed")
    parser.add_argument("--large", type=int, default=4096, help="MiB of the large file")
    given = parser.parse_args()
    # As the command line has it.
    gc.set_threshold(100_000)
    # Not in /tmp, which may be memory: this is about disks.
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-bench-", dir="/var/tmp") as folder:
        os.chdir("/")
        loop.run(measure(given, Path(folder)))


if __name__ == "__main__":
    main()
