# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a change to a text: taken back, applied by itself, or discarded. Each is a run of its
own with one change, and can be undone as such."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ... import N_
from ...errors import OllmSandboxError
from ...paths import make_folder
from ...text.diff import (
    Hunk,
    Standing,
    data_of,
    hunks,
    put_back,
    standings,
    taken_back,
    text_of,
    with_hunks,
    without_hunks,
)
from ..changes.change import Kind, Mode, Recorded, Report, State, Type
from ..changes.view import find_in_layers, layers_of, read_seen
from ..database import runs
from ..database.models import Run
from ..manager import ProjectManager
from .review import Review
from .versions import Versions
from .write_file import write_file

_WAITS = (State.PENDING, State.CONFLICT, State.FAILED)


@dataclass(frozen=True)
class Texts:
    """Both versions of a file, and what is different."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]


def texts(manager: ProjectManager, run: Run, item: Recorded) -> Texts | None:
    """None where there are no parts: it is no text, not kept, or not there before or after."""
    change = item.change
    if change.kind is not Kind.MODIFIED or change.type is not Type.FILE:
        return None
    versions = Versions(manager)
    before, after = versions.before(run, item), versions.after(run, item)
    if before.type is not Type.FILE or after.type is not Type.FILE:
        return None
    old, new = text_of(before.read()), text_of(after.read())
    if old is None or new is None:
        return None
    return Texts(old, new, hunks(old, new))


def parts_since(manager: ProjectManager, run: Run, item: Recorded) -> dict[Hunk, Standing]:
    """What became of each part of a change that is applied; nothing if the file is as it was left,
    or has no parts."""
    change = item.change
    if item.state is not State.APPLIED or (change.kind, change.type) != (Kind.MODIFIED, Type.FILE):
        return {}
    try:
        present = _present(item)
    except OSError:
        return {}  # nothing can be done with it, and whoever tries is told why
    after = Versions(manager).after(run, item)
    text = None if present is None or after.read() == present else text_of(present)
    found = None if text is None else texts(manager, run, item)
    if text is None or found is None:
        return {}
    stand = standings(text, found.old, found.new, found.hunks)
    return dict(zip(found.hunks, stand, strict=True))


def undo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Of a change that is applied. Later changes to other lines stay."""
    found = _texts_with(manager, run, item, chosen, (State.APPLIED,))
    command = f"Undo of a part of {_shown(run, item)}"
    return _rewrite(
        manager, run, item, chosen, lambda text, hunk: taken_back(text, found.new, hunk), command
    )


def redo_hunks(manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]) -> Report:
    """Of a change that is applied, and of which these parts were taken back."""
    found = _texts_with(manager, run, item, chosen, (State.APPLIED,))
    command = f"Part of a change to {_shown(run, item)}"
    return _rewrite(
        manager, run, item, chosen, lambda text, hunk: put_back(text, found.old, hunk), command
    )


def _rewrite(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    chosen: Sequence[Hunk],
    change: Callable[[str, Hunk], str | None],
    command: str,
) -> Report:
    """Of the file as it is now."""
    full = _full(item)
    if item.change.path in runs.waiting(manager, run.project, item.change.root):
        raise OllmSandboxError(
            N_("Changes to {file} are waiting."),
            N_("Apply or discard them first, then try again."),
            file=full,
        )
    present = _present(item)
    result = None if present is None else text_of(present)
    # From the end: what comes before keeps its place.
    for hunk in sorted(chosen, key=lambda hunk: -hunk.new_start):
        result = None if result is None else change(result, hunk)
    if result is None:
        raise _changed(full)
    return write_file(
        manager.paths,
        run.project.path,
        full,
        data_of(result),
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
    """Of a change that waits; the rest of it waits on."""
    found = _texts_with(manager, run, item, chosen, _WAITS)
    return write_file(
        manager.paths,
        run.project.path,
        _full(item),
        data_of(with_hunks(found.old, chosen)),
        command=f"Part of a change to {_shown(run, item)}",
        based_on=data_of(found.old),
        session_id=run.session_id,
        call_id=run.call_id,
        agreed=True,
        past_pending=True,
    )


def discard_hunks(
    manager: ProjectManager, run: Run, item: Recorded, chosen: Sequence[Hunk]
) -> Report:
    """Of a change that waits; the rest of it waits on. With the last part all is discarded."""
    found = _texts_with(manager, run, item, chosen, _WAITS)
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
        data_of(without_hunks(found.new, chosen)),
        command=f"A part of a change to {_shown(run, item)} was discarded",
        how=Mode.REVIEW,
        based_on=data_of(found.new),
        session_id=run.session_id,
        call_id=run.call_id,
    )
    return _leave_rest(manager, run, item.number, report, data_of(found.new))


def _leave_rest(
    manager: ProjectManager, run: Run, number: int, report: Report, whole: bytes
) -> Report:
    """What waits now is the rest of that run's change, and not another one. The new run is what was
    discarded: the file as it was with that part, which can still be applied."""
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
                # Unless somebody settled it in the meantime.
                " AND EXISTS (SELECT 1 FROM change AS its WHERE its.run_id = ? AND its.root ="
                " change.root AND its.path = change.path"
                " AND its.state IN ('pending', 'conflict', 'failed'))",
                (
                    *(State.DISCARDED.value, report.run_id, item.number),
                    *(State.PENDING.value, run.id),
                ),
            ).rowcount
        if done:
            # The rest is on top of the whole, which was kept as what is covered is.
            covered = manager.paths.versions / run.id / f"new-{number}"
            covered.unlink(missing_ok=True)
        left.append(item._replace(state=State.DISCARDED) if done else item)
    return replace(report, changes=tuple(left))


def _texts_with(
    manager: ProjectManager,
    run: Run,
    item: Recorded,
    chosen: Sequence[Hunk],
    states: tuple[State, ...],
) -> Texts:
    """As they are now, and as they were when the person saw them."""
    found = texts(manager, run, item) if item.state in states else None
    if found is None or not chosen or not set(chosen) <= set(found.hunks):
        raise _changed(_full(item))
    return found


def _changed(full: str) -> OllmSandboxError:
    return OllmSandboxError(
        N_("This part of {file} was changed in the meantime."),
        N_("Look at it again, then try again."),
        file=full,
    )


def _full(item: Recorded) -> str:
    return f"{item.change.root}/{item.change.path}"


def _shown(run: Run, item: Recorded) -> str:
    full = _full(item)
    project = run.project.path
    return os.path.relpath(full, project) if item.change.root == project else full
