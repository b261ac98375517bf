# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons: what is decided by them, how they are stored, and how they are worded."""

from __future__ import annotations

from string import Formatter

import pytest

from ollmsandbox.project.apply.journal import Job, Task
from ollmsandbox.project.changes import reasons
from ollmsandbox.project.changes.change import Change, Kind, Recorded, State, Type
from ollmsandbox.project.changes.reasons import Note, Reason
from ollmsandbox.project.review.review import conflict_was_reported

pytestmark = pytest.mark.anybody

LATER = Note(Reason.LATER_RUN, {"run": "20260131-120000-abc"})


def recorded(state: State, note: Note | None) -> Recorded:
    return Recorded(0, Change("/project", "file", Kind.ADDED, Type.FILE), state, note)


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize(
    ("state", "note", "is_reported"),
    [
        (State.CONFLICT, Note(Reason.CHANGED), True),
        (State.CONFLICT, LATER, False),
        (State.DISCARDED, Note(Reason.CHANGED), True),
        (State.DISCARDED, LATER, False),
        (State.DISCARDED, None, False),
        (State.FAILED, Note(Reason.SYSTEM_ERROR, {"error": "No space left on device"}), False),
        (State.FAILED, Note(Reason.LOST), False),
    ],
)
def test_the_reason_decides_whether_a_conflict_was_reported(
    state: State,
    note: Note | None,
    is_reported: bool,
    reworded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reworded:
        same = dict.fromkeys(Reason, "A later run also changed it: 20260131-120000-abc.")
        monkeypatch.setattr(reasons, "_SENTENCES", same)
    item = recorded(state, note)
    assert conflict_was_reported(item) is is_reported
    assert item.is_lost is (note == Note(Reason.LOST))


@pytest.mark.parametrize("note", [None, Note(Reason.LOST), LATER])
def test_a_journal_keeps_the_reason(note: Note | None) -> None:
    job = job_with(note)
    assert Job.unpacked(job.packed()) == job


def job_with(note: Note | None) -> Job:
    items = (recorded(State.CONFLICT, note),)
    return Job(Task.TAKE, "run", "/project", "auto", "true", 1.0, items, {})


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_can_be_worded(reason: Reason) -> None:
    names = [name for _, name, _, _ in Formatter().parse(reasons._SENTENCES[reason]) if name]
    sentence = Note(reason, dict.fromkeys(names, "{x}")).sentence
    assert sentence
    assert sentence.count("{x}") == len(names)
