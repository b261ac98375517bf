# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run changed, as it goes into the journal: in order, and with what another run did to the
same files meanwhile."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from ..paths import Paths
from ..sandbox.overlay import Overlay, clock_offset, time_at
from . import elsewhere, pending, records
from .abandoned import check
from .arriving import NEVER_SEEN, Unseen, came_since, in_layer, made_folders
from .change import Change, ChangeSet, Recorded
from .changes import scan
from .crossing import NEW
from .crossing import uncrossed as uncrossed_in
from .elsewhere import Elsewhere
from .journal import Job, Journal, Way
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
    roots = {
        root: Elsewhere(root, overlay.upper(name), began[root])
        for name, root in overlay.overlay_map.items()
    }
    return elsewhere.numbered(changes, roots, began)


def uncrossed(
    paths: Paths, overlay: Overlay, items: Sequence[Recorded], sets: Mapping[str, ChangeSet]
) -> tuple[list[Recorded], dict[str, Way]]:
    """Those that another run did not cross, and the others as conflicts; and by root, what is to be
    done for that before they are merged."""
    path = overlay.project
    folder = paths.pending(path)
    if not folder.is_dir():
        return list(items), {}
    layers = {root.path: pending.layer_for(folder, root.path) for root in overlay.roots}
    if all(map(pending.is_empty, layers.values())):
        return list(items), {}
    back, began = _set_back(overlay), _began(overlay)
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
            later = _later(manager, project, root.path, max(since, newest) + _TICK)
            now = time_at(layer) if newest else 0
            came = came_since(layer, since, newest=newest, now=now) | in_layer(layer, later)
            kept, ways[root.path] = uncrossed_in(
                overlay.upper(name),
                layer,
                root.path,
                [item for item in items if item.change.root == root.path],
                Unseen(came, made_folders(layer, root.path, later)),
                (*of_root.idle, *(skipped.path for skipped in of_root.skipped)),
                began[root.path],
            )
            found += kept
    finally:
        manager.close()
    return [item._replace(number=number) for number, item in enumerate(found)], ways


def uncrossed_again(
    manager: ProjectManager, project: Project, overlay: Overlay, job: Job, since: int
) -> tuple[Job, set[tuple[str, str]]]:
    """After a kill, from which time on others may have put something into the layers: the same, or
    the job as it is; and by root and path what is theirs now."""
    items: list[Recorded] = []
    ways: dict[str, Way] = {}
    theirs: set[tuple[str, str]] = set()
    began, is_new = _began(overlay), False
    for name, root in overlay.overlay_map.items():
        layer = job.sources[root]
        # Not by what came since: that may be what we merged ourselves. `since` is no file's time,
        # so another run may have ended a moment later.
        later = _later(manager, project, root, since)
        unseen = Unseen(in_layer(layer, later), made_folders(layer, root, later))
        here = [item for item in job.items if item.change.root == root]
        upper = overlay.upper(name)
        kept, way = uncrossed_in(upper, layer, root, here, unseen, None, began[root])
        covered = {*way.covered, *job.ways.get(root, Way()).covered}
        ways[root] = replace(way, covered=tuple(sorted(covered)))
        items += kept
        theirs |= {(root, path) for path in unseen.places}
        is_new |= bool(unseen)
    if not is_new:
        return job, theirs
    free = count(first_free(manager, overlay, job.items))
    items = [item._replace(number=next(free)) if item.number == NEW else item for item in items]
    return replace(job, items=tuple(items), ways=ways), theirs


def first_free(manager: ProjectManager, overlay: Overlay, items: Sequence[Recorded]) -> int:
    """The number after those of all the run's changes: it may be finished in parts."""
    journal = Journal.of_run(overlay.folder)
    jobs = (*journal.read_all(), *journal.read_put_off())
    known = [item.number for job in jobs for item in job.items]
    known += [item.number for item in items]
    return 1 + max((records.last_number(manager, overlay.run_id), *known))


def _later(manager: ProjectManager, project: Project | None, root: str, since: int) -> set[str]:
    """Paths of which other runs, which ended since, have put something into the layer."""
    waits = records.waiting(manager, project, root) if project else {}
    return {path for path, one in waits.items() if one.ended_at * 1e9 > since}


def _began(overlay: Overlay) -> dict[str, int]:
    """By root."""
    back = _set_back(overlay)
    return {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}


def _set_back(overlay: Overlay) -> int:
    """How far the clock was, so that files changed since may bear a time before the beginning."""
    set_back = overlay.clock - clock_offset()
    return set_back + _SLACK if set_back > _JITTER else 0
