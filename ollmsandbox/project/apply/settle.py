# SPDX-License-Identifier: GPL-3.0-or-later
"""Settles a finished run: from its upper folders to applied and pending changes.

The changes are found and numbered, and merged with what other runs did to the same files meanwhile.
Then the journal is written, and the changes are applied or put on top of the chain, and recorded.
An interrupted run is settled by the same steps after a kill.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, folders_above, modes_file, restore_modes
from ...paths import Paths, make_folder
from ...sandbox.overlay import Overlay, Root, clock_offset
from ...text.diff import LARGEST
from ...text.merge import merge_change
from ..changes import outside_edits
from ..changes.change import MANY, Change, ChangeSet, Kind, Recorded, Report, State, Type
from ..changes.mode import Mode, no_step
from ..changes.outside_edits import OutsideEdits
from ..changes.overlayfs import find_in_layers, is_whiteout, read_seen
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
from .swap import Step, copy_whole, write_like

# A clock that is set back by less is taken for a measuring error.
_JITTER = 1_000_000
_SLACK = 1_000_000_000


def _find_changes(overlay: Overlay) -> dict[str, ChangeSet]:
    check_roots(overlay)
    found = {}
    for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
        # Folders may still be open that were looked into when somebody was killed.
        restore_modes(overlay.upper(name))
        found[name] = scan(overlay.upper(name), root.lowers, root.path)
    return found


def _tidy(overlay: Overlay, sets: Mapping[str, ChangeSet]) -> None:
    """Leave nothing in the upper folders but the changes: pending, it would hide what comes to be
    there later."""
    for (name, found), root in zip(sets.items(), overlay.roots, strict=True):
        upper = overlay.upper(name)
        pending.spell_out(upper, root.lowers)
        idle = (*found.idle, *(skipped.path for skipped in found.skipped))
        if idle:
            pending.drop(upper, idle, {change.path for change in found.changes}, whole=True)


def _number_found(overlay: Overlay, changes: Sequence[Change]) -> list[Recorded]:
    set_back = overlay.clock - clock_offset()
    back = set_back + _SLACK if set_back > _JITTER else 0
    began = {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}
    roots = {
        root: OutsideEdits(root, overlay.upper(name), began[root])
        for name, root in overlay.overlay_map.items()
    }
    return outside_edits.number_changes(changes, roots, began)


def _merge_concurrent(paths: Paths, overlay: Overlay, items: Sequence[Recorded]) -> list[Recorded]:
    """Merge changes with those that other runs made pending while the command ran.

    A change that cannot be merged is a conflict. The run's own version is on top of the others'.
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
    """Merges the changes of a run to one root with layers that its command did not see."""

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
            # The folder around it was deleted or replaced.
            return item if change.kind is Kind.DELETED else conflict
        found = theirs.lstat() if theirs else None
        if theirs is None or found is None:
            return item
        if change.kind is Kind.DELETED:
            if stat.S_ISDIR(found.st_mode) and change.type is Type.FOLDER:
                return conflict if self._show_theirs(change.path) else item
            return item if is_whiteout(found) else conflict
        if change.type is Type.FOLDER:
            return item if stat.S_ISDIR(found.st_mode) else conflict
        is_merged = change.type is Type.FILE and self._merge_text(item, theirs)
        return item if is_merged else conflict

    def _theirs(self, path: str) -> DirEntryAt | None:
        """Return what the last of the others has at a path, or None."""
        for tree in self._unseen:
            try:
                spot = DirEntryAt(*tree.split(path))
            except FileNotFoundError:
                continue
            if spot.lstat() is not None:
                return spot
        return None

    def _show_theirs(self, folder: str) -> bool:
        """Replace the whiteout of a folder by whiteouts for what the command saw in it, so that
        what the others put there is visible. Return whether there is something."""
        is_any = False
        for tree in self._unseen:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for path in pending.files_in(tree, folder):
                    pending.reveal(self._upper.root, self._root.lowers, path)
                    is_any = True
        return is_any

    def _merge_text(self, item: Recorded, theirs: DirEntryAt) -> bool:
        """Merge both versions in the upper folder; theirs is what the change is based on then."""
        ours = DirEntryAt(*self._upper.split(item.change.path))
        found, there = ours.lstat(), theirs.lstat()
        new, other = read_small(ours), read_small(theirs)
        if found is None or there is None or new is None or other is None:
            return False
        seen = find_in_layers(self._root.lowers, item.change.path)
        old = read_seen(seen, LARGEST + 1) if seen is not None and seen.is_file else None
        both = other if new == other else None
        if both is None and old is not None and len(old) <= LARGEST:
            both = merge_change(old, new, other)
        if both is None:
            return False
        mode = stat.S_IMODE(found.st_mode)
        if seen is None or not seen.is_file or mode == stat.S_IMODE(seen.found.st_mode) & 0o1777:
            # Only the others changed it.
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
    """The steps from an upper folder to the project. The project is locked meanwhile."""

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
        """Settle a run of which nothing was begun. If the user has `approved`, nothing is held."""
        sets = _find_changes(overlay)
        changes = [change for found in sets.values() for change in found.changes]
        skipped = tuple(skip for found in sets.values() for skip in found.skipped)
        if not changes:
            return Report(overlay.run_id, skipped=skipped)
        items = _number_found(overlay, changes)
        if mode is Mode.NEVER:
            dropped = [item._replace(state=State.DISCARDED) for item in items]
            return Report(overlay.run_id, tuple(dropped), skipped)
        raise_generation(self._paths, overlay.project)
        _tidy(overlay, sets)
        items = _merge_concurrent(self._paths, overlay, items)
        job = self._write_journal(overlay, items, mode, command, started, approved=approved)
        return Report(overlay.run_id, tuple(self.finish(overlay, job, fresh=True)), skipped)

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
        """Decide which changes wait, and write the journal. Nothing is changed yet, but from here
        on the job will be finished."""
        if mode is Mode.AUTO:
            items = self._with_lost_bases(overlay, items)
        waits = {item.number for item in items if item.state is not State.PENDING}
        waits |= {
            item.number
            for item in items
            if mode is not Mode.AUTO or (item.change.flags and item.is_held and not approved)
        }
        chain = Chain(self._paths, overlay.project)
        if chain.runs:
            rows = runs.changes_of_runs(self._manager, chain.runs)
            items = _on_pending_files(items, rows, _seen_runs(overlay))
            waits |= _that_need(items, rows)
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

    def _with_lost_bases(self, overlay: Overlay, items: Sequence[Recorded]) -> list[Recorded]:
        """Return the changes, as conflicts those that build on what was discarded meanwhile."""
        began = min((item.began for item in items), default=0)
        # The folder of a run's versions has the time when something was decided last.
        seen = [
            run_id
            for run_id in _seen_runs(overlay)
            if _changed_at(self._paths.versions / run_id) > began
        ]
        lost = runs.changes_of_runs(self._manager, seen, [State.DISCARDED]) if seen else []
        if not lost:
            return list(items)
        related, note = RelatedChanges(lost), Note(Reason.CHANGED)
        return [
            item._replace(state=State.CONFLICT, note=note) if related.touches(item.change) else item
            for item in items
        ]

    def finish(self, overlay: Overlay, job: Job, *, fresh: bool = False) -> list[Recorded]:
        """Do the job, and return its changes as they are then. It can be repeated after a kill;
        `fresh` if it is the first time."""
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
            done = self._apply(overlay, job, sources, fresh=fresh)
            if not fresh:
                backups.forget_unrecorded(manager, project, versions)
            backups.back_up(manager, project, versions, done)
            self._step()
            self._keep_bases(overlay, job, [i for i in done if i.state is not State.APPLIED])
            self._keep_rest(overlay, job, chain, done)
            show_modes(manager, job.project, done)
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
        fresh: bool,
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
                since=0 if fresh else Journal.of_run(overlay.folder).written_at(),
                written={} if fresh else runs.signatures(self._manager, job.run_id),
                find_base=find_base,
                left_before=left_before,
            )
            with contextlib.closing(applier):
                done.update((item.number, item) for item in applier.perform(job.task, chosen))
        return [done.get(item.number, item) for item in job.items]

    def _find_base(self, item: Recorded, seen: frozenset[str]) -> Path | None:
        """Return what the command saw of a file that other runs have changed since: the version
        that the first of them found, or that one of those left that the command has `seen` as
        pending. None if somebody else changed the file, too."""
        change = item.change
        for found in runs.replaced(self._manager, change.root, change.path):
            if found.changed_before <= item.began < found.changed_after:
                name = f"new-{found.number}" if found.run_id in seen else str(found.number)
                return self._paths.versions / found.run_id / name
        return None

    def _keep_bases(self, overlay: Overlay, job: Job, items: Sequence[Recorded]) -> None:
        """Keep what the command saw of each file that is to wait, before somebody edits it."""
        edits = [item for item in items if item.change.is_edit]
        if not edits or len(items) >= MANY:
            return
        versions = make_folder(self._paths.versions / job.run_id)
        roots = {root.path: root for root in overlay.roots}
        for item in edits:
            *layers, _disk = roots[item.change.root].lowers
            seen = find_in_layers(layers, item.change.path) if layers else None
            keep_base(item, versions, Path(seen.layer, seen.path) if seen else None)
        self._step()

    def _keep_rest(
        self, overlay: Overlay, job: Job, chain: Chain, done: Sequence[Recorded]
    ) -> None:
        """Put what was not applied on top of the chain, where the next command sees it."""
        left: dict[str, set[str]] = {}
        applied: dict[str, list[str]] = {}
        for item in done:
            if item.state is State.APPLIED:
                applied.setdefault(item.change.root, []).append(item.change.path)
            else:
                left.setdefault(item.change.root, set()).add(item.change.path)
        names = {name: root for name, root in overlay.overlay_map.items() if root in left}
        if not names:
            return
        chain.add(job.run_id, names)
        self._step()
        for name, root in names.items():
            upper = overlay.upper(name)
            layer = chain.layer_of(job.run_id, root)
            source = layer if os.path.isdir(layer) else upper
            pending.drop(source, applied.get(root, ()), left[root])
            self._step()
            pending.move_in(upper, layer)
            self._step()
        with contextlib.suppress(OSError):  # the next run tries again, and reports it
            squash_oldest(self._paths, job.project)


def _on_pending_files(
    items: Sequence[Recorded], rows: Sequence[tuple[str, Recorded]], seen: frozenset[str]
) -> list[Recorded]:
    """Return the changes, those of files that the command saw as pending without the time when it
    began: what it saw was never in the project."""
    places = {(row.change.root, row.change.path) for run_id, row in rows if run_id in seen}
    return [
        item._replace(began=0) if (item.change.root, item.change.path) in places else item
        for item in items
    ]


def _that_need(items: Sequence[Recorded], rows: Sequence[tuple[str, Recorded]]) -> set[int]:
    """Return the numbers of the changes that need these pending ones, which nobody has approved."""
    related = RelatedChanges(rows)
    waiting = [item for item in items if related.touches(item.change)]
    # What ends a folder waits with all that was in it.
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


def _implied_parents(
    source: str, project: str, recorded: Sequence[Recorded], made: Collection[str]
) -> list[Change]:
    chosen = {item.change.path for item in recorded}
    needed: dict[str, Change] = {}
    for item in recorded:
        if item.change.kind is Kind.DELETED:
            continue
        # Upwards until one is there: a path may have thousands of parts.
        path = os.path.dirname(item.change.path)
        missing = []
        while path and path not in chosen and path not in needed:
            if os.path.lexists(f"{project}/{path}"):
                break
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            with contextlib.suppress(OSError):
                mode = stat.S_IMODE(os.lstat(f"{source}/{path}").st_mode) & 0o1777
                needed[path] = Change(project, path, Kind.ADDED, Type.FOLDER, mode)
    return [change for change in needed.values() if change.path not in made]


def numbered_parents(
    source: str,
    project: str,
    chosen: Sequence[Recorded],
    rows: Sequence[Recorded],
    made: Collection[str] = (),
) -> list[Recorded]:
    """Return the folders that chosen files need and that are not chosen themselves, as changes of
    the run that has these rows; without those that are `made` anyway."""
    free = 1 + max(item.number for item in rows)
    # One that a later run made, too, is theirs in the layer, and both may need it.
    own = {
        item.change.path: item.number
        for item in rows
        if item.change.root == project and item.state is State.PENDING
    }
    return [
        Recorded(own.get(change.path, free + position), change)
        for position, change in enumerate(_implied_parents(source, project, chosen, made))
    ]


def show_modes(manager: ProjectManager, project: str, done: Iterable[Recorded]) -> None:
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
