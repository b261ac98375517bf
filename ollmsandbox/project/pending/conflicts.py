# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds conflicts between a run and what other runs added to the pending layer while it ran."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...files import trees
from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, folders_above, modes_file
from ...paths import make_folder
from ..apply.journal import Way
from ..apply.swap import Step
from ..changes.change import ASIDE, Change, ChangeSet, Kind, Recorded, State, Type
from ..changes.overlayfs import OPAQUE, folders_in, is_copied_up, is_opaque, is_whiteout, same_bytes
from ..changes.reasons import Note, Reason
from ..changes.scan import is_too_deep, scan
from . import layer as pending

# Of a layer that the command did not have below it, all is new.
NEVER_SEEN = -1


@dataclass(frozen=True)
class Unseen:
    """Pending changes that the command did not see."""

    # All but folders; and whether it is a deletion.
    places: Mapping[str, bool]
    # New ones: there may be nothing in them.
    folders: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.places or self.folders)


def came_since(layer: str, began: int, *, newest: int, now: int) -> dict[str, bool]:
    """What has come into the layer, but folders; and whether it is a deletion. The `newest` was
    there when it `began`: if the clock was set back before, that is later than `now`."""
    found: dict[str, bool] = {}
    if pending.is_empty(layer):
        return found
    tree = OpenTree(layer, modes_file(layer))
    try:
        for path, around in folders_of(tree):
            with os.scandir(around) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        continue
                    there = entry.stat(follow_symlinks=False)
                    at = there.st_ctime_ns
                    if at > began and not now < at <= newest:
                        inner = f"{path}/{entry.name}" if path else entry.name
                        found[inner] = is_whiteout(there)
    finally:
        tree.close()
    return found


def in_layer(layer: str, paths: Collection[str]) -> dict[str, bool]:
    """The same of what is at these paths, or around them and no folder. A folder that came as a
    whole has files in it that are older than its coming."""
    found: dict[str, bool] = {}
    if not paths or pending.is_empty(layer):
        return found
    tree = OpenTree(layer, modes_file(layer))
    try:
        for path in paths:
            for place in (path, *folders_above(path)):
                spot = spot_in(tree, place)
                there = spot.lstat() if spot else None
                if there is not None:
                    if not stat.S_ISDIR(there.st_mode):
                        found[place] = is_whiteout(there)
                    break
    finally:
        tree.close()
    return found


def made_folders(layer: str, root: str, paths: Collection[str]) -> list[str]:
    """Those of the paths that are folders there, and not on disk."""
    found: list[str] = []
    if not paths or pending.is_empty(layer):
        return found
    tree = OpenTree(layer, modes_file(layer))
    try:
        for path in paths:
            spot = spot_in(tree, path)
            there = spot.lstat() if spot else None
            is_folder = there is not None and stat.S_ISDIR(there.st_mode)
            if is_folder and not os.path.lexists(f"{root}/{path}"):
                found.append(path)
    finally:
        tree.close()
    return found


def folders_of(tree: OpenTree) -> Iterator[tuple[str, int]]:
    """All of a layer's folders, open as long as they are looked at."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        if is_too_deep(path):
            continue
        around = tree.folder(path)
        if os.fstat(around).st_mode & 0o500 != 0o500:
            tree.unlock(path)
            around = tree.folder(path)
        yield path, around
        around = tree.folder(path)
        waiting += (f"{path}/{name}" if path else name for name in folders_in(around))


def spot_in(tree: OpenTree, path: str) -> DirEntryAt | None:
    """Where we may write. None if there is no folder around it."""
    around = os.path.dirname(path)
    try:
        if os.fstat(tree.folder(around)).st_mode & 0o700 != 0o700:
            tree.unlock(around)
        return DirEntryAt(*tree.split(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


_CONCURRENT = Note(Reason.CONCURRENT)
_RECREATED = Note(Reason.RECREATED)
# Instead of the number of a change that has none yet.
NEW = -1


def uncrossed(
    upper: str,
    layer: str,
    root: str,
    items: Sequence[Recorded],
    unseen: Unseen,
    idle: Collection[str] | None,
    began: int,
) -> tuple[list[Recorded], Way]:
    """The changes of a run to one root, those that cross what is `unseen` as conflicts. What is
    only touched, or `idle` in another way, is no reason to replace anything; but of what was made
    again as it was, somebody has to know that it does not stay. If idle is None, a part may be
    merged already, and is not looked at. Nothing is changed: who writes down what is returned has
    the way made then, and numbers what is new here."""
    if not unseen:
        return list(items), Way()
    crossing = _Crossing(upper, layer, unseen, resumed=idle is None)
    try:
        renewed, covered = crossing.renewed(), crossing.covered()
        crossed = crossing.find(items)
    finally:
        crossing.close()
    found = scan(upper, [root], root) if crossed or idle is None else ChangeSet()
    if idle is None:
        # As it is on disk, and no change: what is one takes an earlier change back.
        idle = set(found.idle) - {item.change.path for item in items}
    on_disk = {change.path: change for change in found.changes}
    again = _made_again(upper, layer, root, unseen, {*idle, *crossed.intersection(found.idle)})
    kept: list[Recorded] = []
    needless = set(idle)
    for item in items:
        path = item.change.path
        if path not in crossed or item.is_aside:
            kept.append(item)
            again.pop(path, None)
        elif change := _to_choose(item.change, on_disk):
            note = _CONCURRENT
            kept.append(item._replace(change=change, state=State.CONFLICT, note=note, after=ASIDE))
        elif change := again.pop(path, None):
            note = _RECREATED
            kept.append(item._replace(change=change, state=State.CONFLICT, note=note, after=ASIDE))
        else:
            needless.add(path)
    needless -= again.keys()
    for change in again.values():
        kept.append(Recorded(NEW, change, State.CONFLICT, _RECREATED, began, after=ASIDE))
    return kept, Way(tuple(renewed), tuple(sorted(needless)), tuple(covered))


def _made_again(
    upper: str, layer: str, root: str, unseen: Unseen, paths: Collection[str]
) -> dict[str, Change]:
    """Of what is as it is on disk: what the command did not only touch, and what is not so in the
    layer."""
    near = [path for path in paths if any(p in unseen.places for p in (path, *folders_above(path)))]
    found: dict[str, Change] = {}
    if not near:
        return found
    crossing = _Crossing(upper, layer, unseen, resumed=False)
    try:
        for path in sorted(near):
            change = crossing.as_made(root, path)
            if change is not None and crossing.meets(change):
                found[path] = change
    finally:
        crossing.close()
    return found


def make_way(upper: str, items: Sequence[Recorded], way: Way) -> None:
    """A second time it finds what is done, also if what follows has begun."""
    if way.renewed:
        _open_folders(upper, items, way.renewed)
    if way.needless:
        _take_out(upper, set(way.needless), {item.change.path for item in items})


def _to_choose(change: Change, on_disk: Mapping[str, Change]) -> Change | None:
    """Against the disk; None if it is there already."""
    found = on_disk.get(change.path)
    return change if found is None and change.kind is Kind.DELETED else found


def put_aside(
    upper: str, items: Sequence[Recorded], covered: Collection[str], versions: Path, step: Step
) -> None:
    """The command's versions of what is in conflict, out of the upper folder to the versions of the
    run, where those are that were discarded. What is `covered` has nothing else that counts then. A
    second time it finds what is done."""
    aside = [item for item in items if item.is_aside]
    if not aside and not covered:
        return
    folder = os.open(make_folder(versions), FOLDER)
    tree = OpenTree(upper, modes_file(upper))
    try:
        # What is in a folder goes before it.
        for item in sorted(aside, key=lambda item: item.change.path, reverse=True):
            spot = spot_in(tree, item.change.path)
            found = spot.lstat() if spot else None
            if spot is None or found is None:
                continue
            if stat.S_ISDIR(found.st_mode):
                _remove_empty(spot)
            elif is_whiteout(found):
                os.unlink(spot.name, dir_fd=spot.dir_fd)
            else:
                pending.take(spot, DirEntryAt(folder, f"new-{item.number}"))
            step()
        for path in covered:
            spot = spot_in(tree, path)
            found = spot.lstat() if spot else None
            if spot is not None and found is not None and stat.S_ISDIR(found.st_mode):
                trees.remove(spot.name, spot.dir_fd)
                step()
        others = {item.change.path for item in items if not item.is_aside}
        _remove_ways(tree, {*(item.change.path for item in aside), *covered}, others)
    finally:
        tree.close()
        os.close(folder)


def _remove_ways(tree: OpenTree, paths: set[str], needed: set[str]) -> None:
    """Folders that only led to what is gone: the layer may have something else at their names."""
    around = {above for path in paths for above in folders_above(path)} - needed
    for path in sorted(around, reverse=True):
        spot = spot_in(tree, path)
        if spot is not None:
            _remove_empty(spot)


def _remove_empty(spot: DirEntryAt) -> None:
    with contextlib.suppress(OSError):  # something in it stays
        os.rmdir(spot.name, dir_fd=spot.dir_fd)


class _Crossing:
    def __init__(self, upper: str, layer: str, unseen: Unseen, *, resumed: bool) -> None:
        self._upper = OpenTree(upper, modes_file(upper))
        self._layer = OpenTree(layer, modes_file(layer))
        self._unseen = unseen.places
        self._resumed = resumed
        # Folders with something new in them; and those that something is gone from, too.
        came = [path for path, is_gone in unseen.places.items() if not is_gone]
        self._stirred = {
            above for path in (*came, *unseen.folders) for above in folders_above(path)
        }
        self._stirred.update(unseen.folders)
        every = (*unseen.places, *unseen.folders)
        self._reached = {above for path in every for above in folders_above(path)}

    def close(self) -> None:
        self._upper.close()
        self._layer.close()

    def renewed(self) -> list[str]:
        """Folders that the command made anew, and in which something was done meanwhile."""
        return [
            path
            for path, around in folders_of(self._upper)
            if path in self._reached and is_opaque(around)
        ]

    def covered(self) -> list[str]:
        """Folders of the command where the layer has none any more, but a file or a deletion, which
        stays: what else is in them was there before, or is gone there, too."""
        found = []
        for path in sorted(self._unseen):
            spot = spot_in(self._upper, path)
            there = spot.lstat() if spot else None
            if there is not None and stat.S_ISDIR(there.st_mode):
                found.append(path)
        return found

    def as_made(self, root: str, path: str) -> Change | None:
        """A file or link that is as it is on disk; None if it was only touched. Which of the two a
        link was nobody can tell, and hardly any is touched."""
        spot = spot_in(self._upper, path)
        there = spot.lstat() if spot else None
        if spot is None or there is None:
            return None
        if stat.S_ISLNK(there.st_mode):
            target = os.readlink(spot.name, dir_fd=spot.dir_fd)
            return Change(root, path, Kind.MODIFIED, Type.LINK, None, target, (), Type.LINK)
        if not stat.S_ISREG(there.st_mode) or is_copied_up(f"{self._upper.root}/{path}"):
            return None
        mode = stat.S_IMODE(there.st_mode)
        return Change(root, path, Kind.MODIFIED, Type.FILE, mode, None, (), Type.FILE, mode)

    def find(self, items: Sequence[Recorded]) -> set[str]:
        crossed = {item.change.path for item in items if self._is_crossed(item.change)}
        # What cannot go, or become something else, keeps all that is in it.
        whole = {
            item.change.path
            for item in items
            if item.change.path in crossed and _leaves_no_folder(item.change)
        }
        return crossed | {
            item.change.path
            for item in items
            if any(above in whole for above in folders_above(item.change.path))
        }

    def _is_crossed(self, change: Change) -> bool:
        if self._resumed:
            spot = spot_in(self._upper, change.path)
            if (spot is None or spot.lstat() is None) and not self._is_hidden(change.path):
                return False
        return self.meets(change)

    def _is_hidden(self, path: str) -> bool:
        return any(_is_marked(self._upper, folder) for folder in folders_above(path))

    def meets(self, change: Change) -> bool:
        path, is_gone = change.path, change.kind is Kind.DELETED
        if path in self._unseen:
            return not (self._unseen[path] if is_gone else self._is_same(change))
        for above in folders_above(path):
            if above in self._unseen:
                return not (is_gone and self._unseen[above])
        return path in self._stirred and _leaves_no_folder(change)

    def _is_same(self, change: Change) -> bool:
        if change.type is Type.FOLDER:
            return False
        one, other = spot_in(self._upper, change.path), spot_in(self._layer, change.path)
        found = one.lstat() if one else None
        there = other.lstat() if other else None
        if one is None or other is None or found is None or there is None:
            return False
        if found.st_mode != there.st_mode or found.st_size != there.st_size:
            return False
        if stat.S_ISLNK(found.st_mode):
            words = {os.readlink(spot.name, dir_fd=spot.dir_fd) for spot in (one, other)}
            return len(words) == 1
        return same_bytes(one.name, one.dir_fd, other.name, other.dir_fd)


def _open_folders(upper: str, items: Sequence[Recorded], renewed: Collection[str]) -> None:
    """Where a folder was made anew, hide by name what the command saw, and nothing else."""
    tree = OpenTree(upper, modes_file(upper))
    try:
        # One that is open is done: what it hid may be merged by now.
        marked = [path for path in renewed if _is_marked(tree, path)]
        for item in items:
            change = item.change
            if change.kind is not Kind.DELETED or item.is_aside:
                continue
            if any(folder in marked for folder in folders_above(change.path)):
                spot = spot_in(tree, change.path)
                if spot is not None and spot.lstat() is None:
                    os.mknod(spot.name, stat.S_IFCHR, 0, dir_fd=spot.dir_fd)
        # Last, so that a second time finds all that is not done.
        for path in marked:
            os.removexattr(tree.folder(path), OPAQUE)
    finally:
        tree.close()


def _take_out(upper: str, paths: set[str], needed: set[str]) -> None:
    tree = OpenTree(upper, modes_file(upper))
    try:
        for path in sorted(paths, reverse=True):
            # What is in a folder that was made anew is all that there is of that.
            if any(_is_marked(tree, above) for above in folders_above(path)):
                continue
            spot = spot_in(tree, path)
            found = spot.lstat() if spot else None
            if spot is None or found is None:
                continue
            if stat.S_ISDIR(found.st_mode):
                _remove_empty(spot)
            else:
                os.unlink(spot.name, dir_fd=spot.dir_fd)
        _remove_ways(tree, paths, needed)
    finally:
        tree.close()


def _is_marked(tree: OpenTree, path: str) -> bool:
    try:
        return is_opaque(tree.folder(path))
    except OSError:
        return False


def _leaves_no_folder(change: Change) -> bool:
    return change.kind is Kind.DELETED or change.type is not Type.FOLDER
