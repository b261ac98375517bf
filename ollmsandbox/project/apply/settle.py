# SPDX-License-Identifier: GPL-3.0-or-later
"""Settles a finished run: turns what its command wrote into applied and pending changes.

The changes are found and numbered, and merged with what other runs did to the same files. Then the
journal is written, and the changes are applied or added to the chain of pending layers
(pending/chain.py), and recorded. After a kill, the next start repeats the steps after the journal.

The base of a change is the version of the file that the command saw.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, folders_above, modes_file, restore_modes
from ...paths import Paths, make_folder
from ...sandbox.overlay import Overlay, Root, clock_offset
from ...sandbox.whiteouts import is_whiteout
from ...text.diff import LARGEST
from ...text.merge import merge_change
from ..changes import outside_edits
from ..changes.change import MANY, ChangeSet, Kind, Recorded, Report, State, Type
from ..changes.mode import Mode, no_step
from ..changes.outside_edits import OutsideEdits
from ..changes.overlayfs import find_in_layers, read_seen
from ..changes.reasons import Note, Reason
from ..changes.scan import scan
from ..database import backups, runs
from ..manager import ProjectManager
from ..pending import layer as pending
from ..pending.chain import Chain, run_of
from ..pending.related import RelatedChanges, ends_folder
from ..pending.squash import squash_oldest, unsquash
from ..recovery.missing import check_roots
from .applier import Applier
from .journal import Job, Journal, Task, raise_generation
from .patch import Patch, keep_base, read_small
from .swap import Step, copy_whole, in_conflict, write_like

# Nanoseconds. If the clock was set back by less, that is taken for a measurement error.
_JITTER = 1_000_000
# Added to a larger step back, to be safe.
_SLACK = 1_000_000_000


def _find_changes(overlay: Overlay) -> dict[str, ChangeSet]:
    check_roots(overlay)
    found = {}
    for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
        # A program that was killed may have left folders readable that the command had locked.
        restore_modes(overlay.upper(name))
        found[name] = scan(overlay.upper(name), root.lowers, root.path)
    return found


def _remove_unchanged(overlay: Overlay, sets: Mapping[str, ChangeSet]) -> None:
    """Remove from the upper folders what the command touched but did not change. In a pending
    layer, it would hide later versions of the same files."""
    for (name, found), root in zip(sets.items(), overlay.roots, strict=True):
        upper = overlay.upper(name)
        pending.spell_out(upper, root.lowers)
        idle = (*found.idle, *(skipped.path for skipped in found.skipped))
        if idle:
            pending.drop(upper, idle, {change.path for change in found.changes}, whole=True)


def _number_found(overlay: Overlay, sets: Mapping[str, ChangeSet]) -> list[Recorded]:
    set_back = overlay.clock - clock_offset()
    back = set_back + _SLACK if set_back > _JITTER else 0
    began = {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}
    roots = {
        root: OutsideEdits(root, overlay.upper(name), began[root], dict(sets[name].opened))
        for name, root in overlay.overlay_map.items()
    }
    changes = [change for found in sets.values() for change in found.changes]
    return outside_edits.number_changes(changes, roots, began)


def _merge_concurrent(paths: Paths, overlay: Overlay, items: Sequence[Recorded]) -> list[Recorded]:
    """Merge changes with those of other runs that became pending while the command ran.

    A change that cannot be merged becomes a conflict.
    """
    chain = Chain(paths, overlay.project)
    merged: dict[int, Recorded] = {}
    for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
        unseen = [layer for layer in chain.layers(root.path) if layer not in root.pending]
        here = [item for item in items if item.change.root == root.path]
        if unseen and here:
            versions = make_folder(paths.versions / overlay.run_id)
            concurrent = _Concurrent(overlay.upper(name), root, unseen, versions)
            merged.update((item.number, concurrent.merge(item)) for item in here)
            concurrent.close()
    return [merged.get(item.number, item) for item in items]


class _Concurrent:
    """Merges a run's changes in one root with pending layers that the command did not see."""

    def __init__(self, upper: str, root: Root, unseen: Sequence[str], versions: Path) -> None:
        self._root = root
        self._note = Note(Reason.CONCURRENT, {"runs": " ".join(map(run_of, unseen))})
        self._upper = OpenTree(upper, modes_file(upper))
        self._unseen = [OpenTree(layer, modes_file(layer)) for layer in unseen]
        self._versions = os.open(versions, FOLDER)

    def close(self) -> None:
        for tree in (self._upper, *self._unseen):
            tree.close()
        os.close(self._versions)

    def merge(self, item: Recorded) -> Recorded:
        change, conflict = item.change, item._replace(state=State.CONFLICT, note=self._note)
        try:
            theirs = self._theirs(change.path)
        except NotADirectoryError:
            # They deleted or replaced the folder around it.
            return item if change.kind is Kind.DELETED else conflict
        found = theirs.lstat() if theirs else None
        if theirs is None or found is None:
            return item
        if change.kind is Kind.DELETED:
            if stat.S_ISDIR(found.st_mode) and change.type is Type.FOLDER:
                has_theirs = self._reveal_theirs(change.path)
                return conflict if has_theirs else item
            return item if is_whiteout(found) else conflict
        if change.type is Type.FOLDER:
            return item if stat.S_ISDIR(found.st_mode) else conflict
        is_merged = change.type is Type.FILE and self._merge_text(item, theirs)
        return item if is_merged else conflict

    def _theirs(self, path: str) -> DirEntryAt | None:
        """Return what the newest of these layers has at a path, or None."""
        for tree in self._unseen:
            try:
                spot = DirEntryAt(*tree.split(path))
            except FileNotFoundError:
                continue
            if spot.lstat() is not None:
                return spot
        return None

    def _reveal_theirs(self, folder: str) -> bool:
        """Make visible what other runs put into a folder that the command deleted: only what the
        command saw there stays deleted. Return whether they put something there."""
        is_any = False
        for tree in self._unseen:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for path in pending.files_in(tree, folder):
                    pending.reveal(self._upper.root, self._root.lowers, path)
                    is_any = True
        return is_any

    def _merge_text(self, item: Recorded, theirs: DirEntryAt) -> bool:
        """Write the merged version to the upper folder, with theirs as its base. Return whether
        both could be merged."""
        ours = DirEntryAt(*self._upper.split(item.change.path))
        found, there = ours.lstat(), theirs.lstat()
        new, other = read_small(ours), read_small(theirs)
        if found is None or there is None or new is None or other is None:
            return False
        seen = find_in_layers(self._root.lowers, item.change.path)
        if seen and seen.layer == self._root.path and seen.found.st_ctime_ns > item.began:
            return False  # somebody edited it, and this is not what the command saw
        old = read_seen(seen, LARGEST + 1) if seen is not None and seen.is_file else None
        both = other if new == other else None
        if both is None and old is not None and len(old) <= LARGEST:
            both = merge_change(old, new, other)
        if both is None:
            return False
        mode = stat.S_IMODE(found.st_mode)
        if seen is None or not seen.is_file or mode == stat.S_IMODE(seen.found.st_mode) & 0o1777:
            # The command did not change the mode.
            mode = stat.S_IMODE(there.st_mode)
        half = DirEntryAt(self._versions, f"merged-{item.number}")
        write_like(ours, half, both, mode)
        copy_whole(half, ours)
        half.unlink()
        base = Patch(self._versions, item.number).base
        if base.lstat() is None:
            copy_whole(theirs, base)
        return True


class Settling:
    """Settles runs. The caller holds the project's lock."""

    def __init__(self, paths: Paths, step: Step = no_step) -> None:
        self._paths = paths
        self._step = step
        self._manager = ProjectManager(paths)

    def settle(
        self,
        overlay: Overlay,
        mode: Mode,
        command: str,
        started: float,
        *,
        approved: bool = False,
    ) -> Report:
        """Settle a run that has just ended. If the user has `approved` it, risky changes are not
        held."""
        sets = _find_changes(overlay)
        skipped = tuple(skip for found in sets.values() for skip in found.skipped)
        if not any(sets.values()):
            return Report(overlay.run_id, skipped=skipped)
        items = _number_found(overlay, sets)
        if mode is Mode.NEVER:
            dropped = [item._replace(state=State.DISCARDED) for item in items]
            return Report(overlay.run_id, tuple(dropped), skipped)
        raise_generation(self._paths, overlay.project)
        _remove_unchanged(overlay, sets)
        items = _merge_concurrent(self._paths, overlay, items)
        job = self._write_journal(overlay, items, mode, command, started, approved=approved)
        return Report(overlay.run_id, tuple(self.finish(overlay, job, resumed=False)), skipped)

    def _write_journal(
        self,
        overlay: Overlay,
        items: Sequence[Recorded],
        mode: Mode,
        command: str,
        started: float,
        *,
        approved: bool,
    ) -> Job:
        """Decide which changes wait for the user, and write the journal. The project is still as
        it was, but from here on the job will be finished, even after a kill."""
        if mode is Mode.AUTO:
            items = self._mark_discarded_bases(overlay, items)
        waits = {
            item.number
            for item in items
            if mode is not Mode.AUTO
            or item.state is State.CONFLICT
            or (item.is_held and not approved)
        }
        chain = Chain(self._paths, overlay.project)
        if chain.runs:
            rows = runs.changes_of_runs(self._manager, chain.runs)
            items = _clear_began_where_pending(items, rows, _seen_runs(overlay))
            waits |= _depending_on_pending(items, rows)
        job = Job(
            task=Task.SETTLE,
            run_id=overlay.run_id,
            project=overlay.project,
            mode=mode.value,
            command=command,
            started=started,
            items=tuple(items),
            sources={root: overlay.upper(name) for name, root in overlay.overlay_map.items()},
            session_id=overlay.about.get("session_id", ""),
            call_id=overlay.about.get("call_id", ""),
            waits=tuple(sorted(waits)),
        )
        overlay.make_durable()
        Journal.of_run(overlay.folder).write(job)
        self._step()
        return job

    def _mark_discarded_bases(self, overlay: Overlay, items: Sequence[Recorded]) -> list[Recorded]:
        """Return the changes. One becomes a conflict if the command saw a pending version of the
        file, and the user discarded that version while the command ran."""
        began = min((item.began for item in items), default=0)
        # Applying or discarding changes of a run sets the time of its folder of versions.
        seen = [
            run_id
            for run_id in _seen_runs(overlay)
            if _changed_at(self._paths.versions / run_id) > began
        ]
        lost = runs.changes_of_runs(self._manager, seen, [State.DISCARDED]) if seen else []
        if not lost:
            return list(items)
        related, note = RelatedChanges(lost), Note(Reason.BASE_DISCARDED)
        return [
            item._replace(state=State.CONFLICT, note=note) if related.touches(item.change) else item
            for item in items
        ]

    def finish(self, overlay: Overlay, job: Job, *, resumed: bool) -> list[Recorded]:
        """Do the job and return its changes with their new states. If it is `resumed` after a kill,
        part of it may be done already."""
        manager = self._manager
        versions = self._paths.versions / job.run_id
        try:
            project = runs.begin_run(manager, job)
            self._step()
            chain = Chain(self._paths, job.project)
            sources = {}
            for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
                source = overlay.upper(name)
                # It may have become a layer before a kill.
                sources[root.path] = chain.roots_of(job.run_id).get(root.path, source)
            self._keep_bases(overlay, job, [i for i in job.items if i.number in job.waits])
            done = self._apply(overlay, job, sources, resumed=resumed)
            if resumed:
                backups.forget_unrecorded(manager, project, versions)
            backups.back_up(manager, project, versions, done)
            self._step()
            self._keep_bases(overlay, job, [i for i in done if i.state is not State.APPLIED])
            done = _mark_lost_bases(versions, done)
            self._add_to_chain(overlay, job, chain, done)
            copy_modes_to_layers(manager, job.project, done)
            runs.end_run(manager, job, done)
            manager.store.make_durable()
            self._step()
            return done
        finally:
            manager.close()

    def _apply(
        self,
        overlay: Overlay,
        job: Job,
        sources: Mapping[str, str],
        *,
        resumed: bool,
    ) -> list[Recorded]:
        done: dict[int, Recorded] = {}
        versions = self._paths.versions / job.run_id
        waits = frozenset(job.waits)
        seen = _seen_runs(overlay)

        def find_base(item: Recorded) -> Path | None:
            return self._find_base(item, seen)

        def left_before(item: Recorded) -> set[str]:
            return runs.left_before(self._manager, job.run_id, job.started, item.change)

        for root, source in sources.items():
            chosen = [
                item for item in job.items if item.change.root == root and item.number not in waits
            ]
            if not chosen:
                continue
            applier = Applier(
                root,
                versions,
                job.run_id,
                self._step,
                source=source,
                since=Journal.of_run(overlay.folder).written_at() if resumed else 0,
                written=runs.signatures(self._manager, job.run_id) if resumed else {},
                find_base=find_base,
                left_before=left_before,
            )
            with contextlib.closing(applier):
                done.update((item.number, item) for item in applier.perform(job.task, chosen))
        return [done.get(item.number, item) for item in job.items]

    def _find_base(self, item: Recorded, seen: frozenset[str]) -> Path | None:
        """Return the version of a file that the command saw, if other runs have changed it since.

        Each run keeps the version that it replaced, so the first run that changed the file after
        the command began has kept what the command saw. If the command has `seen` that run's change
        as a pending one, it saw the version that the run left. Return None if somebody else changed
        the file, too.
        """
        change = item.change
        for found in runs.replaced(self._manager, change.root, change.path):
            if found.changed_before <= item.began < found.changed_after:
                name = f"new-{found.number}" if found.run_id in seen else str(found.number)
                return self._paths.versions / found.run_id / name
        return None

    def _keep_bases(self, overlay: Overlay, job: Job, items: Sequence[Recorded]) -> None:
        """Keep a copy of the base of each edit that is not applied, in case the user edits the
        file. A diff and a merge need it."""
        edits = [item for item in items if item.change.is_edit]
        if not edits or len(items) >= MANY:
            return  # so many copies would take too long
        versions = make_folder(self._paths.versions / job.run_id)
        roots = {root.path: root for root in overlay.roots}
        for item in edits:
            *layers, _disk = roots[item.change.root].lowers
            seen = find_in_layers(layers, item.change.path) if layers else None
            keep_base(item, versions, Path(seen.layer, seen.path) if seen else None)
        self._step()

    def _add_to_chain(
        self, overlay: Overlay, job: Job, chain: Chain, done: Sequence[Recorded]
    ) -> None:
        """Put what was not applied on top of the chain, where the next command sees it."""
        unapplied: dict[str, set[str]] = {}
        applied: dict[str, list[str]] = {}
        for item in done:
            if item.state is State.APPLIED:
                applied.setdefault(item.change.root, []).append(item.change.path)
            else:
                unapplied.setdefault(item.change.root, set()).add(item.change.path)
        names = {name: root for name, root in overlay.overlay_map.items() if root in unapplied}
        if not names:
            return
        chain.add(job.run_id, names)
        self._step()
        for name, root in names.items():
            upper = overlay.upper(name)
            layer = chain.layer_of(job.run_id, root)
            source = layer if os.path.isdir(layer) else upper
            pending.drop(source, applied.get(root, ()), unapplied[root])
            self._step()
            pending.move_in(upper, layer)
            self._step()
        with contextlib.suppress(OSError):  # the next run tries again, and reports it
            squash_oldest(self._paths, job.project)


def _mark_lost_bases(versions: Path, items: Sequence[Recorded]) -> list[Recorded]:
    """Return the changes. A pending edit becomes a conflict if the user edited the file while the
    command ran: the base was not kept, so nobody knows which lines the command saw. Conflicts note
    the file that is on disk now, which the user is told about."""
    found = []
    for item in items:
        if item.state is State.CONFLICT and item.note is not None:
            item = in_conflict(item, item.note)
        if item.state is State.PENDING and item.change.is_edit and item.began:
            with contextlib.suppress(OSError):
                is_edited = (
                    os.lstat(f"{item.change.root}/{item.change.path}").st_ctime_ns > item.began
                )
                if is_edited and not os.path.lexists(versions / str(item.number)):
                    item = in_conflict(item, Note(Reason.CHANGED))
        found.append(item)
    return found


def _clear_began_where_pending(
    items: Sequence[Recorded], rows: Sequence[tuple[str, Recorded]], seen: frozenset[str]
) -> list[Recorded]:
    """Return the changes, with a `began` of 0 for each file of which the command saw a pending
    version: the file in the project, and its time, say nothing about that version."""
    places = {(row.change.root, row.change.path) for run_id, row in rows if run_id in seen}
    return [
        item._replace(began=0) if (item.change.root, item.change.path) in places else item
        for item in items
    ]


def _depending_on_pending(
    items: Sequence[Recorded], rows: Sequence[tuple[str, Recorded]]
) -> set[int]:
    """Return the numbers of the changes that depend on pending ones, `rows`, and so must wait until
    the user has applied those."""
    related = RelatedChanges(rows)
    waiting = [item for item in items if related.touches(item.change)]
    # A change that deletes or replaces a folder waits, and with it everything inside the folder.
    folders = {(item.change.root, item.change.path) for item in waiting if ends_folder(item.change)}
    return {item.number for item in waiting} | {
        item.number
        for item in items
        if folders
        and any((item.change.root, path) in folders for path in folders_above(item.change.path))
    }


def _seen_runs(overlay: Overlay) -> frozenset[str]:
    """Return the runs whose pending changes the command saw."""
    return frozenset(run_of(layer) for root in overlay.roots for layer in root.pending)


def _changed_at(file: Path) -> int:
    try:
        return os.lstat(file).st_mtime_ns
    except FileNotFoundError:
        return 0


def copy_modes_to_layers(manager: ProjectManager, project: str, done: Iterable[Recorded]) -> None:
    """Give folders of pending layers the modes that were applied or undone just now, so that the
    next command sees them. A folder whose mode is pending itself keeps that."""
    places = {
        (item.change.root, item.change.path)
        for item in done
        if item.change.type is Type.FOLDER and item.change.kind is Kind.MODIFIED
        if item.state in (State.APPLIED, State.UNDONE)
    }
    chain = Chain(manager.paths, project)
    if not places or not chain.runs:
        return
    rows = runs.changes_of_runs(manager, chain.runs)
    places -= {(row.change.root, row.change.path) for _, row in rows}
    if places:
        unsquash(manager.paths, project)
    for root, path in places:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(os.lstat(f"{root}/{path}").st_mode) & 0o1777
            pending.set_folder_mode(chain.layers(root), "" if path == "." else path, mode)
