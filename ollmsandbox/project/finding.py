# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run changed, as it goes into the journal: in order, and with what another run did to the
same files meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..paths import Paths
from ..sandbox.overlay import Overlay, clock_offset, time_at
from . import pending, records
from .abandoned import check
from .change import Change, ChangeSet, Kind, Recorded, Type
from .changes import scan
from .crossing import NEVER_SEEN, came_since, in_layer
from .crossing import uncrossed as uncrossed_in
from .journal import Job, Way
from .layers import is_copied_up
from .manager import ProjectManager
from .models import Project
from .tree import mend

# A clock that is set back by less is taken for a measuring error.
_JITTER = 1_000_000
_SLACK = 1_000_000_000
# By so much a file system's clock may be behind.
_TICK = records.APART_NS // 2


def find_changes(overlay: Overlay) -> dict[str, ChangeSet]:
    check(overlay)
    found = {}
    for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
        # Folders may still be open that were looked into when somebody was killed.
        mend(overlay.upper(name))
        # What waited when the run began may have been applied since.
        waits = root.pending and os.path.isdir(root.pending)
        lowers = [root.pending, root.path] if waits else [root.path]
        found[name] = scan(overlay.upper(name), lowers, root.path)
    return found


def numbered(overlay: Overlay, changes: Sequence[Change]) -> list[Recorded]:
    began = _began(overlay)
    return [
        Recorded(number, change, began=began[change.root])
        for number, change in enumerate(_with_what_is_missed(overlay, began, changes))
    ]


def uncrossed(
    paths: Paths, overlay: Overlay, items: Sequence[Recorded], sets: Mapping[str, ChangeSet]
) -> tuple[list[Recorded], dict[str, Way]]:
    """Those that another run did not cross, and the others as conflicts; and by root, what is to be
    done for that before they are merged."""
    path = overlay.roots[0].path
    folder = paths.pending(path)
    if not folder.is_dir():
        return list(items), {}
    layers = {root.path: pending.layer_for(folder, root.path) for root in overlay.roots}
    if all(map(pending.is_empty, layers.values())):
        return list(items), {}
    back = _set_back(overlay)
    found: list[Recorded] = []
    ways: dict[str, Way] = {}
    manager = ProjectManager(paths)
    try:
        project = manager.find_project(path)
        for (name, of_root), root in zip(sets.items(), overlay.roots, strict=True):
            layer = layers[root.path]
            since = overlay.began_below(name) - back if root.pending else NEVER_SEEN
            # Where the clock was set back meanwhile, that cannot be told.
            newest = overlay.newest_below(name) if root.pending and not back else 0
            later = _later(manager, project, root.path, max(since, newest))
            now = time_at(layer) if newest else 0
            kept, ways[root.path] = uncrossed_in(
                overlay.upper(name),
                layer,
                root.path,
                [item for item in items if item.change.root == root.path],
                came_since(layer, since, newest=newest, now=now) | in_layer(layer, later),
                (*of_root.idle, *(skipped.path for skipped in of_root.skipped)),
            )
            found += kept
    finally:
        manager.close()
    return [item._replace(number=number) for number, item in enumerate(found)], ways


def uncrossed_again(
    manager: ProjectManager, project: Project, overlay: Overlay, job: Job, since: int
) -> tuple[Job, set[tuple[str, str]]]:
    """After a kill, from which time on others may have put something into the layers: the same; and
    by root and path what is theirs now."""
    items: list[Recorded] = []
    ways: dict[str, Way] = {}
    theirs: set[tuple[str, str]] = set()
    for name, root in overlay.overlay_map.items():
        layer = job.sources[root]
        # Not by what came since: that may be what we merged ourselves.
        unseen = in_layer(layer, _later(manager, project, root, since))
        here = [item for item in job.items if item.change.root == root]
        kept, ways[root] = uncrossed_in(overlay.upper(name), layer, root, here, unseen, None)
        items += kept
        theirs |= {(root, path) for path in unseen}
    return replace(job, items=tuple(items), ways=ways), theirs


def _later(manager: ProjectManager, project: Project | None, root: str, since: int) -> set[str]:
    """Paths of which other runs, which ended since, have put something into the layer."""
    waits = records.waiting(manager, project, root) if project else {}
    return {path for path, one in waits.items() if one.ended_at * 1e9 > since + _TICK}


def _began(overlay: Overlay) -> dict[str, int]:
    """By root."""
    back = _set_back(overlay)
    return {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}


def _set_back(overlay: Overlay) -> int:
    """How far the clock was, so that files changed since may bear a time before the beginning."""
    set_back = overlay.clock - clock_offset()
    return set_back + _SLACK if set_back > _JITTER else 0


def _with_what_is_missed(
    overlay: Overlay, began: Mapping[str, int], changes: Sequence[Change]
) -> Iterator[Change]:
    """A file that somebody deleted while the command changed it looks as if the command had made
    it. But it was copied up, and the folder around it on disk has changed since."""
    uppers = {root: overlay.upper(name) for name, root in overlay.overlay_map.items()}
    touched: dict[str, bool] = {}
    for change in changes:
        if change.kind is Kind.ADDED and change.type is Type.FILE:
            around = os.path.dirname(f"{change.root}/{change.path}")
            if around not in touched:
                touched[around] = _changed_since(around, began[change.root])
            if touched[around] and is_copied_up(f"{uppers[change.root]}/{change.path}"):
                yield change._replace(kind=Kind.MODIFIED, old_type=Type.FILE, old_mode=change.mode)
                continue
        yield change


def _changed_since(folder: str, began: int) -> bool:
    try:
        return os.lstat(folder).st_ctime_ns > began
    except OSError:
        return False
