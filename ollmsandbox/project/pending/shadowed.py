# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a pending version that a later run replaces.

The earlier version is kept with its own run, and is pending again if the later one is discarded.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect
from collections.abc import Collection, Sequence
from pathlib import Path

from ...files import trees
from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, folders_above, modes_file
from ...paths import make_folder
from ..apply.patch import Patch, half_name
from ..apply.swap import copy_whole
from ..changes.change import Change, Kind, Recorded, Type
from ..changes.overlayfs import is_whiteout
from ..changes.reasons import Note, Reason
from ..database import runs as records
from ..database.models import Project, Run
from ..manager import ProjectManager
from . import layer as pending
from .conflicts import folders_of, spot_in
from .merge import Keep, make_layer

_KEPT = (stat.S_IFREG, stat.S_IFLNK)


def keeper(manager: ProjectManager, project: Project, root: str, layer: str) -> Keep:
    """Of what is not on record nothing is kept."""
    waits = records.waiting(manager, project, root)
    order = sorted(waits)

    def keep(path: str) -> None:
        if path in waits:
            _keep(manager.paths.versions, layer, path, waits[path])
        inside = f"{path}/"
        at = bisect(order, inside)
        while at < len(order) and order[at].startswith(inside):
            _keep(manager.paths.versions, layer, order[at], waits[order[at]])
            at += 1

    return keep


def _keep(versions: Path, layer: str, path: str, one: records.Waiting) -> None:
    # Each time anew: folders may have changed places meanwhile.
    tree = OpenTree(layer)
    try:
        spot = spot_in(tree, path)
        found = spot.lstat() if spot else None
        if spot is None or found is None or stat.S_IFMT(found.st_mode) not in _KEPT:
            return
        folder = os.open(make_folder(versions / one.run_id), FOLDER)
        try:
            kept = DirEntryAt(folder, f"new-{one.number}")
            # If it is there, this is the other one already, which was copied before a kill.
            if kept.lstat() is None:
                pending.take(spot, kept)
        finally:
            os.close(folder)
    finally:
        tree.leave()


Below = Sequence[tuple[Run, list[Recorded]]]


def below(manager: ProjectManager, run: Run, items: Collection[Recorded]) -> Below:
    """What is seen in the layer again without these changes of the last run there; by run. What is
    not kept is not."""
    found: dict[str, list[Recorded]] = {}
    for root in {item.change.root for item in items}:
        paths = {item.change.path for item in items if item.change.root == root}
        # The last one is on top.
        tops = {
            row.change.path: (other, row)
            for other, row in records.rows_in_layer(manager, run.project, root)
            if other != run.id and row.change.path in paths
        }
        for other, row in tops.values():
            if _is_kept(manager, other, row):
                found.setdefault(other, []).append(row)
    return [
        (manager.run(other), sorted(rows, key=lambda row: row.number))
        for other, rows in found.items()
    ]


def place_of(item: Recorded) -> tuple[str, str]:
    return item.change.root, item.change.path


def with_notes(done: Sequence[Recorded], back: Below) -> list[Recorded]:
    """Return the discarded changes with notes about the earlier versions that are pending again."""
    runs = {place_of(item): run.id for run, items in back for item in items}
    return [
        item._replace(note=Note(Reason.EARLIER_RUN, {"run": runs[place_of(item)]}))
        if place_of(item) in runs
        else item
        for item in done
    ]


def _is_kept(manager: ProjectManager, run_id: str, row: Recorded) -> bool:
    if row.change.kind is Kind.DELETED or row.change.type is Type.FOLDER:
        return True
    return os.path.lexists(manager.paths.versions / run_id / f"new-{row.number}")


def bring_back(layer: str, root: str, items: Sequence[Recorded], versions: Path) -> None:
    """Into the layer, where nothing else is at their places any more. A second time it finds what
    is done."""
    if pending.is_empty(layer):
        make_layer(layer, stat.S_IMODE(os.stat(root).st_mode) & 0o1777)
    present = [item for item in items if item.change.kind is not Kind.DELETED]
    for item in present:
        if item.change.path != ".":
            pending.reveal(layer, root, item.change.path)
    folder = os.open(make_folder(versions), FOLDER)
    around = os.open(os.path.dirname(layer), FOLDER)
    tree = OpenTree(layer, modes_file(layer))
    try:
        for item in present:
            half = DirEntryAt(around, half_name(layer))
            _show(tree, root, item.change, Patch(folder, item.number), half)
        # What is in a folder goes before it.
        for item in reversed(items):
            if item.change.kind is Kind.DELETED:
                _hide(tree, root, item.change.path)
    finally:
        tree.close()
        os.close(around)
        os.close(folder)


def _show(tree: OpenTree, root: str, change: Change, patch: Patch, half: DirEntryAt) -> None:
    if change.path == ".":
        tree.set_mode("", change.mode or 0o700)
        return
    for above in reversed(list(folders_above(change.path))):
        _make_folder(tree, root, above)
    if change.type is Type.FOLDER:
        _make_folder(tree, root, change.path)
        tree.set_mode(change.path, 0o755 if change.mode is None else change.mode)
        return
    spot = spot_in(tree, change.path)
    if spot is None or patch.result.lstat() is None or not _is_free(tree, change.path, spot):
        return
    if patch.applied is patch.result:
        pending.take(patch.result, spot, half)
    else:
        copy_whole(patch.rest, spot, half)


def _hide(tree: OpenTree, root: str, path: str) -> None:
    """Add a whiteout, unless the folder above is deleted, too."""
    spot = spot_in(tree, path)
    if spot is None or not os.path.lexists(f"{root}/{path}"):
        return
    if _is_free(tree, path, spot) and spot.lstat() is None:
        os.mknod(spot.name, stat.S_IFCHR, 0, dir_fd=spot.dir_fd)


def _make_folder(tree: OpenTree, root: str, path: str) -> None:
    spot = spot_in(tree, path)
    if spot is None or spot.lstat() is not None:
        return
    mode, owner = 0o755, None
    if os.path.isdir(f"{root}/{path}"):
        owner = os.stat(f"{root}/{path}")
        mode = stat.S_IMODE(owner.st_mode) & 0o1777
    tree.note_mode(path, mode)
    os.mkdir(spot.name, 0o700, dir_fd=spot.dir_fd)
    if owner is not None and os.getuid() == 0:
        os.chown(spot.name, owner.st_uid, owner.st_gid, dir_fd=spot.dir_fd)


def _is_free(tree: OpenTree, path: str, spot: DirEntryAt) -> bool:
    """Nothing is there; of a folder, nothing but signs that something is deleted."""
    found = spot.lstat()
    if found is None or not stat.S_ISDIR(found.st_mode):
        return found is None or is_whiteout(found)
    inside = OpenTree(f"{tree.root}/{path}")
    try:
        for _, around in folders_of(inside):
            with os.scandir(around) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if not is_folder and not is_whiteout(entry.stat(follow_symlinks=False)):
                        return False
    finally:
        inside.close()
    trees.remove(spot.name, spot.dir_fd)
    return True
