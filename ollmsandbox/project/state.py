# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out whether changes are in the project, from its files: the database knows only what was
decided, and anybody may have edited a file since."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..database.tables import Run
from ..paths import is_missing
from ..text.diff import LARGEST, Hunk, HunkState, find_hunks, hunk_states, split_lines
from . import index
from .change import PENDING_STATES, Kind, Recorded, State, Type
from .projects import ProjectManager
from .reasons import Note, Reason
from .run import is_part, is_small, signature, signature_at
from .versions import Versions


@dataclass(frozen=True)
class TextVersions:
    """The lines of both versions of a file, and the differences."""

    old: list[str]
    new: list[str]
    hunks: tuple[Hunk, ...]


def decode_lines(data: bytes | None) -> list[str] | None:
    """Return the lines, from which `encode_lines` makes the same bytes again; None if it is not
    text, or too large to compare."""
    if data is None or len(data) > LARGEST or b"\0" in data:
        return None
    return split_lines(data.decode("utf-8", "surrogateescape"))


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode("utf-8", "surrogateescape")


def text_versions(manager: ProjectManager, run: Run, item: Recorded) -> TextVersions | None:
    """Return both versions; None if one is not text, was not kept, or does not exist."""
    if not item.change.is_edit:
        return None
    versions = Versions(manager)
    old = decode_lines(versions.before(run, item).content)
    new = decode_lines(versions.after(run, item).content)
    if old is None or new is None:
        return None
    return TextVersions(old, new, find_hunks(old, new))


def current_hunk_states(manager: ProjectManager, run: Run, item: Recorded) -> dict[Hunk, HunkState]:
    """Return the state of each hunk of a change in the project; nothing if the file is as the run
    left it, or has no hunks."""
    if not item.change.is_edit:
        return {}
    versions = Versions(manager)
    try:
        present = versions.on_disk(item).content
    except OSError:
        return {}  # an attempt to undo it reports the error
    is_pending = item.state in PENDING_STATES
    is_whole = not is_pending and versions.after(run, item).read() == present
    lines = None if is_whole else decode_lines(present)
    found = None if lines is None else text_versions(manager, run, item)
    if lines is None or found is None:
        return {}
    states = dict(
        zip(found.hunks, hunk_states(lines, found.old, found.new, found.hunks), strict=True)
    )
    if is_pending:
        # What is neither in the project nor would be applied was discarded.
        rest = decode_lines(versions.pending(run, item).content)
        waiting = () if rest is None else hunk_states(rest, found.old, found.new, found.hunks)
        for hunk, state in zip(found.hunks, waiting, strict=False):
            if state is states[hunk] is HunkState.UNDONE:
                states[hunk] = HunkState.DISCARDED
    return states


def read_current(manager: ProjectManager, run: Run) -> list[Recorded]:
    """Read a run's changes, in the state in which they are now.

    Only one thread does so at a time. Two would hand each other the interpreter at each file, and
    the window's thread would wait until both are done.
    """
    with manager.reading:
        return current_changes(manager, run, index.read_changes(manager, run))


def current_changes(manager: ProjectManager, run: Run, items: Iterable[Recorded]) -> list[Recorded]:
    """Return the changes in the state in which they are now. What a later run has changed, too,
    stays in the state of the database, and so does what is in a missing folder."""
    found = list(items)
    gone = {root for root in {item.change.root for item in found} if is_missing(root)}
    return [item if item.change.root in gone else _current(manager, run, item) for item in found]


def _current(manager: ProjectManager, run: Run, item: Recorded) -> Recorded:
    change = item.change
    if item.state in PENDING_STATES and is_made(manager, run, item):
        return item._replace(state=State.APPLIED, note=None)
    if item.state not in (State.APPLIED, State.UNDONE):
        return item
    if change.type is not Type.FILE:
        # Git removes what it wrote itself, and must not get it back with an apply.
        is_git = ".git" in f"{change.root}/{change.path}".split("/")
        is_gone = change.kind is Kind.ADDED and not is_git and signature_at(item) == "-"
        if not is_gone or index.later_runs(manager, run, item):
            return item
        return item._replace(state=State.UNDONE, note=None)
    try:
        if change.kind is Kind.REPLACED or _is_as_recorded(item):
            return item
        if index.later_runs(manager, run, item):
            return item
        return _compared(manager, run, item)
    except OSError:
        return item  # a version, or the folder around the file, that even its owner may not read


def _is_as_recorded(item: Recorded) -> bool:
    """Return whether the file is what the program left there, without a look at its content."""
    try:
        found = os.lstat(f"{item.change.root}/{item.change.path}")
    except (FileNotFoundError, NotADirectoryError):
        return (item.change.kind is Kind.DELETED) is (item.state is State.APPLIED)
    return item.after != "" and signature(found) == item.after


def _compared(manager: ProjectManager, run: Run, item: Recorded) -> Recorded:
    """Return a change in the state that the content of the file shows."""
    versions = Versions(manager)
    new: bytes | None
    old, new, current = versions.three_way(run, item)
    is_decision = bool(item.made) and not is_part(item)
    if is_decision:
        old, new = (version.content for version in versions.made(run, item))
    elif item.change.kind is Kind.ADDED:
        old = None
    elif item.change.kind is Kind.DELETED:
        new = None
    states: set[HunkState] = set()
    if current not in (old, new) and is_decision:
        states = set(_hunk_states_between(old, new, current))
    elif current not in (old, new):
        states = set(current_hunk_states(manager, run, item).values())
    if current == new or states == {HunkState.PRESENT}:
        return item._replace(state=State.APPLIED, note=None)
    if current == old or states == {HunkState.UNDONE}:
        return item._replace(state=State.UNDONE, note=None)
    is_partly = states == {HunkState.PRESENT, HunkState.UNDONE}
    return item._replace(note=Note(Reason.PARTLY if is_partly else Reason.EDITED))


def _hunk_states_between(
    before: bytes | None, after: bytes | None, current: bytes | None
) -> Sequence[HunkState]:
    """Return what became of each difference between two texts in a third one."""
    old, new, now = map(decode_lines, (before, after, current))
    if old is None or new is None or now is None:
        return ()
    return hunk_states(now, old, new, find_hunks(old, new))


def is_made(manager: ProjectManager, run: Run, item: Recorded) -> bool:
    """Return whether somebody has made a pending change in the project. What is based on another
    pending change is not in the project without that."""
    change = item.change
    if item.on is not None or change.type is not Type.FILE:
        return False
    try:
        found = os.lstat(f"{change.root}/{change.path}")
        if change.kind is Kind.DELETED or stat.S_IMODE(found.st_mode) != change.mode:
            return False
        versions = Versions(manager)
        after = versions.after(run, item)
        # What is large is not read only to be shown.
        if not is_small(found) or found.st_size != after.size:
            return False
        return versions.on_disk(item).content == after.read()
    except (FileNotFoundError, NotADirectoryError):
        return change.kind is Kind.DELETED
    except OSError:
        return False  # the folder around it is closed
