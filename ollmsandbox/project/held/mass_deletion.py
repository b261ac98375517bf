# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds the deletions of a run that removes most of the project or of a repository.

This protects against accidents, such as `rm -rf ~` in a project below the home folder. Nothing is
counted for a run that deletes little, and counting ends as soon as enough files are found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...files.ignore import GENERATED, IgnoredPaths
from ...files.trees import walk
from ..change import Change, Flag, Kind, Type
from ..roots import is_git_folder

# Fewer can be taken in at a glance when they are listed, and undone. Otherwise a small project
# would need an approval for each little clean-up.
FEWEST = 10
# Parts of a repository that git itself never removes. Objects that nothing else has are held.
_ESSENTIAL = frozenset(("HEAD", "objects", "objects/pack", "refs", "refs/heads"))


def hold_mass_deletion(root: str, changes: list[Change]) -> None:
    """Mark the deletions as held if they are most of the project or of a repository in it."""
    deletions = [change for change in changes if change.kind is Kind.DELETED]
    if not deletions:
        return
    around = ".git/" if is_git_folder(root) else ""
    inner = [_in_repository(f"{around}{change.path}") for change in deletions]
    others = [change for change, name in zip(deletions, inner, strict=True) if name is None]
    pairs = zip(deletions, inner, strict=True)
    lost = sum((name or "").startswith("objects/") and Flag.HELD in c.flags for c, name in pairs)
    is_lost = lost >= FEWEST or not _ESSENTIAL.isdisjoint(inner)
    if not is_lost and not _is_most_of_project(root, others, changes):
        return
    for number, change in enumerate(changes):
        # What replaces a folder cannot be applied before the deletions in there.
        is_gone = change.old_type is Type.FOLDER and change.type is not Type.FOLDER
        is_gone = is_gone or change.kind is Kind.DELETED
        if is_gone and Flag.HELD not in change.flags:
            changes[number] = change._replace(flags=(*change.flags, Flag.HELD))


def _in_repository(path: str) -> str | None:
    """Return the path in the git folder that it is in."""
    _around, found, inner = f"/{path}".partition("/.git/")
    return inner if found else None


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
    for file in _files(root, ignored.covers):
        enough -= file not in deleted
        if enough <= 0:
            return False
    return enough > 0


def _files(root: str, is_left_out: Callable[..., bool]) -> Iterator[str]:
    """Yield the files on disk, without repositories. Links are not followed, and what cannot be
    read is not counted."""
    for folder in walk(root, skip_errors=True):
        around = f"{folder.path}/" if folder.path else ""
        with contextlib.suppress(OSError):
            entries = list(os.scandir(folder.descriptor))
            for entry in entries:
                path = around + entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name == ".git" or is_left_out(path, is_folder=is_folder):
                    continue
                if is_folder:
                    folder.folders.append(entry.name)
                else:
                    yield path
