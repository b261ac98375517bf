# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons: what is decided by them, how they are stored, and how they are worded."""

from __future__ import annotations

import json
from string import Formatter

import pytest

from ollmsandbox.project import reasons
from ollmsandbox.project.change import Change, Kind, Recorded, State, Type, pack_state, unpack_state
from ollmsandbox.project.reasons import Note, Reason

pytestmark = pytest.mark.anybody

DISCARDED = Note(Reason.BASE_DISCARDED, {"run": "20260131-120000-abc"})


def recorded(state: State, note: Note | None) -> Recorded:
    return Recorded(0, Change("/project", "file", Kind.ADDED, Type.FILE), state, note)


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize("reason", Reason)
def test_the_reason_decides_whether_a_version_is_lost(
    reason: Reason, reworded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reworded:
        same = dict.fromkeys(Reason, "This version no longer exists.")
        monkeypatch.setattr(reasons, "_SENTENCES", same)
    assert recorded(State.FAILED, Note(reason)).is_lost is (reason is Reason.LOST)
    assert not recorded(State.CONFLICT, Note(reason)).is_lost


@pytest.mark.parametrize(
    "note", [None, Note(Reason.LOST), DISCARDED, Note(Reason.CHANGED, {}, "-")]
)
def test_the_record_of_a_run_keeps_the_reason(note: Note | None) -> None:
    item = recorded(State.CONFLICT, note)
    stored = json.loads(json.dumps(pack_state(item)))
    kept = unpack_state(recorded(State.PENDING, None), stored)
    assert kept == item
    # What the user was told about, which does not count when two notes are compared.
    assert (kept.note and kept.note.found) == (note and note.found)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_can_be_worded(reason: Reason) -> None:
    names = [name for _, name, _, _ in Formatter().parse(reasons._SENTENCES[reason]) if name]
    sentence = Note(reason, dict.fromkeys(names, "{x}")).sentence
    assert sentence
    assert sentence.count("{x}") == len(names)
