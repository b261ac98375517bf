# SPDX-License-Identifier: GPL-3.0-or-later
"""Undoes, redoes, applies or discards single hunks of a change to a text file.

Each of these is a run of its own with one change, and can be undone like any other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError
from ...paths import make_folder
from ...text.diff import (
    LARGEST,
    Hunk,
    HunkState,
    apply_to_later,
    find_hunks,
    hunk_states,
    split_lines,
    with_hunks,
)
from ..changes.change import PENDING_STATES, Kind, Mode, Recorded, Report, State, Type
from ..changes.view import find_in_layers, layers_of, read_seen
from ..database import runs
from ..database.models import Run
from ..manager import ProjectManager
from .review import Review
from .versions import Versions
from .write_file import write_file


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
    """Return what became of each hunk of an applied change; nothing if the file is as the run left
    it, or has no hunks."""
    change = item.change
    if item.state is not State.APPLIED or (change.kind, change.type) != (Kind.MODIFIED, Type.FILE):
        return {}
    try:
        present = _present(item)
    except OSError:
        return {}  # an attempt to undo it reports the error
    after = Versions(manager).after(run, item)
    lines = None if present is None or after.read() == present else decode_lines(present)
    found = None if lines is None else text_versions(manager, run, item)
    if lines is None or found is None:
        return {}
    states = hunk_states(lines, found.old, found.new, found.hunks)
    return dict(zip(found.hunks, states, strict=True))


def undo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Take hunks of an applied change back. Later changes to other lines stay."""
    found = _versions_with(manager, run, item, chosen, (State.APPLIED,))
    command = f"Undid {_count(chosen, found)} in {_shown(run, item)}"
    inverse = [hunk.inverse for hunk in chosen]
    return _rewrite(manager, run, item, found.new, inverse, command)


def redo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Make hunks of an applied change again that were undone."""
    found = _versions_with(manager, run, item, chosen, (State.APPLIED,))
    command = f"Redid {_count(chosen, found)} in {_shown(run, item)}"
    return _rewrite(manager, run, item, found.old, chosen, command)


def _rewrite(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    base: Sequence[str],
    hunks: Sequence[Hunk],
    command: str,
) -> Report:
    """Apply hunks that were made for `base` to the file as it is now."""
    full = _full(item)
    if item.change.path in runs.waiting(manager, run.project, item.change.root):
        raise OllmSandboxError(
            N_("{file} has pending changes."),
            N_("Apply or discard them first, then try again."),
            file=full,
        )
    present = _present(item)
    result = None if present is None else decode_lines(present)
    # From the end, so that the lines before keep their places.
    for hunk in sorted(hunks, key=lambda hunk: -hunk.old_start):
        result = None if result is None else apply_to_later(result, base, hunk)
    if result is None:
        raise _changed(full)
    return write_file(
        manager.paths,
        run.project.path,
        full,
        encode_lines(result),
        command=command,
        based_on=present,
        session_id=run.session_id,
        call_id=run.call_id,
        agreed=True,
    )


def _present(item: Recorded) -> bytes | None:
    seen = find_in_layers([item.change.root], item.change.path)
    return read_seen(seen) if seen is not None and seen.is_file else None


def apply_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Apply hunks of a pending change; the rest of it stays pending."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    return write_file(
        manager.paths,
        run.project.path,
        _full(item),
        encode_lines(with_hunks(found.old, chosen)),
        command=f"Applied {_count(chosen, found)} in {_shown(run, item)}",
        based_on=encode_lines(found.old),
        session_id=run.session_id,
        call_id=run.call_id,
        agreed=True,
        past_pending=True,
    )


def discard_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Discard hunks of a pending change; the rest of it stays pending. With all of its hunks, the
    change itself is discarded."""
    found = _versions_with(manager, run, item, chosen, PENDING_STATES)
    if set(chosen) == set(found.hunks) and item.change.mode == item.change.old_mode:
        review = Review(manager.paths)
        try:
            return review.discard(review.manager.run(run.id), [_full(item)])
        finally:
            review.close()
    report = write_file(
        manager.paths,
        run.project.path,
        _full(item),
        encode_lines(with_hunks(found.new, [hunk.inverse for hunk in chosen])),
        command=f"Discarded {_count(chosen, found)} in {_shown(run, item)}",
        how=Mode.REVIEW,
        based_on=encode_lines(found.new),
        session_id=run.session_id,
        call_id=run.call_id,
    )
    return _leave_rest(manager, run, item.number, report, encode_lines(found.new))


def _leave_rest(
    manager: ProjectManager, run: Run, number: int, report: Report, whole: bytes
) -> Report:
    """Record the rest as that run's pending change, and the new run as discarded: it keeps the file
    with those hunks, which can still be applied."""
    folder = make_folder(manager.paths.versions / report.run_id)
    left = []
    for item in report.changes:
        kept = folder / f"new-{item.number}"
        # A link that is there would lead elsewhere, and one that is closed cannot be written to.
        kept.unlink(missing_ok=True)
        kept.write_bytes(whole)
        rest = find_in_layers(
            layers_of(manager.paths, run.project.path, item.change.root), item.change.path
        )
        if rest is not None:
            if os.getuid() == 0:
                os.chown(kept, rest.found.st_uid, rest.found.st_gid)
            kept.chmod(rest.found.st_mode & 0o1777)
        with manager.store.transaction() as connection:
            done = connection.execute(
                "UPDATE change SET state = ? WHERE run_id = ? AND number = ? AND state = ?"
                # Unless it was settled in the meantime.
                " AND EXISTS (SELECT 1 FROM change AS its WHERE its.run_id = ? AND its.root ="
                " change.root AND its.path = change.path"
                " AND its.state IN ('pending', 'conflict', 'failed'))",
                (
                    *(State.DISCARDED.value, report.run_id, item.number),
                    *(State.PENDING.value, run.id),
                ),
            ).rowcount
        if done:
            # The rest lies on top of the whole, which was kept because the rest covers it.
            covered = manager.paths.versions / run.id / f"new-{number}"
            covered.unlink(missing_ok=True)
        left.append(item._replace(state=State.DISCARDED) if done else item)
    return report._replace(changes=tuple(left))


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


def _count(chosen: Sequence[Hunk], found: TextVersions) -> str:
    total = len(found.hunks)
    return f"{len(chosen)} of {total} {'hunk' if total == 1 else 'hunks'}"


def _full(item: Recorded) -> str:
    return f"{item.change.root}/{item.change.path}"


def _shown(run: Run, item: Recorded) -> str:
    full = _full(item)
    project = run.project.path
    return os.path.relpath(full, project) if item.change.root == project else full
