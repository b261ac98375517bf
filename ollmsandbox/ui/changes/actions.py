# SPDX-License-Identifier: GPL-3.0-or-later
"""Acts on changes, off the main thread: on runs, files, and hunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...database.tables import Run
from ...engine.restore import changes_to_restore, runs_since, undo_runs
from ...i18n import _, localized
from ...project import index as runs
from ...project.change import Recorded, Report, State
from ...project.hunks import apply_hunks, discard_hunks, redo_hunks, undo_hunks
from ...project.projects import ProjectManager
from ...project.review import Review
from ...project.short_list import count_files, split_ignored
from ...project.state import current_changes, current_hunk_states, text_versions
from ...project.versions import Version, Versions
from ...text.diff import Hunk, HunkGroup, HunkState, decode_text
from ...text.merge import keep_both
from .model import RunData
from .text import note_text


@dataclass(frozen=True)
class ActionResult:
    count: int
    # Why something was not done, one sentence for each change.
    problems: tuple[str, ...] = ()
    # What later runs did to files that could not be undone because of that.
    later: tuple[Report, ...] = ()


class Side(Enum):
    """Which two versions of a file in conflict are compared."""

    # What the command changed, what the user changed, and what "Keep Both" adds to the latter. If
    # the version before both was not kept, the command's is compared with the user's.
    THEIRS = "theirs"
    MINE = "mine"
    MERGED = "merged"


@dataclass(frozen=True)
class Conflict:
    """A file that the user and a command changed."""

    # When the file in the project was last changed; None if it does not exist.
    edited_at: float | None
    # The version before and after, by side; nothing if one of them is no text.
    texts: dict[Side, tuple[str, str]]

    @property
    def has_base(self) -> bool:
        """Return whether the version before both changes was kept."""
        return Side.MINE in self.texts


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
    conflict: Conflict | None = None

    def hunk_states(self, group: HunkGroup) -> set[HunkState]:
        """Return what became of the hunks; nothing if the file is as the run left it."""
        return {self.states[hunk] for hunk in group.hunks if hunk in self.states}

    @property
    def content(self) -> tuple[object, ...]:
        """Return everything that the page shows, to compare it."""
        notes = self.before.note, self.after.note
        return self.recorded, notes, self.old_data, self.new_data, self.states, self.conflict

    @property
    def texts(self) -> tuple[str, str] | None:
        """Return both versions as text, if both are."""
        old, new = decode_text(self.old_data or b""), decode_text(self.new_data or b"")
        return None if old is None or new is None else (old, new)


_LARGEST = 8 << 20


def act_on_run(review: Review, verb: str, run_id: str, paths: Sequence[str] = ()) -> ActionResult:
    """Act on the files with these absolute paths, or on all files of the run."""
    row = review.manager.run(run_id)
    # Each with the state that it is to lead to.
    verbs: dict[str, tuple[State, Callable[[], Report]]] = {
        "apply": (State.APPLIED, lambda: review.apply(row, paths, only_pending=True)),
        # The page shows the version on disk as it is now.
        "take": (State.APPLIED, lambda: review.apply(row, paths, anyway=True)),
        "both": (State.APPLIED, lambda: review.keep_both(row, paths)),
        "redo": (State.APPLIED, lambda: review.apply(row, paths)),
        "discard": (State.DISCARDED, lambda: review.discard(row, paths)),
        "keep": (State.DISCARDED, lambda: review.discard(row, paths)),
        "undo": (State.UNDONE, lambda: review.undo(row, paths)),
        "undo-later": (State.UNDONE, lambda: review.undo(row, paths, with_later=True)),
    }
    wanted, act = verbs[verb]
    report = act()
    done = [item for item in report.changes if item.state is wanted]
    missed = [item for item in report.changes if item.state is not wanted]
    problems = _problems(missed)
    later = review.later_changes(row, missed) if verb == "undo" else []
    reports = tuple(Report(other.id, tuple(items)) for other, items in later)
    return ActionResult(_count(done), tuple(problems), reports)


def act_on_runs(review: Review, verb: str, run_ids: Sequence[str]) -> ActionResult:
    """Act on several runs, the oldest of which comes first: it is undone last."""
    ordered = reversed(run_ids) if verb == "undo" else run_ids
    done = [act_on_run(review, verb, run_id) for run_id in ordered]
    problems = tuple(problem for result in done for problem in result.problems)
    return ActionResult(sum(result.count for result in done), problems)


def to_restore_since(review: Review, project: str, session_id: str, since: float) -> list[Report]:
    """Return what `restore_since` would undo or discard."""
    runs = runs_since(review.manager, project, since, session_id=session_id)
    return changes_to_restore(review.manager, runs)


def restore_since(review: Review, project: str, session_id: str, since: float) -> ActionResult:
    """Take back what a session changed since then."""
    reports = undo_runs(review, runs_since(review.manager, project, since, session_id=session_id))
    items = [item for report in reports for item in report.changes]
    missed = [item for item in items if item.state not in (State.UNDONE, State.DISCARDED)]
    problems = set(_problems(missed))
    places = {(item.change.root, item.change.path): item for item in items if item not in missed}
    return ActionResult(_count([*places.values()]), tuple(sorted(problems)))


def also_affected(
    review: Review, verb: str, run_id: str, paths: Sequence[str] = ()
) -> list[Report]:
    """Return the changes of other runs that `act_on_run` would apply or discard, too."""
    row = review.manager.run(run_id)
    if verb in ("apply", "take", "redo"):
        return review.also_applied(row, paths, only_pending=verb == "apply")
    return review.also_discarded(row, paths) if verb in ("discard", "keep") else []


def act_on_all(review: Review, verb: str, path: str) -> ActionResult:
    project = review.manager.find_project(path)
    if project is None:
        return ActionResult(0)
    does = review.apply_all if verb == "apply" else review.discard_all
    reports = does(project)
    items = [item for report in reports for item in report.changes]
    problems = _problems(items)
    errors = [localized(error) for report in reports for error in report.errors]
    done = [item for item in items if not item.note]
    return ActionResult(_count(done), (*problems, *errors))


def _problems(items: Sequence[Recorded]) -> list[str]:
    return [f"{item.change.path}: {note_text(item.note)}" for item in items if item.note]


def _count(items: Sequence[Recorded]) -> int:
    """Count changes; files that git ignores only if there are no others."""
    shown, ignored = split_ignored(items)
    return len(shown) or count_files(ignored)


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
    conflict = None
    if recorded.state is State.CONFLICT:
        conflict = _conflict(versions, row, recorded)
        # The user chooses between these two.
        before = versions.on_disk(recorded)
    old = before.read(_LARGEST) if before.seen else None
    new = after.read(_LARGEST) if after.seen else None
    states = current_hunk_states(manager, row, recorded)
    return ShownChange(recorded, before, after, old, new, states, conflict)


def _conflict(versions: Versions, run: Run, item: Recorded) -> Conflict:
    there = versions.on_disk(item)
    edited_at = there.seen.found.st_mtime if there.seen else None
    base, theirs, mine = versions.three_way(run, item)
    if mine is None or mine == base or max(map(len, (base or b"", theirs, mine))) > _LARGEST:
        return Conflict(edited_at, {})
    merged = keep_both(base, theirs, mine)
    new, own = decode_text(theirs), decode_text(mine)
    both = None if merged is None else decode_text(merged)
    old = None if base is None else decode_text(base)
    if new is None or own is None or both is None:
        return Conflict(edited_at, {})
    if old is None:
        return Conflict(edited_at, {Side.THEIRS: (own, new), Side.MERGED: (own, both)})
    return Conflict(
        edited_at, {Side.THEIRS: (old, new), Side.MINE: (old, own), Side.MERGED: (own, both)}
    )
