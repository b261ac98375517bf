# SPDX-License-Identifier: GPL-3.0-or-later
"""The types that describe changes: tuples, since there may be a hundred thousand at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from .reasons import Note, Reason


class Kind(Enum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    REPLACED = "replaced"


class Type(Enum):
    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class Flag(Enum):
    """A reason for which the user should look at a change twice."""

    # Git or another version control system runs it, or obeys it.
    LATER = "runs-later"
    # Code that runs when somebody enters the folder or opens it in an editor or an agent; when a
    # tool starts; when somebody builds or tests.
    OPENING = "runs-on-opening"
    TOOL = "runs-with-a-tool"
    BUILD = "runs-in-a-build"
    # Others get a right that they did not have.
    SHARED = "opens-to-others"
    EXECUTABLE = "executable"
    OUTSIDE = "leaves-project"
    STRIPPED = "stripped"
    HELD = "held"


class Change(NamedTuple):
    """A change of one path. `path` is relative to the root; "." is the root itself."""

    root: str
    path: str
    kind: Kind
    # What is there now; of something deleted, what it was.
    type: Type
    mode: int | None = None
    target: str | None = None
    flags: tuple[Flag, ...] = ()
    # What was there before; None for nothing, and for a pipe, a socket or a device.
    old_type: Type | None = None
    old_mode: int | None = None
    # Whether git ignores it, by the ignore files from before the run.
    is_ignored: bool = False

    @property
    def is_edit(self) -> bool:
        """Return whether a file stays a file: then it has lines to merge."""
        return self.kind is Kind.MODIFIED and self.type is Type.FILE

    @property
    def ends_folder(self) -> bool:
        """Return whether a folder is deleted or replaced."""
        return self.old_type is Type.FOLDER and self.kind in (Kind.DELETED, Kind.REPLACED)

    @property
    def makes_folder(self) -> bool:
        return self.type is Type.FOLDER and self.kind in (Kind.ADDED, Kind.REPLACED)


class State(Enum):
    APPLIED = "applied"
    PENDING = "pending"
    CONFLICT = "conflict"
    FAILED = "failed"
    DISCARDED = "discarded"
    UNDONE = "undone"


# The user has to decide what becomes of it.
PENDING_STATES = (State.PENDING, State.CONFLICT, State.FAILED)


class Recorded(NamedTuple):
    """A change of a run, and its state."""

    number: int
    change: Change
    state: State = State.PENDING
    # Why it is in this state, where that needs to be said.
    note: Note | None = None
    # The pending change whose version the command saw: its run and its number.
    on: tuple[str, int] | None = None
    # The signature of the base, if that was a file of the project; "" if it is unknown or is not
    # in the project.
    base: str = ""
    # Whether the base is known: it is not if somebody else edited the file during the run.
    is_known: bool = True
    # The signatures of what was replaced, and of what was left there; "" for nothing, or a merge.
    before: str = ""
    after: str = ""
    # The change times of the two files, by the clock of the file system; 0 if unknown.
    replaced_at: int = 0
    left_at: int = 0
    # The name of the pair of versions that was really made, if it is not base and result.
    made: str = ""

    @property
    def is_held(self) -> bool:
        return Flag.HELD in self.change.flags

    @property
    def is_lost(self) -> bool:
        """Return whether its version no longer exists, so that it cannot be applied."""
        return self.state is State.FAILED and self.is_because(Reason.LOST)

    def is_because(self, reason: Reason) -> bool:
        return self.note is not None and self.note.reason is reason


def folders_around(items: Iterable[Recorded]) -> set[tuple[str, str]]:
    """Return the roots and the paths of all folders that changes are in."""
    found: set[tuple[str, str]] = set()
    for item in items:
        root, path = item.change.root, item.change.path
        while (path := path.rpartition("/")[0]) and (root, path) not in found:
            found.add((root, path))
    return found


# Looked up a hundred thousand times, which a call of the class takes five times as long for.
_KINDS = {kind.value: kind for kind in Kind}
_TYPES = {type_.value: type_ for type_ in Type}
_STATES = {state.value: state for state in State}


def pack_change(roots: Sequence[str], item: Recorded) -> list[object]:
    """Return the part of a change that never changes, for JSON."""
    # `_value_` is what `value` returns, without a call for each of a hundred thousand.
    change = item.change
    return [
        item.number, roots.index(change.root), change.path, change.kind._value_,
        change.type._value_, change.mode, change.old_mode,
        change.old_type._value_ if change.old_type else "", change.target,
        " ".join(flag.value for flag in change.flags) if change.flags else "",
        item.on, item.base, item.is_known, change.is_ignored,
    ]  # fmt: skip


def unpack_change(roots: Sequence[str], values: Sequence[Any]) -> Recorded:
    (
        number, root, path, kind, type_, mode, old_mode, old_type, target, flags,
        on, base, is_known, is_ignored,
    ) = values  # fmt: skip
    change = Change(
        roots[root], path, _KINDS[kind], _TYPES[type_], mode, target,
        tuple(map(Flag, flags.split())) if flags else (),
        _TYPES[old_type] if old_type else None, old_mode, is_ignored,
    )  # fmt: skip
    seen = (on[0], on[1]) if on else None
    return Recorded(number, change, State.PENDING, None, seen, base, is_known)


def pack_state(item: Recorded) -> list[object]:
    """Return the part of a change that can be another one later, for JSON."""
    note = item.note
    return [
        item.number, item.state._value_, note.packed() if note else None,
        item.before, item.after, item.replaced_at, item.left_at, item.made,
    ]  # fmt: skip


def unpack_state(item: Recorded, values: Sequence[Any]) -> Recorded:
    _, state, note, before, after, replaced_at, left_at, made = values
    unpacked = Note.unpacked(note) if note else None
    return Recorded(
        item.number, item.change, _STATES[state], unpacked, item.on, item.base, item.is_known,
        before, after, replaced_at, left_at, made,
    )  # fmt: skip


class Skipped(NamedTuple):
    """A path that is left out because it cannot be in a project. What was there stays."""

    root: str
    path: str
    what: str


class ChangeSet(NamedTuple):
    changes: Sequence[Change]
    skipped: Sequence[Skipped]
    # Why changes are held, by path.
    notes: Mapping[str, Note]


# A run with so many changes keeps no copies of versions beside the file in the project.
MANY = 1000


class Report(NamedTuple):
    """The changes of a run, and the state of each."""

    run_id: str
    changes: tuple[Recorded, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: tuple[str, ...] = ()
    # What was applied or discarded along with it, of other runs.
    along: tuple[Report, ...] = ()
