# SPDX-License-Identifier: GPL-3.0-or-later
"""Acts on changes, off the main thread: on runs, files, and hunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...i18n import _
from ...project.changes.change import Recorded, Report, State
from ...project.database import runs
from ...project.manager import ProjectManager
from ...project.review.hunks import (
    apply_hunks,
    discard_hunks,
    redo_hunks,
    undo_hunks,
)
from ...project.review.review import Review
from ...project.review.state import current_changes, current_hunk_states, text_versions
from ...project.review.versions import Version, Versions
from ...text.diff import Hunk, HunkGroup, HunkState, decode_text
from .model import RunData
from .text import note_text

_WANTED = {
    "apply": State.APPLIED,
    "take": State.APPLIED,
    "both": State.APPLIED,
    "redo": State.APPLIED,
    "discard": State.DISCARDED,
    "keep": State.DISCARDED,
    "undo": State.UNDONE,
    "undo-later": State.UNDONE,
}


@dataclass(frozen=True)
class ActionResult:
    count: int
    # Why something was not done, one sentence for each change.
    problems: tuple[str, ...] = ()
    # What later runs did to files that could not be undone because of that.
    later: tuple[Report, ...] = ()


@dataclass(frozen=True)
class ShownChange:
    """Both versions of a file, as far as they can be shown."""

    recorded: Recorded
    before: Version
    after: Version
    # None if the file does not exist.
    old_data: bytes | None
    new_data: bytes | None
    # Of an applied change to a file that has changed since.
    states: dict[Hunk, HunkState] = field(default_factory=dict)

    def hunk_states(self, group: HunkGroup) -> set[HunkState]:
        """Return what became of the hunks; nothing if the file is as the run left it."""
        return {self.states[hunk] for hunk in group.hunks if hunk in self.states}

    @property
    def content(self) -> tuple[object, ...]:
        """Return everything that the page shows, to compare it."""
        notes = self.before.note, self.after.note
        return self.recorded, notes, self.old_data, self.new_data, self.states

    @property
    def texts(self) -> tuple[str, str] | None:
        """Return both versions as text, if both are."""
        old, new = decode_text(self.old_data or b""), decode_text(self.new_data or b"")
        return None if old is None or new is None else (old, new)


_LARGEST = 8 << 20


def act_on_run(review: Review, verb: str, run_id: str, paths: Sequence[str] = ()) -> ActionResult:
    """Act on the files with these absolute paths, or on all files of the run."""
    row = review.manager.run(run_id)
    does: dict[str, Callable[[], Report]] = {
        "apply": lambda: review.apply(row, paths, only_pending=True),
        "take": lambda: review.apply(row, paths),
        "both": lambda: review.keep_both(row, paths),
        "redo": lambda: review.apply(row, paths),
        "discard": lambda: review.discard(row, paths),
        "keep": lambda: review.discard(row, paths),
        "undo": lambda: review.undo(row, paths),
        "undo-later": lambda: review.undo(row, paths, with_later=True),
    }
    report = does[verb]()
    done = [item for item in report.changes if item.state is _WANTED[verb]]
    missed = [item for item in report.changes if item.state is not _WANTED[verb]]
    problems = [f"{item.change.path}: {note_text(item.note)}" for item in missed if item.note]
    later = review.later_changes(row, missed) if verb == "undo" else []
    reports = tuple(Report(other.id, tuple(items)) for other, items in later)
    return ActionResult(len(done), tuple(problems), reports)


def also_affected(
    review: Review, verb: str, run_id: str, paths: Sequence[str] = ()
) -> tuple[list[Report], list[Report]]:
    """Return the changes of other runs that `act_on_run` would apply, too, and those that it would
    discard."""
    row = review.manager.run(run_id)
    if verb in ("apply", "take", "redo"):
        also = review.also_applied(row, paths, only_pending=verb == "apply")
        return also, review.dropped_for(row, paths)
    return [], review.also_discarded(row, paths) if verb in ("discard", "keep") else []


def act_on_all(review: Review, verb: str, path: str) -> ActionResult:
    """Act on everything pending in a project."""
    project = review.manager.find_project(path)
    if project is None:
        return ActionResult(0)
    does = review.apply_all if verb == "apply" else review.discard_all
    items = [item for report in does(project) for item in report.changes]
    problems = [f"{item.change.path}: {note_text(item.note)}" for item in items if item.note]
    return ActionResult(len(items) - len(problems), tuple(problems))


def act_on_hunks(
    manager: ProjectManager, verb: str, shown: ShownChange, run: RunData, group: HunkGroup
) -> ActionResult:
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
        return ActionResult(0, (text,))
    report = does(manager, row, shown.recorded, group.hunks)
    return ActionResult(1, tuple(note_text(item.note) for item in report.changes if item.note))


def look(manager: ProjectManager, run: RunData, number: int) -> ShownChange | None:
    """Return the current state of the change; None if it is no longer recorded."""
    row = next(iter(manager.known_runs([run.id])), None)
    if row is None:
        return None  # removed because of its age
    found = [i for i in runs.read_changes(manager, row) if i.number == number]
    if not found:
        return None
    [recorded] = current_changes(manager, row, found)
    versions = Versions(manager)
    before, after = versions.before(row, recorded), versions.after(row, recorded)
    if recorded.state is State.CONFLICT:
        # The user chooses between these two.
        before = versions.on_disk(recorded)
    old = before.read(_LARGEST) if before.seen else None
    new = after.read(_LARGEST) if after.seen else None
    return ShownChange(
        recorded, before, after, old, new, current_hunk_states(manager, row, recorded)
    )
