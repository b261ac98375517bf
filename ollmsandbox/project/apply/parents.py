# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders around what changes: those that are missing, and those that are closed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Sequence

from ..changes.change import Change, Kind, Recorded, State, Type
from ..database import runs
from ..manager import ProjectManager
from ..pending import layer as pending
from ..pending.chain import Chain
from ..pending.squash import unsquash


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


def closed_folders(root: str, changes: Iterable[Change]) -> dict[str, int]:
    """Folders on disk that nobody may write in, and that hold something that changes."""
    if os.getuid() == 0:
        return {}
    found: dict[str, int] = {}
    for around in {os.path.dirname(change.path) for change in changes}:
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(os.lstat(f"{root}/{around}").st_mode)
            if mode & 0o700 != 0o700:
                found[around] = mode
    return found


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
