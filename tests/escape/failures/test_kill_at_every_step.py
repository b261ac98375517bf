# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGKILL at any step: no file is lost or half written, and the next start finishes the work."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.escape.kill import EVERY, Snapshot, check_kill, killed_after, look_at
from support.person import make_person

from ollmsandbox.files import exchange
from ollmsandbox.project import capture, hunks, plan
from ollmsandbox.project import settle as settling
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.state import text_versions
from ollmsandbox.sandbox.spec import Mode

MAKE = r"""
umask 022
mkdir -p .git/hooks folder/sub closed renewed to-file mode
echo HEAD >.git/HEAD
for name in kept edited gone script twin folder/a folder/sub/b closed/in renewed/old to-file/x; do
    echo "old $name" >$name
done
ln twin other-twin
ln -s kept link
ln -s kept link-to-file
echo old >file-to-link
echo old >to-folder
printf 'old\n' >"$(printf 'new\nline')"
printf 'old\n' >"$(printf '\377bytes')"
chmod 555 closed
"""

CHANGE = r"""
umask 022
echo new >edited
rm gone
echo added >added
echo linked >linked; ln linked linked-too
chmod 755 script
echo new >twin
ln -sfn edited link
ln -s /etc/passwd out
rm link-to-file; echo file >link-to-file
rm file-to-link; ln -s kept file-to-link
rm -r folder
rm -r renewed; mkdir renewed; echo new >renewed/new
rm -r to-file; echo file >to-file
rm to-folder; mkdir to-folder; echo in >to-folder/in; mkdir to-folder/empty
mkdir -p deep/er; echo deep >deep/er/file; chmod 555 deep/er
chmod u+w closed; echo new >closed/in; echo more >closed/more; chmod 555 closed
chmod 700 mode
chmod 750 .
echo 'echo evil' >.git/hooks/pre-commit
echo new >"$(printf 'new\nline')"
rm "$(printf '\377bytes')"; echo x >"$(printf 'more\377bytes')"
"""

# On top of the other one, before that is applied.
CHANGE_MORE = r"""
umask 022
echo newer >edited
echo back >gone
rm added
echo newer >kept
mkdir folder; echo anew >folder/c
rm -r to-folder; echo 'file again' >to-folder
rm to-file; mkdir to-file; echo y >to-file/y
rm -r renewed
echo z >deep/z
chmod u+w closed; rm closed/in; chmod 555 closed
rm link; mkdir link; echo in >link/in
rm "$(printf 'new\nline')"
"""


# By both. The first version may be there for a moment, or nothing.
CHANGED_TWICE = (
    *("edited", "gone", "added", "link", "closed/in", "renewed/new", "new\nline"),
    *("to-file", "to-folder", "to-folder/in", "to-folder/empty"),
)


@dataclass(frozen=True)
class Operation:
    act: Callable[[Snapshot], object]
    before: Callable[[Snapshot], object] = lambda snapshot: None
    on_pending: bool = False
    # Whether undoing the last run gives the project as it was at first.
    can_be_undone: bool = True

    def prepare(self, snapshot: Snapshot) -> None:
        snapshot.restore()
        if self.on_pending:
            # Not before the restore: a version without a copy is known by its inode.
            snapshot.settle(Mode.REVIEW)
            snapshot.leave(CHANGE_MORE)
        self.before(snapshot)


def _settle_and_undo(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.REVIEW)
    snapshot.apply()
    snapshot.undo()


def _edit_and_settle(snapshot: Snapshot) -> None:
    """Leave conflicts: the user edits what the command has changed."""
    snapshot.settle(Mode.REVIEW)
    for name in ("edited", "gone", "script"):
        (snapshot.person.project / name).write_text("mine\n")
    (snapshot.person.project / "added").write_text("mine\n")
    snapshot.apply()


def _force(snapshot: Snapshot) -> None:
    project = snapshot.person.project
    with snapshot.review() as (review, run):
        review.apply(run, [str(project / name) for name in ("edited", "gone", "added")])


def _keep_both(snapshot: Snapshot) -> None:
    with snapshot.review() as (review, run):
        review.keep_both(run, [str(snapshot.person.project / "edited")])


def _apply_hunk(snapshot: Snapshot) -> None:
    with snapshot.review() as (review, run):
        [item] = [i for i in read_changes(review.manager, run) if i.change.path == "edited"]
        found = text_versions(review.manager, run, item)
        assert found is not None
        hunks.apply_hunks(review.manager, run, item, found.hunks)


def _apply(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.AUTO)


def _hold(snapshot: Snapshot) -> None:
    snapshot.settle(Mode.REVIEW)


OPERATIONS = {
    "apply": Operation(_apply),
    "apply-on-pending": Operation(_apply, on_pending=True),
    "hold": Operation(_hold),
    "hold-on-pending": Operation(_hold, on_pending=True),
    "take": Operation(Snapshot.apply, _hold),
    # Changes of an earlier run are applied with those that build on them.
    "take-along": Operation(Snapshot.apply, _hold, on_pending=True),
    "discard": Operation(Snapshot.discard, _hold),
    "undo": Operation(Snapshot.undo, _apply),
    "redo": Operation(Snapshot.apply, _settle_and_undo),
    "force": Operation(_force, _edit_and_settle, can_be_undone=False),
    "both": Operation(_keep_both, _edit_and_settle, can_be_undone=False),
    "hunk": Operation(_apply_hunk, _hold, can_be_undone=False),
}

# Which of the folders is on another file system; or that has no way to exchange two files.
# "moved" is as if there were so many changes that no versions are copied.
PLACES = ("none", "project", "cache", "data", "no-exchange", "moved")
CASES = [(place, name) for place in PLACES for name in OPERATIONS]
CASES += [(f"moved-{place}", "apply") for place in ("project", "cache", "data", "no-exchange")]
# Where a folder is, and how many changes there are, does not depend on the user: of those, root
# looks at one half.
OURS = [
    case for n, case in enumerate(CASES)
    if EVERY or case[0] == "none" or n % 2 == (os.getuid() == 0)
]  # fmt: skip


@pytest.fixture(scope="module")
def snapshot_for(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Snapshot]]:
    """Return one snapshot for all cases that begin alike: it is restored after each kill."""
    with ExitStack() as stack:

        @cache
        def make(place: str) -> Snapshot:
            elsewhere = stack.enter_context(_elsewhere())
            return make_snapshot(tmp_path_factory.mktemp("p"), elsewhere, place)

        yield make


@contextmanager
def _elsewhere() -> Iterator[Path]:
    """On another file system."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)
    shutil.rmtree(folder)


def make_snapshot(tmp_path: Path, elsewhere: Path, place: str) -> Snapshot:
    person = make_person(tmp_path)
    other = elsewhere / "other"
    other.mkdir()
    if place == "project":
        person.project.rmdir()
        person.project = other / "project"
        person.project.mkdir()
    elif place in ("cache", "data"):
        person.environ[f"XDG_{place.upper()}_HOME"] = str(other)
    subprocess.run(["sh", "-ec", MAKE], cwd=person.project, check=True)
    snapshot = Snapshot(
        person, person.home, *([other] if place not in ("none", "no-exchange") else [])
    )
    snapshot.leave(CHANGE)
    snapshot.save()
    return snapshot


def _refuse(*_arguments: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize(("place", "name"), OURS)
def test_a_kill_at_any_step(
    snapshot_for: Callable[[str], Snapshot],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    name: str,
) -> None:
    operation = OPERATIONS[name]
    case = place
    is_moved = place.startswith("moved")
    place = place.removeprefix("moved").removeprefix("-") or "none"
    if is_moved:
        for module in (capture, plan, settling):
            monkeypatch.setattr(module, "MANY", 1)
    snapshot = snapshot_for(place)
    snapshot.restore()
    untouched = look_at(snapshot.person.project)
    operation.prepare(snapshot)
    before = look_at(snapshot.person.project)
    if place == "no-exchange":
        monkeypatch.setattr(exchange, "_rename", _refuse)
    operation.act(snapshot)
    wanted = snapshot.look()
    # Not all of them each time: that takes minutes. Of the commonest case more, and in no two cases
    # the same ones, nor as root those that others look at.
    apart = 5 if (place, name) == ("none", "apply") else 13 if place == "none" else 41
    number = CASES.index((case, name)) % apart + 1
    if not EVERY and os.getuid() != 0:
        number += 3 * apart
    every = EVERY or 6 * apart
    is_killed = True
    while is_killed:
        operation.prepare(snapshot)
        is_killed = killed_after(number, lambda: operation.act(snapshot))
        kills = (1 + number * 7 % 13, 1 + number * 5 % 31)
        check_kill(
            snapshot,
            number,
            *kills,
            is_killed=is_killed,
            old=before,
            wanted=wanted,
            between=CHANGED_TWICE if name == "take-along" else (),
        )
        if operation.can_be_undone and not operation.on_pending:
            snapshot.undo()
            assert look_at(snapshot.person.project) == untouched, f"killed after step {number}"
        number += every
