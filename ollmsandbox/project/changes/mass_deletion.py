# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds the deletions of a run that removes most of the project or of a repository.

This protects against accidents, such as `rm -rf ~` in a project below the home folder. Nothing is
counted for a run that deletes little, and counting ends as soon as enough files are found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..ignore import GENERATED, IgnoredPaths
from ..roots import is_git_folder
from .change import Change, Flag, Kind, Type

# Fewer can be taken in at a glance when they are listed, and undone. Otherwise a small project
# would need an approval for each little clean-up.
FEWEST = 10
# Parts of a repository that git itself never removes.
_ESSENTIAL = frozenset(("HEAD", "objects", "objects/pack", "refs", "refs/heads"))


def hold_mass_deletion(root: str, changes: list[Change]) -> None:
    """Mark the deletions as held if they are most of the project or of a repository in it."""
    deletions = [change for change in changes if change.kind is Kind.DELETED]
    if not deletions:
        return
    is_repository = is_git_folder(root)
    places = [change.path if is_repository else _in_repository(change.path) for change in deletions]
    others = [change for change, place in zip(deletions, places, strict=True) if place is None]
    is_lost = not _ESSENTIAL.isdisjoint(places) or _loses_objects(places, changes)
    if not is_lost and not _is_most_of_project(root, others, changes):
        return
    for number, change in enumerate(changes):
        # What replaces a folder cannot be applied before the deletions in it.
        replaces_folder = change.old_type is Type.FOLDER and change.type is not Type.FOLDER
        if (change.kind is Kind.DELETED or replaces_folder) and Flag.HELD not in change.flags:
            changes[number] = change._replace(flags=(*change.flags, Flag.HELD))


def _in_repository(path: str) -> str | None:
    """Return the path in the git folder that a path is in; None if it is in none."""
    _, found, inner = f"/{path}/".partition("/.git/")
    return inner.rstrip("/") if found else None


def _loses_objects(deleted: Iterable[str | None], changes: Iterable[Change]) -> bool:
    """Return whether many objects of a repository were deleted, unless git has packed them."""
    if sum(path is not None and path.startswith("objects/") for path in deleted) < FEWEST:
        return False
    added = (f"/{change.path}" for change in changes if change.kind is Kind.ADDED)
    return not any("/objects/pack/" in path for path in added)


def _is_most_of_project(root: str, deletions: Sequence[Change], changes: Iterable[Change]) -> bool:
    if len(deletions) < FEWEST:
        return False
    ignored = IgnoredPaths(root, GENERATED)

    def counted(some: Iterable[Change]) -> set[str]:
        return {
            change.path
            for change in some
            if change.type is not Type.FOLDER
            and _in_repository(change.path) is None
            and not ignored.covers(change.path, is_folder=False)
        }

    deleted = counted(deletions)
    # A file that was moved is one deleted and one added. A held one is not in its new place.
    added = counted(
        change for change in changes if change.kind is Kind.ADDED and Flag.HELD not in change.flags
    )
    if len(deleted) - len(added) < FEWEST:
        return False
    # Most are gone unless so many are left: lost <= (deleted + left) / 2.
    enough = len(deleted) - 2 * len(added)
    for file in _files(root, ignored):
        enough -= file not in deleted
        if enough <= 0:
            return False
    return enough > 0


def _files(root: str, ignored: IgnoredPaths) -> Iterator[str]:
    """Yield the files on disk, without repositories, nearest first. Links are not followed."""
    waiting = [""]
    while waiting:
        inner = []
        for folder in waiting:
            try:
                entries = list(os.scandir(f"{root}/{folder}"))
            except OSError:
                continue  # what cannot be read is not counted
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or ignored.covers(path, is_folder=is_folder):
                    continue
                if is_folder:
                    inner.append(path)
                else:
                    yield path
        waiting = inner
