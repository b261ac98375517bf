# SPDX-License-Identifier: GPL-3.0-or-later
"""Undoes, redoes, applies or discards single hunks of a change to a text file.

A hunk lies between two versions of the file, and merging it is merging the change from one to the
other. It belongs to its run, and which hunks are in the project is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from ... import N_
from ...errors import OllmSandboxError
from ...text.diff import Hunk, HunkState, with_hunks
from ...text.merge import merge_change
from ..apply.journal import project_lock
from ..apply.patch import add_to_rest, trim
from ..changes.change import PENDING_STATES, Recorded, Report, State
from ..database import runs
from ..database.models import Run
from ..manager import ProjectManager
from ..pending.chain import Chain
from ..pending.squash import unsquash
from .review import Review
from .state import TextVersions, current_hunk_states, encode_lines, text_versions
from .versions import Versions


def undo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Take hunks of a change back that are in the project. Other changes to the file stay."""
    states = (State.APPLIED, State.DISCARDED, *PENDING_STATES)
    found = _versions_with(manager, run, item, chosen, states)
    there = _states_of(manager, run, item, chosen)
    if item.state is not State.APPLIED and not there <= {HunkState.PRESENT}:
        raise _changed(item)
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    return _merge(manager, run, item, found.new, part, is_undo=True)


def redo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Make hunks of a change again that were undone, or discarded."""
    states = (State.APPLIED, State.UNDONE, State.DISCARDED)
    found = _versions_with(manager, run, item, chosen, states)
    part = with_hunks(found.old, chosen)
    report = _merge(manager, run, item, found.old, part)
    versions = manager.paths.versions / run.id
    add_to_rest(item, encode_lines(found.old), encode_lines(part), versions)
    return report


def apply_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Apply hunks of a pending change; the rest of it stays pending."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    if HunkState.CHANGED in _states_of(manager, run, item, chosen):
        raise _changed(item)
    report = _merge(manager, run, item, found.old, with_hunks(found.old, chosen))
    with project_lock(manager.paths, run.project.path):
        # If they were discarded, the next command sees them again.
        _merge_rests(manager, run, item, found.old, with_hunks(found.old, chosen))
    return _settle(manager, run, item) or report


def _settle(manager: ProjectManager, run: Run, item: Recorded) -> Report | None:
    """Record a pending change as applied if nothing of it is left to decide: each hunk is in the
    project or discarded. Otherwise return None."""
    states = set(current_hunk_states(manager, run, item).values())
    if item.change.mode == item.change.old_mode:
        states.discard(HunkState.DISCARDED)
    if states != {HunkState.PRESENT}:
        return None
    with closing(Review(manager.paths)) as review:
        return review.apply(review.manager.run(run.id), [_full(item)], alone=True)


def _merge(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    old: Sequence[str],
    new: Sequence[str],
    *,
    is_undo: bool = False,
) -> Report:
    """Merge the change from one version to another into the file as it is now."""
    with closing(Review(manager.paths)) as review, review.locked(run):
        [now] = [row for row in runs.read_changes(manager, run) if row.number == item.number]
        if now.state is not item.state:
            raise _changed(item)
        done = review.merge_hunks(run, now, encode_lines(old), encode_lines(new))
        if done.note is not None:
            raise _changed(item)
        # What is in the project decides whether the change is undone.
        if done.state not in PENDING_STATES:
            states = set(current_hunk_states(manager, run, done).values())
            is_discarded = done.state is State.DISCARDED
            if states == {HunkState.UNDONE}:
                done = done._replace(state=State.DISCARDED if is_discarded else State.UNDONE)
            elif HunkState.PRESENT in states or not is_discarded or not is_undo:
                done = done._replace(state=State.APPLIED)
            runs.write_changes(manager, run.id, [done])
        return Report(run.id, (done,))


def discard_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Discard hunks of a pending change: the next command no longer sees them. With all of its
    hunks, the change itself is discarded."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    change = item.change
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    with closing(Review(manager.paths)) as review, review.locked(run):
        rests = _merge_rests(manager, run, item, found.new, part)
        if not rests or rests[0] is None:
            raise _changed(item)
        if None in rests:
            raise OllmSandboxError(
                N_("A later command changed the same lines of {file}."),
                N_("Discard its change first."),
                file=_full(item),
            )
    if rests[0] != encode_lines(found.old) or change.mode != change.old_mode:
        return _settle(manager, run, item) or Report(run.id, (item,))
    with closing(Review(manager.paths)) as review:
        return review.discard(review.manager.run(run.id), [_full(item)], alone=True)


def _merge_rests(
    manager: ProjectManager, run: Run, item: Recorded, old: Sequence[str], new: Sequence[str]
) -> list[bytes | None]:
    """Merge hunks of a change, or their inverse, into what is pending of it and of later changes to
    the file, and write that unless there is a conflict.

    Return the merged content of each, None for a conflict; nothing if it is not pending.
    """
    rests = []
    for run_id, row in _with_later(manager, run, item):
        version = Versions(manager).pending(run.project.path, run_id, row)
        now = version.content
        if version.seen is None or now is None:
            break
        then = merge_change(encode_lines(old), encode_lines(new), now, has_hunks=True)
        rests.append((run_id, row, version.seen.layer, now, then))
    if all(then is not None for *_, then in rests):
        # The change itself last: until then, the user sees the hunks as they were.
        for run_id, row, layer, now, then in reversed(rests):
            if then is not None and then != now:
                unsquash(manager.paths, run.project.path, run_id)
                trim(layer, row, then, manager.paths.versions / run_id)
    return [then for *_, then in rests]


def _with_later(manager: ProjectManager, run: Run, item: Recorded) -> list[tuple[str, Recorded]]:
    """Return a pending change, and the edits of the file by later commands that saw it."""
    chain = Chain(manager.paths, run.project.path).runs
    later = chain[chain.index(run.id) + 1 :] if run.id in chain else []
    found = [(run.id, item)]
    for run_id, row in runs.changes_of_runs(manager, later):
        if (row.change.root, row.change.path) == (item.change.root, item.change.path):
            if not row.change.is_edit or run.id in row.apart_from:
                break
            found.append((run_id, row))
    return found


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
    """Return what became of these hunks; nothing if the file is as the run left it."""
    states = current_hunk_states(manager, run, item)
    return {states[hunk] for hunk in chosen if hunk in states}


def _changed(item: Recorded) -> OllmSandboxError:
    return OllmSandboxError(
        N_("This part of {file} has changed in the meantime."),
        N_("Look at it again, then try again."),
        file=_full(item),
    )


def _full(item: Recorded) -> str:
    return f"{item.change.root}/{item.change.path}"
