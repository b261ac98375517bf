# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for attacks on the copy-back: a project, the user's other files, and swapping folders for
links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.escape.kill import after_each_change
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.files import trees
from ollmsandbox.paths import Paths
from ollmsandbox.project.change import Report, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.overlay import Overlay
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.spec import Mode, RunSpec

Step = Callable[[], None]

each_mode = pytest.mark.parametrize(
    "mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value)
)

OURS = (".cache", ".local", ".config", "playground")
WAIT = "echo ready; until [ -e ~/playground/go ]; do sleep 0.01; done"
ATTACK = """
cd outer/sub
echo evil >changed; echo evil >new; rm gone; rm -r tree; ln -s /etc/passwd link
mkdir made; echo evil >made/file; chmod 700 shut; chmod 777 tool
"""


def fill(folder: Path) -> None:
    """Create the same files everywhere, so that only the path distinguishes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("changed", "gone", "tool"):
        (folder / name).write_text("old\n")
    for name in ("tree", "shut"):
        (folder / name).mkdir()
        (folder / name / "leaf").write_text("old\n")


def snapshot(folder: Path, without: tuple[Path, ...]) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path in without:
            continue
        seen = path.lstat()
        what: object = None
        if stat.S_ISDIR(seen.st_mode):
            waiting += path.iterdir()
        elif stat.S_ISLNK(seen.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(seen.st_mode):
            what = path.read_bytes()
        changed = 0 if path == folder else seen.st_mtime_ns
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
        found[str(path)] = (seen.st_mode, seen.st_uid, seen.st_ino, changed, what, attributes)
    return found


@contextmanager
def untouched_home(person: Person) -> Iterator[Path]:
    """Create the user's other files, and assert at the end that nothing changed them."""
    for folder in (".", "sub", "outer/sub", "decoy/project/outer/sub"):
        fill(person.home / folder)
    (person.home / ".bashrc").write_text("mine\n")
    (person.home / "way").symlink_to("outer/sub")
    without = (
        *(person.home / name for name in OURS),
        *(person.home / name for name in ("project", "project.aside", "area", "area.aside")),
    )
    before = snapshot(person.home, without)
    yield person.home
    assert snapshot(person.home, without) == before


@contextmanager
def cleared_afterwards(person: Person) -> Iterator[None]:
    """Empty the folders at the end: pytest cannot remove one that is too deep."""
    yield
    for folder in (person.project, person.paths.cache, person.paths.data):
        trees.empty(folder)


def no_step() -> None:
    """Do nothing after a change on disk."""


class _Stepping(Recorder):
    """Calls a function after each change that settling a run makes on disk."""

    def __init__(self, project: str, paths: Paths, mode: Mode, step: Step) -> None:
        super().__init__(RunSpec(project, mode=mode), paths)
        self._step = step

    def settle(self, overlay: Overlay) -> None:
        with after_each_change(self._step):
            super().settle(overlay)


def settle(person: Person, command: str, mode: Mode = Mode.AUTO, step: Step = no_step) -> Report:
    recorder = _Stepping(os.path.realpath(person.project), person.paths, mode, step)
    person.run(command, keeper=recorder)
    return recorder.report or Report("")


def during(person: Person, command: str, act: Callable[[], object], mode: Mode) -> Report:
    """Call `act` outside after the command has done its work, while it still runs."""
    recorder = Recorder(RunSpec(os.path.realpath(person.project), mode=mode), person.paths)
    person.share_playground()

    def noticed(_data: bytes) -> None:
        if not (person.playground / "go").exists():
            act()
            (person.playground / "go").touch()

    bubble = person.bubble(keeper=recorder)
    loop.run(bubble.exec(f"{command}\n{WAIT}", sinks=Sinks(noticed)))
    return recorder.report or Report("")


def review(person: Person, action: str, run_id: str, *paths: str, step: Step = no_step) -> Report:
    with closing(Review(person.paths)) as found:
        run = found.manager.run(run_id)
        does: dict[str, Callable[..., Report]] = {
            "apply": found.apply,
            "discard": found.discard,
            "undo": found.undo,
        }
        with after_each_change(step):
            return does[action](run, [f"{run.project.path}/{path}" for path in paths])


def settle_and_apply(person: Person, command: str, mode: Mode) -> Report:
    """Run a command; apply its changes, if they are pending then."""
    report = settle(person, command, mode)
    return review(person, "apply", report.run_id) if mode is Mode.REVIEW else report


def in_each(commands: Iterable[str]) -> str:
    """Return shell text that runs each command in a folder of its own, named by its number: most of
    the time goes into the sandbox."""
    return "\n".join(f"(cd {number} && {one}\n)" for number, one in enumerate(commands))


def of_each(names: Iterable[str], paths: Iterable[str]) -> dict[str, set[str]]:
    """Return those of the paths that are in the folder of each command, without its number."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in paths:
        number, _, name = path.partition("/")
        list(found.values())[int(number)].add(name)
    return found


def apply_all(person: Person) -> list[Report]:
    """Apply everything that is pending in the project."""
    with closing(Review(person.paths)) as found:
        project = found.manager.find_project(person.project)
        assert project is not None
        return found.apply_all(project)


def rows(person: Person, run_id: str) -> dict[str, tuple[State, bytes]]:
    """Return the state of each change of a run, and the run's version of it."""
    with closing(Review(person.paths)) as found:
        run, versions = found.manager.run(run_id), Versions(found.manager)
        return {
            item.change.path: (item.state, versions.after(run, item).read())
            for item in read_changes(found.manager, run)
        }


class Counter:
    """Counts the steps on disk, and acts at one of them."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.steps = 0
        self._at = at
        self._act = act

    def __call__(self) -> None:
        if self.steps == self._at:
            self._act()
        self.steps += 1


# What becomes a link, and where that leads: there everything is as it was in the project.
SWAPS = {
    "the folder": ("outer/sub", "."),
    "its parent": ("outer", "."),
    "the project": ("", "."),
    "the folder around the project": ("..", "decoy"),
}


def swap(person: Person, what: str) -> Callable[[], None]:
    name, target = SWAPS[what]
    place = Path(os.path.normpath(person.project / name))

    def act() -> None:
        place.rename(f"{place}.aside")
        place.symlink_to(person.home / target)

    return act


def swap_back(person: Person, what: str) -> None:
    place = Path(os.path.normpath(person.project / SWAPS[what][0]))
    if place.is_symlink():
        place.unlink()
        Path(f"{place}.aside").rename(place)
