# SPDX-License-Identifier: GPL-3.0-or-later
"""Undoes, redoes, applies or discards single hunks of a change to a text file.

A hunk lies between two versions of the file, and merging it is merging the change from one to the
other. It belongs to its run, and which hunks are in the project is read from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError
from ...text.diff import (
    LARGEST,
    Hunk,
    HunkState,
    find_hunks,
    hunk_states,
    split_lines,
    with_hunks,
)
from ...text.merge import merge_change
from ..apply.journal import project_lock
from ..apply.patch import add_to_rest, trim
from ..changes.change import PENDING_STATES, Kind, Recorded, Report, State, Type
from ..changes.view import find_in_layers, layers_of, read_seen
from ..database import runs
from ..database.models import Run
from ..manager import ProjectManager
from .review import Review
from .versions import Versions


@dataclass(frozen=True)
class TextVersions:
    """The lines of both versions of a file, and the differences."""

    old: list[str]
    new: list[str]
    hunks: tuple[Hunk, ...]


def decode_lines(data: bytes) -> list[str] | None:
    """Return the lines, from which `encode_lines` makes the same bytes again; None if it is not
    text, or too large to compare."""
    if len(data) > LARGEST or b"\0" in data:
        return None
    return split_lines(data.decode("utf-8", "surrogateescape"))


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode("utf-8", "surrogateescape")


def text_versions(manager: ProjectManager, run: Run, item: Recorded) -> TextVersions | None:
    """Return both versions; None if one is not text, was not kept, or does not exist."""
    change = item.change
    if change.kind is not Kind.MODIFIED or change.type is not Type.FILE:
        return None
    versions = Versions(manager)
    before, after = versions.before(run, item), versions.after(run, item)
    if before.type is not Type.FILE or after.type is not Type.FILE:
        return None
    old, new = decode_lines(before.read()), decode_lines(after.read())
    if old is None or new is None:
        return None
    return TextVersions(old, new, find_hunks(old, new))


def current_hunk_states(manager: ProjectManager, run: Run, item: Recorded) -> dict[Hunk, HunkState]:
    """Return what became of each hunk of a change in the project; nothing if the file is as the run
    left it, or has no hunks."""
    if not item.change.is_edit:
        return {}
    try:
        present = _present(item)
    except OSError:
        return {}  # an attempt to undo it reports the error
    is_pending = item.state in PENDING_STATES
    after = Versions(manager).after(run, item)
    is_whole = not is_pending and after.read() == present
    lines = None if present is None or is_whole else decode_lines(present)
    found = None if lines is None else text_versions(manager, run, item)
    if lines is None or found is None:
        return {}
    states = dict(
        zip(found.hunks, hunk_states(lines, found.old, found.new, found.hunks), strict=True)
    )
    if is_pending:
        states.update(_discarded(manager, run, item, found, states))
    return states


def _discarded(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    found: TextVersions,
    states: Mapping[Hunk, HunkState],
) -> dict[Hunk, HunkState]:
    """Return the hunks that are neither in the project nor pending."""
    layers = _pending_layer(manager, run, item)
    seen = find_in_layers(layers, item.change.path) if layers else None
    rest = decode_lines(read_seen(seen)) if seen is not None and seen.is_file else None
    if rest is None:
        return {}
    waiting = hunk_states(rest, found.old, found.new, found.hunks)
    return {
        hunk: HunkState.DISCARDED
        for hunk, state in zip(found.hunks, waiting, strict=True)
        if state is HunkState.UNDONE and states[hunk] is HunkState.UNDONE
    }


def _pending_layer(manager: ProjectManager, run: Run, item: Recorded) -> list[str]:
    """Return the layer that the next command sees the change in; nothing if there is none."""
    *above, _disk = layers_of(manager.paths, run.project.path, item.change.root)
    return above


def undo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Take hunks of a change back that are in the project. Other changes to the file stay."""
    states = (State.APPLIED, State.DISCARDED, *PENDING_STATES)
    found = _versions_with(manager, run, item, chosen, states)
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    return _merge(manager, run, item, found.new, part)


def redo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Make hunks of a change again that were undone, or discarded."""
    states = (State.APPLIED, State.UNDONE, State.DISCARDED)
    found = _versions_with(manager, run, item, chosen, states)
    part = with_hunks(found.old, chosen)
    report = _merge(manager, run, item, found.old, part)
    versions = manager.paths.versions / run.id
    add_to_rest(item, encode_lines(found.old), encode_lines(part), versions)
    return report


def _present(item: Recorded) -> bytes | None:
    seen = find_in_layers([item.change.root], item.change.path)
    return read_seen(seen) if seen is not None and seen.is_file else None


def apply_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Apply hunks of a pending change; the rest of it stays pending."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    report = _merge(manager, run, item, found.old, with_hunks(found.old, chosen))
    with project_lock(manager.paths, run.project.path):
        # If they were discarded, the next command sees them again.
        _change_rest(manager, run, item, found.old, with_hunks(found.old, chosen))
    return _settle(manager, run, item) or report


def _settle(manager: ProjectManager, run: Run, item: Recorded) -> Report | None:
    """Record a pending change as applied if nothing of it is left to decide: each hunk is in the
    project or discarded. Otherwise return None."""
    states = set(current_hunk_states(manager, run, item).values())
    if item.change.mode == item.change.old_mode:
        states.discard(HunkState.DISCARDED)
    if states != {HunkState.PRESENT}:
        return None
    review = Review(manager.paths)
    try:
        return review.apply(review.manager.run(run.id), [_full(item)])
    finally:
        review.close()


def _merge(
    manager: ProjectManager, run: Run, item: Recorded, old: Sequence[str], new: Sequence[str]
) -> Report:
    """Merge the change from one version to another into the file as it is now."""
    review = Review(manager.paths)
    try:
        with project_lock(manager.paths, run.project.path):
            [now] = [row for row in runs.read_changes(manager, run) if row.number == item.number]
            if now.state is not item.state:
                raise _changed(_full(item))
            done = review.merge_hunks(run, now, encode_lines(old), encode_lines(new))
            if done.note is not None:
                raise _changed(_full(item))
            # What is in the project decides whether the change is undone.
            if done.state not in PENDING_STATES:
                states = set(current_hunk_states(manager, run, done).values())
                if states != {HunkState.UNDONE}:
                    done = done._replace(state=State.APPLIED)
                elif done.state is State.APPLIED:
                    done = done._replace(state=State.UNDONE)
                runs.write_changes(manager, run.id, [done])
            return Report(run.id, (done,))
    finally:
        review.close()


def discard_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Discard hunks of a pending change: the next command no longer sees them. With all of its
    hunks, the change itself is discarded."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    change = item.change
    part = with_hunks(found.new, [hunk.inverse for hunk in chosen])
    with project_lock(manager.paths, run.project.path):
        rest = _change_rest(manager, run, item, found.new, part)
        if rest is None:
            raise _changed(_full(item))
    if rest != encode_lines(found.old) or change.mode != change.old_mode:
        return _settle(manager, run, item) or Report(run.id, (item,))
    review = Review(manager.paths)
    try:
        return review.discard(review.manager.run(run.id), [_full(item)])
    finally:
        review.close()


def _change_rest(
    manager: ProjectManager, run: Run, item: Recorded, old: Sequence[str], new: Sequence[str]
) -> bytes | None:
    """Merge hunks of the change, or their inverse, into what is pending of it, and return that;
    None if it is not pending, or if that is a conflict."""
    change = item.change
    owner = runs.waiting(manager, run.project, change.root, change.path).get(change.path)
    layers = _pending_layer(manager, run, item)
    seen = find_in_layers(layers, change.path) if layers else None
    if owner is None or owner.run_id != run.id or seen is None or not seen.is_file:
        return None
    pending = read_seen(seen)
    rest = merge_change(encode_lines(old), encode_lines(new), pending, has_hunks=True)
    if rest is not None and rest != pending:
        trim(layers[0], item, rest, manager.paths.versions / run.id)
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
        raise _changed(_full(item))
    return found


def _changed(full: str) -> OllmSandboxError:
    return OllmSandboxError(
        N_("This part of {file} has changed in the meantime."),
        N_("Look at it again, then try again."),
        file=full,
    )


def _full(item: Recorded) -> str:
    return f"{item.change.root}/{item.change.path}"
