# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies, discards, undoes and redoes single hunks of a change: a merge of these hunks alone.

Other edits of the file, by the user or by other runs, stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from .. import N_
from ..database.tables import Run
from ..errors import OllmSandboxError
from ..files.copying import write_like
from ..files.dirfd import DirEntryAt, opened_folder
from ..text.diff import Hunk, HunkState, with_hunks
from ..text.merge import merge_change
from .change import PENDING_STATES, Recorded, Report, State
from .index import read_changes
from .layer import PendingLayer
from .projects import ProjectManager
from .review import Review, full_path
from .run import RunFolder, read_small
from .state import TextVersions, current_hunk_states, encode_lines, text_versions


def undo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    states = (State.APPLIED, State.DISCARDED, *PENDING_STATES)
    found = _versions_with(manager, run, item, chosen, states)
    there = _states_of(manager, run, item, chosen)
    if item.state is not State.APPLIED and not there <= {HunkState.PRESENT}:
        raise _changed(item)
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    return _merge(manager, run, item, found.new, part)


def redo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Apply hunks of a change again that were undone or discarded."""
    states = (State.APPLIED, State.UNDONE, State.DISCARDED)
    found = _versions_with(manager, run, item, chosen, states)
    part = with_hunks(found.old, chosen)
    # If they were discarded, they belong to the change again.
    _change_rest(manager, run, item, found.old, part)
    return _merge(manager, run, item, found.old, part)


def apply_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Apply hunks of a pending change; the rest of it stays pending."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    if HunkState.CHANGED in _states_of(manager, run, item, chosen):
        raise _changed(item)
    part = with_hunks(found.old, chosen)
    # If they were discarded, the next command sees them again.
    _change_rest(manager, run, item, found.old, part)
    report = _merge(manager, run, item, found.old, part)
    return _settle(manager, run, item) or report


def discard_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Discard hunks of a pending change: the next command no longer sees them. With all of its
    hunks, the change itself is discarded."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    rest = _change_rest(manager, run, item, found.new, part)
    if rest is None:
        raise _changed(item)
    if rest != encode_lines(found.old) or item.change.mode != item.change.old_mode:
        return _settle(manager, run, item) or Report(run.id, (item,))
    with closing(Review(manager.paths)) as review:
        return review.discard(review.manager.run(run.id), [full_path(item)])


def _settle(manager: ProjectManager, run: Run, item: Recorded) -> Report | None:
    """Record a pending change as applied if nothing of it is left to decide: each hunk is in the
    project or discarded. Otherwise return None."""
    item = read_changes(manager, run)[item.number]
    states = set(current_hunk_states(manager, run, item).values())
    if item.change.mode == item.change.old_mode:
        states.discard(HunkState.DISCARDED)
    if states != {HunkState.PRESENT}:
        return None
    with closing(Review(manager.paths)) as review:
        return review.apply(review.manager.run(run.id), [full_path(item)])


def _merge(
    manager: ProjectManager, run: Run, item: Recorded, old: Sequence[str], new: Sequence[str]
) -> Report:
    """Merge the change from one version to another into the file as it is now."""
    with closing(Review(manager.paths)) as review:
        report = review.merge_part(run, item, encode_lines(old), encode_lines(new))
    if report is None:
        raise _changed(item)
    return report


def _change_rest(
    manager: ProjectManager, run: Run, item: Recorded, old: Sequence[str], new: Sequence[str]
) -> bytes | None:
    """Merge hunks, or their inverse, into what applying the change puts into the project. Return
    that; None if it is a conflict."""
    with closing(Review(manager.paths)) as review, review.locked(run.project.path) as jobs:
        folder = RunFolder(manager.paths, run.id)
        with opened_folder(folder.path / "result") as results:
            version = DirEntryAt(results, folder.result(item.number).name)
            now, found = read_small(version), version.lstat()
            if now is None or found is None:
                return None
            rest = merge_change(encode_lines(old), encode_lines(new), now, has_hunks=True)
            if rest is not None and rest != now:
                # First, so that no command sees the old one after that.
                jobs.bump_generation()
                PendingLayer(manager.paths, run.project.path).release()
                write_like(version, DirEntryAt(results, f"{item.number}.rest"), rest, found.st_mode)
            return rest


def _versions_with(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    chosen: Sequence[Hunk],
    states: tuple[State, ...],
) -> TextVersions:
    """Return both versions, or raise OllmSandboxError if they no longer have the hunks that the
    user saw."""
    found = text_versions(manager, run, item) if item.state in states else None
    if found is None or not chosen or not set(chosen) <= set(found.hunks):
        raise _changed(item)
    return found


def _states_of(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> set[HunkState]:
    """Return the states of these hunks; nothing if the file is as the run left it."""
    states = current_hunk_states(manager, run, item)
    return {states[hunk] for hunk in chosen if hunk in states}


def _changed(item: Recorded) -> OllmSandboxError:
    return OllmSandboxError(
        N_("This part of {file} has changed in the meantime."),
        N_("Look at it again, then try again."),
        file=full_path(item),
    )
