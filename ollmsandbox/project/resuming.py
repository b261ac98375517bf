# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kill left half done, and others came upon before it was finished: a later run may have put
its own version into the pending layer, and somebody may have changed what was already applied."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .change import Kind, Recorded, State, Type
from .exchange import Spot, signature
from .layers import is_whiteout
from .tree import Tree, modes_of


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
