# SPDX-License-Identifier: GPL-3.0-or-later
"""The oracle: a script's changes, applied from the sandbox, must equal those of the same script
without one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.oracle_steps import Seen, Step, look
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.database.tables import Run
from ollmsandbox.files import trees
from ollmsandbox.project.change import Report, State
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode, RunSpec

Command = str | Sequence[str]
Programs = Mapping[str, list[Step]]

# Commits that are the same each time they are made.
SAME_COMMITS = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true", "LC_ALL": "C.UTF-8",
}  # fmt: skip
_LENT = 0o6000
_SOURCE = (Path(__file__).parent / "oracle_steps.py").read_text(encoding="utf-8")
_PYTHON = os.path.realpath(sys.executable)
# In the sandbox root has no capabilities; to be the same, it must have none outside either.
_AS_INSIDE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str
    report: Report | None = field(default=None, compare=False)


def snapshot(folder: Path) -> Seen:
    """Return everything in a folder, without changing a time or a mode."""
    try:
        return look(str(folder))
    except PermissionError:
        # What is closed to its owner is open to the root of a user namespace.
        argv = ["unshare", "--user", "--map-root-user", *program("look", str(folder))]
        seen = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        return {path: (kind, mode, content) for path, (kind, mode, content) in seen.items()}


_NOT_COMPARED = re.compile(r"\.git/(.*/)?(index|info/(refs|packs|commit-graph)|pack-.*\.rev)$")


def comparable(person: Person) -> Seen:
    """Return everything in the project. git's index holds the inode and times of each file; what it
    says is compared instead. What git makes again is left out."""
    seen = snapshot(person.project)
    for path in [path for path in seen if _NOT_COMPARED.search(path)]:
        del seen[path]
    for path in [path for path in seen if path == ".git" or path.endswith("/.git")]:
        around = f"{person.project}/{os.path.dirname(path)}"
        git = ["git", "--no-optional-locks", "-C", around]
        said = [run_plain(person, [*git, *it]) for it in (["ls-files", "-s"], ["status", "-s"])]
        seen[f"{path}/index"] = ("index", 0, repr(said))
    return seen


def differences(plain: Seen, sandboxed: Seen) -> list[str]:
    """Return one line for each difference. Setuid bits are stripped, so they may differ."""
    found = []
    for path in sorted({*plain, *sandboxed}):
        ours, theirs = plain.get(path), sandboxed.get(path)
        if ours == theirs:
            continue
        if ours and theirs and ours[1] & _LENT and theirs == (ours[0], ours[1] & ~_LENT, ours[2]):
            continue
        found.append(f"{path!r}: plain {_shown(ours)}, sandbox {_shown(theirs)}")
    return found


def assert_same(plain: Seen, sandboxed: Seen, note: object = "") -> None:
    found = differences(plain, sandboxed)
    assert not found, "\n".join([*found, str(note)])


def _shown(entry: tuple[str, int, str] | None) -> str:
    return "nothing" if entry is None else f"{entry[0]} {entry[1]:o} {entry[2]!r}"


def program(what: str, folder: str, given: str = "") -> list[str]:
    return [_PYTHON, "-I", "-S", "-c", _SOURCE, what, folder, given]


def real_project(person: Person) -> str:
    return os.path.realpath(person.project)


def run_plain(person: Person, command: Command) -> Ran:
    argv = ["/bin/bash", "-c", command] if isinstance(command, str) else list(command)
    if os.getuid() == 0:
        argv = [*_AS_INSIDE, *argv]
    done = subprocess.run(
        argv,
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


async def run_inside(person: Person, command: Command, mode: Mode = Mode.AUTO) -> Ran:
    keeper = Recorder(RunSpec(real_project(person), mode=mode), person.paths)
    result = await person.bubble(keeper=keeper, timeout=PATIENCE).exec(command)
    return Ran(result.exit_code, result.stdout.text, result.stderr.text, keeper.report)


def run_sandboxed(person: Person, command: Command, mode: Mode = Mode.AUTO) -> Ran:
    return loop.run(run_inside(person, command, mode))


def steps(person: Person, programs: Programs) -> list[str]:
    """Return the command that runs the steps of each program, in a folder of its own."""
    return program("run", str(person.project), json.dumps(programs))


def with_review(person: Person, work: Callable[[Review, list[Run]], None]) -> None:
    """Pass all runs of the project to it, the oldest first."""
    review = Review(person.paths)
    try:
        project = review.manager.add_project(real_project(person))
        work(review, review.manager.runs(project, 1000)[::-1])
    finally:
        review.close()


def apply_what_waits(person: Person) -> None:
    """Apply everything that is pending or held."""

    def work(review: Review, runs: list[Run]) -> None:
        for report in review.apply_all(runs[0].project) if runs else ():
            assert_all(report, State.APPLIED)

    with_review(person, work)


def assert_all(report: Report, state: State) -> None:
    wrong = [(item.change, item.state, item.note) for item in report.changes if item.state != state]
    assert not wrong, wrong


def assert_nothing_is_left(person: Person) -> None:
    """Assert that no layer, upper folder or job is left."""
    folder = person.paths.project_data(real_project(person))
    assert not [*folder.glob("*layer-*"), *folder.glob("job*")], snapshot(folder)
    left = [name for name in os.listdir(person.paths.cache) if name.startswith("overlay-")]
    assert not left


class Aside:
    """A project that is moved aside and back, to try a script again at the same path."""

    def __init__(self, person: Person) -> None:
        self._project = person.project
        self._kept = Path(tempfile.mkdtemp(dir=person.home.parent)) / "kept"
        self._copy(self._project, self._kept)

    def bring_back(self) -> None:
        trees.empty(self._project)
        self._copy(self._kept, self._project)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        # With the times: make decides by them.
        target.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)
        shutil.copystat(source, target)
