# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGKILL while a change is merged with an edit of the user's: the edit stays, and the next start
finishes the merge."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from support.escape.copy_back import settle
from support.escape.kill import Snapshot, check_kill, look_at
from support.person import Person

from ollmsandbox.project import hunks, state
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.layer import PendingLayer
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

OLD = "".join(f"line {number}\n" for number in range(1, 31))
MINE = "my own line\n"
EDIT = "sed -i -e 's/^line 3$/third/' -e 's/^line 20$/twentieth/' file"


def with_hunk(act: Callable[..., object], snapshot: Snapshot, number: int = 0) -> None:
    with snapshot.review() as (review, run):
        [item] = read_changes(review.manager, run)
        found = state.text_versions(review.manager, run, item)
        assert found is not None
        act(review.manager, run, item, [found.hunks[number]])


undo_hunk = partial(with_hunk, hunks.undo_hunks)
discard_hunk = partial(with_hunk, hunks.discard_hunks)

Act = Callable[[Snapshot], object]

# The mode of the run, what is done before the user edits the file, and what is killed.
CASES: dict[str, tuple[Mode, tuple[Act, ...], Act]] = {
    "take": (Mode.REVIEW, (), Snapshot.apply),
    "undo": (Mode.AUTO, (), Snapshot.undo),
    "redo": (Mode.AUTO, (Snapshot.undo,), Snapshot.apply),
    "undo-after-hunk": (Mode.AUTO, (undo_hunk,), Snapshot.undo),
    "undo-hunk": (Mode.AUTO, (), undo_hunk),
    "apply-hunk": (Mode.REVIEW, (), partial(with_hunk, hunks.apply_hunks)),
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
    for number, is_killed in snapshot.kills(lambda: act(snapshot), every=6, prepare=restore):
        check_kill(snapshot, number, number % 7, is_killed=is_killed, old=old, wanted=wanted)


def test_a_change_can_be_discarded_after_a_kill_while_a_hunk_was(person: Person) -> None:
    (person.project / "file").write_text(OLD)
    snapshot = Snapshot(person)
    settle(person, f"{EDIT}; echo more >>file", Mode.REVIEW)
    discard_hunk(snapshot, 0)
    snapshot.save()
    for number, _ in snapshot.kills(lambda: discard_hunk(snapshot, 1), every=1):
        snapshot.discard()
        assert not PendingLayer(person.paths, str(person.project)).runs(), number
