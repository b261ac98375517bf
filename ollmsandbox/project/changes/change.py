# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change is. There may be a hundred thousand at once, and tuples are quickest to make."""

from __future__ import annotations

import os
from enum import Enum
from typing import NamedTuple

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
    """Why the user should look at a change twice."""

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
    """One name that is not what it was. `path` is relative to the root; "." is the root itself."""

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
    # Of a plain file, which has one name and no rights to be stripped, and takes the place of a
    # file or of nothing: its inode in the layer. Known only until it is applied.
    inode: int = 0

    @property
    def is_plain(self) -> bool:
        """Mostly done in a few calls: one file, which comes or goes."""
        return self.inode != 0 or (self.kind is Kind.DELETED and self.type is Type.FILE)

    @property
    def is_edit(self) -> bool:
        """Return whether a file stays a file: then it has lines to merge."""
        return self.kind is Kind.MODIFIED and self.type is Type.FILE


class State(Enum):
    APPLIED = "applied"
    PENDING = "pending"
    CONFLICT = "conflict"
    FAILED = "failed"
    DISCARDED = "discarded"
    UNDONE = "undone"


# Somebody has to decide what becomes of it.
PENDING_STATES = (State.PENDING, State.CONFLICT, State.FAILED)


class Recorded(NamedTuple):
    """A change of a run, and what became of it."""

    number: int
    change: Change
    state: State = State.PENDING
    # Why it is in this state, where that needs to be said.
    note: Note | None = None
    # When the run began, by the clock of the file system: what changed later is not the run's. 0 if
    # the command saw a pending version, which has no time in the project.
    began: int = 0
    # The signatures of what we found at its place, and of what we left there.
    before: str = ""
    after: str = ""
    # When that was modified. The fast path of an apply sets it, and it is not stored.
    modified: float | None = None

    @property
    def is_held(self) -> bool:
        return Flag.HELD in self.change.flags

    @property
    def is_lost(self) -> bool:
        """Return whether its version no longer exists, so that it cannot be applied."""
        return self.state is State.FAILED and self.is_because(Reason.LOST)

    @property
    def apart_from(self) -> frozenset[str]:
        """Return the runs whose changes to the same path the command did not see."""
        return frozenset(self.note.arguments.get("runs", "").split()) if self.note else frozenset()

    def is_because(self, reason: Reason) -> bool:
        return self.note is not None and self.note.reason is reason


# Looked up a hundred thousand times, which a call of the class takes five times as long for.
_KINDS = {kind.value: kind for kind in Kind}
_TYPES = {type_.value: type_ for type_ in Type}
_STATES = {state.value: state for state in State}


def pack(item: Recorded) -> list[object]:
    """Return the values of a change, as the journal and the database have them."""
    # `_value_` is what `value` returns, without a call for each of a hundred thousand.
    change, note = item.change, item.note
    return [
        item.number, change.root, change.path, change.kind._value_, change.type._value_,
        change.mode, change.old_mode, change.old_type._value_ if change.old_type else "",
        change.target, " ".join(flag.value for flag in change.flags) if change.flags else "",
        item.state._value_, note.reason.value if note else "",
        note.packed_arguments() if note else "",
        item.began, item.before, item.after, change.inode,
    ]  # fmt: skip


def unpack(
    number: int, root: str | bytes, path: str | bytes, kind: str, type_: str,
    mode: int | None, old_mode: int | None, old_type: str,
    target: str | bytes | None, flags: str,
    state: str, reason: str, arguments: str,
    began: int, before: str, after: str, inode: int = 0,
) -> Recorded:  # fmt: skip
    """Return the change that has these values. The database has paths as bytes, and no inode."""
    change = Change(
        os.fsdecode(root),
        os.fsdecode(path),
        _KINDS[kind],
        _TYPES[type_],
        mode,
        None if target is None else os.fsdecode(target),
        tuple(map(Flag, flags.split())) if flags else (),
        _TYPES[old_type] if old_type else None,
        old_mode,
        inode,
    )
    note = Note.unpacked(reason, arguments) if reason else None
    return Recorded(number, change, _STATES[state], note, began, before, after)


class Skipped(NamedTuple):
    """What cannot be in a project; it is left out, and what was at its name stays."""

    root: str
    path: str
    what: str


class ChangeSet(NamedTuple):
    changes: tuple[Change, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    # Names in upper that change nothing: touched only.
    idle: tuple[str, ...] = ()
    # The full paths of folders that were opened to look into them, and when they were changed
    # before that.
    opened: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


# A run with so many changes keeps no copies of versions to be merged.
MANY = 1000


class Report(NamedTuple):
    """What a run changed, and what became of it."""

    run_id: str
    changes: tuple[Recorded, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: tuple[str, ...] = ()
    # What was applied or discarded along with it, of other runs.
    along: tuple[Report, ...] = ()
