# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a run: what is written there is read again, also after a kill."""

from __future__ import annotations

import os

import pytest
from support.person import Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import Change, Flag, Kind, Recorded, State, Type
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.project.run import RunFolder, RunInfo, read_run

pytestmark = pytest.mark.anybody

NOT_UTF_8 = os.fsdecode(b"/caf\xe9/\xff\n'\"")
ROOTS = ("/project", NOT_UTF_8)


def make(person: Person, items: list[Recorded]) -> RunFolder:
    folder = RunFolder(person.paths, "1")
    info = RunInfo("/project", ROOTS, f"ls {NOT_UTF_8}", "auto", 1.5)
    folder.create(info)
    folder.write_changes(info, items)
    return folder


def added(number: int, path: str, root: str = "/project") -> Recorded:
    return Recorded(number, Change(root, path, Kind.ADDED, Type.FILE, 0o644))


@pytest.mark.parametrize("odd", ["], [", "],[", "]\n[", NOT_UTF_8, "\u2028", '"'])
def test_changes_are_read_as_they_were_written(person: Person, odd: str) -> None:
    link = Change(NOT_UTF_8, odd, Kind.REPLACED, Type.LINK, 0o777, odd, (Flag.OUTSIDE,), Type.FILE)
    items = [
        added(0, "a"),
        added(1, odd, NOT_UTF_8),
        Recorded(2, link, on=("0", 7), base="1:2:3:4"),
        Recorded(3, link, is_known=False),
    ]
    folder = make(person, items)
    assert folder.states().changes == items
    assert folder.info().roots == ROOTS
    assert folder.info().command == f"ls {NOT_UTF_8}"


def test_the_last_state_counts(person: Person) -> None:
    folder = make(person, [added(0, "a"), added(1, "b")])
    note = Note(Reason.BASE_DISCARDED, {"run": NOT_UTF_8}, "1:2:3:4")
    first, second = folder.states().changes
    folder.append([first._replace(state=State.CONFLICT, note=note)], ended=2.5)
    folder.append([second._replace(state=State.APPLIED, after="1:2:3:4", left_at=5, made="x")])
    folder.append((), exit=3)
    folder.append([first._replace(state=State.DISCARDED)])
    states = folder.states()
    assert (states.ended, states.exit_code) == (2.5, 3)
    assert [item.state for item in states.changes] == [State.DISCARDED, State.APPLIED]
    assert states.changes[1][-4:] == ("1:2:3:4", 0, 5, "x")


def test_a_line_that_a_kill_cut_off_is_ignored_and_swallows_no_other(person: Person) -> None:
    folder = make(person, [added(0, "a")])
    [item] = folder.states().changes
    folder.append([item._replace(state=State.APPLIED)])
    file = folder.path / "state.jsonl"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole + whole.replace(b"applied", b"undone")[:length])
        assert [one.state for one in folder.states().changes] in ([State.APPLIED], [State.UNDONE])
        folder.append([item._replace(state=State.DISCARDED)])
        assert [one.state for one in folder.states().changes] == [State.DISCARDED]


def test_a_record_that_cannot_be_read_is_named(person: Person) -> None:
    folder = make(person, [added(0, "a")])
    (folder.path / "changes.jsonl").write_text("garbage")
    with pytest.raises(OllmSandboxError, match="cannot be read") as told:
        read_run(person.paths, "1")
    assert str(folder.path) in str(told.value)
