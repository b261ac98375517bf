# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill a program after each of its steps on disk, starting from the same project each time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import stat
import subprocess
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.escape.attack import IS_ROOT
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.files import dirfd, exchange, trees
from ollmsandbox.project.change import Report
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.jobs import unfinished
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.project.settle import opened_jobs
from ollmsandbox.sandbox.overlay import Overlay, Root, leftovers
from ollmsandbox.sandbox.spec import Mode, RunSpec

Seen = dict[str, tuple[object, ...]]

# To look at more of the steps, or at fewer.
EVERY = int(os.environ.get("OLLMSANDBOX_KILL_EVERY", "0"))
# Root looks at some of the steps, and others at those between.
FIRST_STEP = 0 if IS_ROOT else 1

_CHANGING = (
    *("rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir", "mknod"),
    *("chmod", "fchmod", "setxattr", "removexattr", "copy_file_range", "pwrite", "ftruncate"),
)


def killed_after(number: int, act: Callable[[], object]) -> bool:
    """Run it in a process that is killed right after that number of changes on disk. Return False
    if it was done before."""
    # Two threads may be at it, and count alike.
    steps = itertools.count(1)
    return killed_when(lambda: next(steps) == number, act)


def killed_when(is_time: Callable[[], bool], act: Callable[[], object]) -> bool:
    """Run it in a process that is killed after the first change on disk at which the condition
    holds."""

    def step() -> None:
        if is_time():
            os.kill(os.getpid(), signal.SIGKILL)

    with warnings.catch_warnings():
        # The child uses none of what our other threads might hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            with after_each_change(step):
                act()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent hears of it by the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0, "it failed; what it said is above"
    return False


@contextlib.contextmanager
def after_each_change(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` after each system call of this process that changes something on disk, of
    whichever thread."""
    own, one_at_a_time = threading.local(), threading.Lock()

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = change(*arguments, **options)
            is_change = change is not real["open"] or arguments[1] & os.O_CREAT
            # What is done in a step is not counted.
            if is_change and not getattr(own, "is_stepping", False):
                own.is_stepping = True
                try:
                    with one_at_a_time:
                        step()
                finally:
                    own.is_stepping = False
            return result

        return call

    real = {name: getattr(os, name) for name in ("open", *_CHANGING)}
    real_rename = exchange._rename
    try:
        for name, change in real.items():
            vars(os)[name] = counted(change)
        vars(exchange)["_rename"] = counted(real_rename)
        yield
    finally:
        vars(os).update(real)
        vars(exchange)["_rename"] = real_rename


class LeftBehind(Exception):
    """Raised instead of settling what a command wrote."""


class Leaver:
    """A keeper that leaves all changes to the next start."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.run_id = ""
        self.about: Mapping[str, str] = {**recorder.about, "command": "change"}

    def roots(self) -> Sequence[Root]:
        return self._recorder.roots()

    def settle(self, overlay: Overlay) -> None:
        self.run_id = overlay.run_id
        raise LeftBehind


class Snapshot:
    """A user's folders, restored before each kill to the state that a command left."""

    def __init__(self, person: Person, *folders: Path) -> None:
        """Save the home folder, unless other folders are named."""
        self.person = person
        saved = person.home.with_name("saved")
        self._saved = {saved / str(n): one for n, one in enumerate(folders or (person.home,))}

    def leave(self, command: str | Sequence[str]) -> str:
        """Run a command and stop before its changes are settled; return the run's id."""
        keeper = Leaver(Recorder(RunSpec(str(self.person.project)), self.person.paths))
        with contextlib.suppress(LeftBehind):
            self.person.run(command, keeper=keeper)
        return keeper.run_id

    def save(self) -> None:
        for runs in ("overlay-*", "caches/*/live-*"):
            for folder in self.person.paths.cache.glob(os.path.join(runs, "work", "*")):
                # The kernel's own, and closed even to its owner.
                trees.empty(folder)
        for saved, folder in self._saved.items():
            _copy(folder, saved)

    def restore(self) -> None:
        for saved, folder in self._saved.items():
            trees.empty(folder)
            _copy(saved, folder)
        self._renew_times()

    def _renew_times(self) -> None:
        """Record the new times of the copies, as if the command had just written them."""
        probe = self.person.project.parent / "now"
        probe.touch()
        now = probe.lstat().st_ctime_ns
        probe.unlink()
        for file in self.person.paths.cache.glob("overlay-*/map.json"):
            document = json.loads(file.read_text())
            document["began"] = dict.fromkeys(document["began"], now)
            file.write_text(json.dumps(document))

    def kills(
        self,
        act: Callable[[], object],
        every: int,
        prepare: Callable[[], object] | None = None,
    ) -> Iterator[tuple[int, bool]]:
        """Do something again and again from the saved state, killed some steps later each time,
        until it gets to its end. Yield the number of steps, and whether it was killed."""
        every = EVERY or every
        number, is_killed = 1 + every // 2 * FIRST_STEP, True
        while is_killed:
            (prepare or self.restore)()
            is_killed = killed_after(number, act)
            yield number, is_killed
            number += every

    # --- what is done with it ------------------------------------------------------------------

    def settle(self, mode: Mode) -> Report:
        """Settle the changes as at the end of a run."""
        (overlay,) = leftovers(self.person.paths.cache, print)
        project, paths = str(self.person.project), self.person.paths
        recorder = Recorder(RunSpec(project, mode=mode, command="the command"), paths)
        overlay.about = {**overlay.about, "mode": mode.value, "command": "the command"}
        try:
            recorder.settle(overlay)
            overlay.cleanup()
        finally:
            overlay.release()
        assert recorder.report is not None
        return recorder.report

    def apply(self) -> None:
        with self.review() as (review, run):
            review.apply(run)

    def discard(self) -> None:
        with self.review() as (review, run):
            review.discard(run)

    def undo(self) -> None:
        with self.review() as (review, run):
            review.undo(run)

    @contextlib.contextmanager
    def review(self) -> Iterator[tuple[Review, Run]]:
        """Yield a review and the last run."""
        review = Review(self.person.paths)
        try:
            project = review.manager.find_project(self.person.project)
            run = review.manager.last_run(project) if project else None
            assert run is not None
            yield review, run
        finally:
            review.close()

    def look(self) -> Outcome:
        with self.review() as (review, run):
            rows = [
                (
                    item.change.path,
                    item.change.kind.value,
                    item.state.value,
                    item.note and item.note.reason,
                )
                for item in read_changes(review.manager, run)
            ]
            command, state = run.command, run.state
        keeper = Recorder(RunSpec(str(self.person.project)), self.person.paths)
        [root] = keeper.roots()
        waiting = look_at(Path(root.layer)) if root.layer else {}
        return Outcome(look_at(self.person.project), waiting, sorted(rows), command, state)


@dataclass
class Outcome:
    """All that the user can see."""

    project: Seen
    waiting: Seen
    rows: list[tuple[str, str, str, object]]
    command: str
    state: str


# --- after a kill --------------------------------------------------------------------------------


def has_job(person: Person) -> bool:
    return bool(unfinished(person.paths))


def check_whole(found: Seen, old: Seen, new: Seen, between: Collection[str] = ()) -> None:
    """Assert that each file is the old or the new one. Folders may still be open. Those `between`
    may be anything for a moment."""
    for path, entry in found.items():
        if path not in between and not _is_folder(entry) and ".ollmsandbox-" not in path:
            assert entry in (old.get(path), new.get(path)), path
    for path in old.keys() & new.keys() - set(between):
        assert path in found or _is_folder(old[path]) or _is_folder(new[path]), path


def check_kill(
    snapshot: Snapshot,
    number: int,
    *kills: int,
    is_killed: bool,
    old: Seen,
    wanted: Outcome,
    between: Collection[str] = (),
) -> None:
    """Assert that nothing is half written after the kill, and that the next start finishes the
    work."""
    told = f"killed after step {number}"
    check_whole(look_at(snapshot.person.project), old, wanted.project, between)
    is_begun = has_job(snapshot.person) or not is_killed
    finish(snapshot, *kills)
    check_finished(snapshot.person)
    found = snapshot.look()
    if is_begun:
        assert found == wanted, f"{told}: {_differences(found, wanted)}"
    else:
        # A command's changes are pending; a request of the user has not begun, or is done.
        assert found.project in (old, wanted.project), told


def _differences(found: Outcome, wanted: Outcome) -> list[object]:
    """Return what only one of the two has."""
    told: list[object] = [found.command, found.state]
    for here, there in ((found.project, wanted.project), (found.waiting, wanted.waiting)):
        told += [(name, here[name]) for name in here if there.get(name) != here[name]]
        told += [("missing", name) for name in there if name not in here]
    told += [row for row in found.rows if row not in wanted.rows]
    return told + [("missing", row) for row in wanted.rows if row not in found.rows]


def finish(snapshot: Snapshot, *kills: int) -> None:
    """Recover as the next start does. That process is killed, too, after some steps each time."""
    for number in kills:
        killed_after(number, lambda: finish_leftovers(snapshot.person.paths))
    assert not [
        error for report in finish_leftovers(snapshot.person.paths) for error in report.errors
    ]


def check_finished(person: Person) -> None:
    """Assert that no temporary file or job is left."""
    cache, data = person.paths.cache, person.paths.data
    with opened_jobs(person.paths, str(person.project)):
        pass  # removes what was staged
    left = [*cache.glob("overlay-*"), *cache.glob(".*"), *unfinished(person.paths)]
    left += [*data.glob("runs/*/*/*.half"), *data.glob("runs/*/stage/*.*"), *data.glob("runs/*/.*")]
    left += [*data.glob("projects/*/.*"), *data.glob("projects/*/modes-*")]
    left += [*person.project.glob("**/.ollmsandbox-*"), *person.project.glob("**/*.half")]
    assert not left, left


def _is_folder(entry: tuple[object, ...]) -> bool:
    return str(entry[0]).startswith("d")


def look_at(folder: Path) -> Seen:
    """Return types, modes, contents and link targets."""
    found: Seen = {}
    if not folder.is_dir():
        return found
    opened: list[tuple[str, int, int]] = []
    levels = [("", os.open(folder, os.O_RDONLY))]
    found["."] = (stat.filemode(os.fstat(levels[0][1]).st_mode),)
    descriptors = [levels[0][1]]
    while levels:
        prefix, around = levels.pop()
        for name in os.listdir(around):
            here = os.stat(name, dir_fd=around, follow_symlinks=False)
            shown: object = ""
            if stat.S_ISLNK(here.st_mode):
                shown = os.readlink(name, dir_fd=around)
            elif stat.S_ISREG(here.st_mode):
                with open(os.open(name, os.O_RDONLY, dir_fd=around), "rb") as file:
                    shown = file.read()
            elif stat.S_ISDIR(here.st_mode):
                inner, mode = dirfd.open_folder(name, around, os.X_OK)
                opened += [(name, around, mode)] if mode is not None else []
                descriptors.append(inner)
                levels.append((f"{prefix}{name}/", inner))
            found[prefix + name] = (stat.filemode(here.st_mode), shown)
    for one in opened:
        dirfd.set_mode(*one)
    for descriptor in descriptors:
        os.close(descriptor)
    return found


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
