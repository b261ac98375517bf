# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes between a kill and the next start: recovery takes neither a later run's files nor the
user's edits for its own."""

from __future__ import annotations

import time

import pytest
from support.escape.copy_back import review, rows, settle
from support.escape.kill import Snapshot, check_finished, finish
from support.person import Person

from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project.change import State
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary


@pytest.fixture
def snapshot(person: Person) -> Snapshot:
    for name in ("a", "f"):
        (person.project / name).write_text("old\n")
    return Snapshot(person)


def on_disk(person: Person, name: str) -> bytes:
    return (person.project / name).read_bytes()


def test_a_later_pending_run_survives_an_interrupted_apply(snapshot: Snapshot) -> None:
    person = snapshot.person
    first = settle(person, "echo first >a; echo first >f", Mode.REVIEW).run_id
    snapshot.save()
    for number, _ in snapshot.kills(lambda: review(person, "apply", first), every=8):
        # As a command does that has been running all the time.
        second = person.write("f", "first\nsecond\n", Mode.REVIEW)
        finish(snapshot)
        check_finished(person)
        found = rows(person, second)
        assert found == {"f": (State.PENDING, b"first\nsecond\n")}, number
        # Nobody said yes to the second.
        state, _ = rows(person, first)["f"]
        assert on_disk(person, "f") == (b"first\n" if state is State.APPLIED else b"old\n")
        assert rows(person, first)["a"][0] in (State.APPLIED, State.PENDING)


def slow_clock(patch: pytest.MonkeyPatch) -> None:
    """Simulate a machine a thousand times as fast: all times are almost equal."""
    real, begin = time.time, time.time()
    patch.setattr(time, "time", lambda: begin + 1 + (real() - begin) / 1000)


@pytest.mark.parametrize("is_fast", [False, True], ids=["as it is", "fast"])
def test_a_later_pending_run_survives_an_interrupted_settle(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    person = snapshot.person
    settle(person, "echo waits >waiting", Mode.REVIEW)
    first = snapshot.leave("echo first >a; echo first >f")
    if is_fast:
        slow_clock(monkeypatch)
    snapshot.save()
    for number, is_killed in snapshot.kills(lambda: snapshot.settle(Mode.AUTO), every=8):
        if not is_killed:
            break
        seen = find_in_layers(person.layers(), "f")
        was_seen = seen is not None and read_seen(seen) == b"first\n"
        second = person.write("f", "second\n", Mode.REVIEW)
        finish(snapshot)
        check_finished(person)
        assert rows(person, second)["f"] == (State.PENDING, b"second\n"), number
        state, version = rows(person, first)["f"]
        assert on_disk(person, "f") == (b"first\n" if state is State.APPLIED else b"old\n"), number
        # Who wrote the second had the first to begin with, or it is kept.
        assert was_seen or version == b"first\n", number


@pytest.mark.parametrize("action", ["apply", "undo", "redo"])
def test_edits_since_the_kill_stay(snapshot: Snapshot, action: str) -> None:
    person = snapshot.person
    run = settle(person, "echo first >a; echo first >f", Mode.REVIEW).run_id
    verbs = {"apply": ["apply"], "undo": ["apply", "undo"], "redo": ["apply", "undo", "apply"]}
    *before, last = verbs[action]
    snapshot.save()

    def prepare() -> None:
        snapshot.restore()
        for verb in before:
            review(person, verb, run)

    for number, _ in snapshot.kills(lambda: review(person, last, run), every=8, prepare=prepare):
        with open(person.project / "f", "ab") as file:
            file.write(b"mine\n")
        finish(snapshot)
        # Whatever is done with the change, the line of the user stays.
        versions = (b"old\nmine\n", b"first\nmine\n")
        assert on_disk(person, "f") in versions, number
        for verb in ("undo", "apply", "undo"):
            review(person, verb, run)
            assert on_disk(person, "f") in versions, (number, verb)
