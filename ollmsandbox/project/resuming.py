# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kill left half done, and others came upon before it was finished: a later run may have put
its own version into the pending layer, and somebody may have changed what was already applied."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from ..files import trees
from .change import Change, Kind, Recorded, State, Type
from .exchange import Spot, Step, signature
from .layers import is_whiteout
from .tree import Tree, modes_of


def has_changed_places(change: Change, incoming: Spot, kept: Spot, step: Step) -> bool:
    """Among many, before a kill: then what is in the layer is what was in the project."""
    found = incoming.look() if change.inode else None
    if found is None or found.st_ino == change.inode:
        return False
    os.rename(incoming.name, kept.name, src_dir_fd=incoming.around, dst_dir_fd=kept.around)
    step()
    return True


def bring_deleted(change: Change, layer: Tree, kept: Spot, step: Step) -> None:
    """The same of a file that went to where the layer said that it is deleted."""
    try:
        there = Spot(*layer.split(change.path))
    except FileNotFoundError:
        return
    found = there.look()
    if found is None:
        # It was about to. That it is deleted has to be seen there, should it wait.
        os.mknod(there.name, stat.S_IFCHR, 0, dir_fd=there.around)
    elif stat.S_ISREG(found.st_mode):
        os.rename(there.name, kept.name, src_dir_fd=there.around, dst_dir_fd=kept.around)
        step()


def return_rights(spot: Spot, mode: int | None) -> None:
    """A file that its owner may not read, or not write to, may do so for a moment, to be copied or
    cleansed. A kill in it shall not leave it so."""
    found = spot.look()
    if found is None or mode is None or not stat.S_ISREG(found.st_mode):
        return
    lent = (mode | stat.S_IRUSR, mode | stat.S_IWUSR, mode | stat.S_IRUSR | stat.S_IWUSR)
    if stat.S_IMODE(found.st_mode) != mode and stat.S_IMODE(found.st_mode) in lent:
        trees.set_mode(spot.name, spot.around, mode, any_kind=True)


def still_own(
    items: Sequence[Recorded], layer: str, root: str
) -> tuple[list[Recorded], list[Recorded]]:
    """Of what is to be taken from the pending layer: what is still the run's own version, and the
    rest as it stands. A later run's, which may be there by now, is known by its inode."""
    if not os.path.isdir(layer):
        return list(items), []
    own: list[Recorded] = []
    others: list[Recorded] = []
    here, project = Tree(layer, modes_of(layer)), Tree(root)
    try:
        for item in items:
            inode, waiting = item.change.inode, _look(here, item)
            is_other = waiting is not None and (
                waiting.st_ino != inode if inode else is_whiteout(waiting)
            )
            if item.change.kind is Kind.DELETED or not is_other:
                own.append(item)
                continue
            there = _look(project, item)
            if there is not None and there.st_ino == inode:
                # Ours was in its place before that came.
                item = item._replace(state=State.APPLIED, note="", after=signature(there))
            others.append(item)
    finally:
        here.close()
        project.close()
    return own, others


def _look(tree: Tree, item: Recorded) -> os.stat_result | None:
    try:
        return Spot(*tree.split(item.change.path)).look()
    except OSError:
        return None


def only_ours(
    item: Recorded, written: Mapping[int, tuple[str, str]], since: int, is_moved: bool
) -> Recorded:
    """After a kill: what is at a place may be what somebody else has put there by now. If it was
    not yet written down what we left, it counts as ours only if it is as old as the command; else
    an undo has to ask."""
    if item.state not in (State.APPLIED, State.UNDONE) or not item.after:
        return item
    if item.number in written:
        before, after = written[item.number]
        return item._replace(before=before, after=after)
    change, place = item.change, f"{item.change.root}/{item.change.path}"
    is_new = item.state is State.APPLIED
    try:
        if is_new and change.type is Type.LINK:
            is_ours = os.readlink(place) == change.target
        else:
            found = os.lstat(place)
            is_ours = found.st_mtime_ns <= since
            if is_new and is_moved and change.inode:
                is_ours &= found.st_ino == change.inode
    except OSError:
        is_ours = False
    return item if is_ours else item._replace(after="")


def device(layer: str) -> int:
    try:
        return os.stat(layer).st_dev
    except FileNotFoundError:
        return -1
