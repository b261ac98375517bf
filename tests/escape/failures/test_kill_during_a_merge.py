# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGKILL while a change is merged with an edit of the user's: the edit stays, and the next start
finishes the merge."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.escape.copy_back import FIRST_STEP, settle
from support.escape.kill import EVERY, Snapshot, check_kill, killed_after, look_at
from support.person import Person

from ollmsandbox.project import hunks, state
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.layer import PendingLayer
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.anybody

OLD = "".join(f"line {number}\n" for number in range(1, 31))
MINE = "my own line\n"
EDIT = "sed -i -e 's/^line 3$/third/' -e 's/^line 20$/twentieth/' file"


def undo_hunk(snapshot: Snapshot) -> None:
    _with_a_hunk(snapshot, hunks.undo_hunks)


def apply_hunk(snapshot: Snapshot) -> None:
    _with_a_hunk(snapshot, hunks.apply_hunks)


def discard_hunk(snapshot: Snapshot, number: int) -> None:
    _with_a_hunk(snapshot, hunks.discard_hunks, number)


def _with_a_hunk(snapshot: Snapshot, act: Callable[..., object], number: int = 0) -> None:
    with snapshot.review() as (review, run):
        [item] = read_changes(review.manager, run)
        found = state.text_versions(review.manager, run, item)
        assert found is not None
        act(review.manager, run, item, [found.hunks[number]])


Act = Callable[[Snapshot], object]

# The mode of the run, what is done before the user edits the file, and what is killed.
CASES: dict[str, tuple[Mode, tuple[Act, ...], Act]] = {
    "take": (Mode.REVIEW, (), Snapshot.apply),
    "undo": (Mode.AUTO, (), Snapshot.undo),
    "redo": (Mode.AUTO, (Snapshot.undo,), Snapshot.apply),
    "undo-after-hunk": (Mode.AUTO, (undo_hunk,), Snapshot.undo),
    "undo-hunk": (Mode.AUTO, (), undo_hunk),
    "apply-hunk": (Mode.REVIEW, (), apply_hunk),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kill_during_a_merge(person: Person, name: str) -> None:
    mode, before, act = CASES[name]
    file = person.project / "file"
    file.write_text(OLD)
    snapshot = Snapshot(person)
    settle(person, f"{EDIT}; chmod 600 file", mode)
    for earlier in before:
        earlier(snapshot)
    snapshot.save()

    def restore() -> None:
        snapshot.restore()
        # By the clock of the file system, this is later than the command began.
        time.sleep(0.01)
        file.write_text(file.read_text() + MINE)

    restore()
    old = look_at(person.project)
    act(snapshot)
    wanted = snapshot.look()
    assert MINE in file.read_text()
    # Not after each step each time.
    number, is_killed = 1 + FIRST_STEP * (1 if EVERY else 3), True
    while is_killed:
        restore()
        is_killed = killed_after(number, lambda: act(snapshot))
        check_kill(snapshot, number, number % 7, is_killed=is_killed, old=old, wanted=wanted)
        number += EVERY or 6


def test_a_change_can_be_discarded_after_a_kill_while_a_hunk_was(person: Person) -> None:
    (person.project / "file").write_text(OLD)
    snapshot = Snapshot(person)
    settle(person, f"{EDIT}; echo more >>file", Mode.REVIEW)
    discard_hunk(snapshot, 0)
    snapshot.save()
    number, is_killed = 1, True
    while is_killed:
        snapshot.restore()
        is_killed = killed_after(number, lambda: discard_hunk(snapshot, 1))
        snapshot.discard()
        assert not PendingLayer(person.paths, str(person.project)).runs(), (
            f"killed after step {number}"
        )
        number += 1
