# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks files that have a risky path by way of a link: `.vscode` may be a link to `tools`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from ...files.dirfd import folders_above, follow_links, link_target
from ..change import Change, Flag, Type
from .risky import NamesAround, beginnings_of_risky_paths, risk_of


def mark_link_targets(layers: Sequence[str], changes: list[Change], around: NamesAround) -> None:
    """Mark changes of files in the root that have a risky path by way of a link: one that changed,
    or one in the root's own folder. `layers` go from the top to the project."""
    targets: dict[str, Flag] = {}
    beginnings: dict[str, set[str]] = {}
    for path in {change.path for change in changes if change.type is Type.LINK} | around.names(""):
        flag, ends = risk_of(path), beginnings_of_risky_paths(path)
        target = _resolve(layers, path) if flag or ends else path
        if target and target != path:
            beginnings.setdefault(target, set()).update(ends)
            if flag:
                targets[target] = flag
    for at, change in enumerate(changes) if beginnings else ():
        flag = _flag_for(change.path, targets, beginnings)
        if flag and change.type is not Type.FOLDER and not _MARKS.intersection(change.flags):
            changes[at] = change._replace(flags=(*change.flags, flag))


_MARKS = frozenset((Flag.LATER, Flag.OPENING, Flag.TOOL, Flag.BUILD))


def _flag_for(path: str, targets: dict[str, Flag], beginnings: dict[str, set[str]]) -> Flag | None:
    for place in (path, *folders_above(path)):
        if place in targets:
            return targets[place]
        for beginning in beginnings.get(place, ()):
            if flag := risk_of(beginning + path[len(place) :]):
                return flag
    return None


def _resolve(layers: Sequence[str], path: str) -> str:
    """Return where a path leads within the root, or "" if it leaves it."""
    root = f"{layers[-1]}/"

    def target_of(place: str) -> str | None:
        return _link_at(layers, place.removeprefix(root)) if place.startswith(root) else None

    try:
        real = follow_links(root + path, target_of)
    except OSError:
        return ""
    return real.removeprefix(root) if real.startswith(root) else ""


def _link_at(layers: Iterable[str], path: str) -> str | None:
    """Return the target of a link; None if there is none, or something else. The folders on the way
    are no links."""
    for layer in layers:
        with contextlib.suppress(OSError):
            return link_target(f"{layer}/{path}")
    return None
