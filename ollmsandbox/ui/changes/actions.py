# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with changes, off the main thread: verbs on runs, files and parts of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from gettext import gettext as _

from ...project.changes.change import Recorded, Report, State
from ...project.database import runs
from ...project.manager import ProjectManager
from ...project.review.hunks import (
    apply_hunks,
    current_hunk_states,
    discard_hunks,
    redo_hunks,
    text_versions,
    undo_hunks,
)
from ...project.review.review import Review
from ...project.review.versions import Version, Versions
from ...text.diff import Hunk, HunkGroup, HunkState
from ..diff.model import decode
from .list_model import RunData
from .note_words import note

_WANTED = {
    "apply": State.APPLIED,
    "take": State.APPLIED,
    "redo": State.APPLIED,
    "discard": State.DISCARDED,
    "keep": State.DISCARDED,
    "undo": State.UNDONE,
}


@dataclass(frozen=True)
class Done:
    count: int
    # Why something was not done, in sentences.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """Both versions of a file, as far as they can be shown."""

    recorded: Recorded
    before: Version
    after: Version
    # None where there is no file.
    old_data: bytes | None
    new_data: bytes | None
    # Of an applied change to a file that has changed since.
    states: dict[Hunk, HunkState] = field(default_factory=dict)

    def hunk_states(self, group: HunkGroup) -> set[HunkState]:
        """Return what became of the hunks; nothing if the file is as the run left it."""
        return {self.states[hunk] for hunk in group.hunks if hunk in self.states}

    @property
    def content(self) -> tuple[object, ...]:
        """All that there is to be seen of it."""
        notes = self.before.note, self.after.note
        return self.recorded, notes, self.old_data, self.new_data, self.states

    @property
    def texts(self) -> tuple[str, str] | None:
        """Both as text, if both are."""
        old, new = decode(self.old_data or b""), decode(self.new_data or b"")
        return None if old is None or new is None else (old, new)


_LARGEST = 8 << 20


def act(review: Review, verb: str, run: RunData, paths: Sequence[str] = ()) -> Done:
    """`paths` in full; without any, all of the run."""
    row = review.manager.run(run.id)
    does: dict[str, Callable[[], Report]] = {
        "apply": lambda: review.apply(row, paths, only_waiting=True),
        "take": lambda: review.apply(row, paths),
        "redo": lambda: review.apply(row, paths),
        "discard": lambda: review.discard(row, paths),
        "keep": lambda: review.discard(row, paths),
        "undo": lambda: review.undo(row, paths),
    }
    report = does[verb]()
    done = [item for item in report.changes if item.state is _WANTED[verb]]
    missed = [item for item in report.changes if item.state is not _WANTED[verb]]
    problems = [f"{item.change.path}: {note(item.note)}" for item in missed if item.note]
    return Done(len(done), tuple(problems))


def act_on_all(review: Review, verb: str, path: str) -> Done:
    """On all that waits in a project."""
    project = review.manager.find_project(path)
    if project is None:
        return Done(0)
    does = review.apply_all if verb == "apply" else review.discard_all
    items = [item for report in does(project) for item in report.changes]
    problems = [f"{item.change.path}: {note(item.note)}" for item in items if item.note]
    return Done(len(items) - len(problems), tuple(problems))


def act_on_hunks(
    manager: ProjectManager, verb: str, shown: Shown, run: RunData, group: HunkGroup
) -> Done:
    """Do something with hunks that are shown together."""
    row = manager.run(run.id)
    does = {
        "undo": undo_hunks,
        "redo": redo_hunks,
        "apply": apply_hunks,
        "discard": discard_hunks,
    }[verb]
    found = text_versions(manager, row, shown.recorded)
    if found is None or not set(group.hunks) <= set(found.hunks):
        text = _("{path} has changed in the meantime.").format(path=shown.recorded.change.path)
        return Done(0, (text,))
    report = does(manager, row, shown.recorded, group.hunks)
    return Done(1, tuple(note(item.note) for item in report.changes if item.note))


def look(manager: ProjectManager, run: RunData, number: int) -> Shown | None:
    """The change as it stands now; None if it is not known any more."""
    row = next(iter(manager.known_runs([run.id])), None)
    if row is None:
        return None  # removed since, as it was old
    recorded = next((i for i in runs.read_changes(manager, row) if i.number == number), None)
    if recorded is None:
        return None
    versions = Versions(manager)
    before, after = versions.before(row, recorded), versions.after(row, recorded)
    old = before.read(_LARGEST) if before.seen else None
    new = after.read(_LARGEST) if after.seen else None
    return Shown(recorded, before, after, old, new, current_hunk_states(manager, row, recorded))
