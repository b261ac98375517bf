# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks files that have a risky path by way of a link: `.vscode` may be a link to `tools`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from ...files.dirfd import folders_above
from ..change import Change, Flag, Type
from .risky import NamesAround, beginnings_of_risky_paths, risk_of

# As many as the kernel follows.
_MOST_LINKS = 40


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
    real: list[str] = []
    rest = path.split("/")
    followed = 0
    while rest:
        name = rest.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            if not real:
                return ""
            real.pop()
            continue
        target = _link_at(layers, "/".join((*real, name)))
        if target is None:
            real.append(name)
            continue
        followed += 1
        if followed > _MOST_LINKS:
            return ""
        if target.startswith("/"):
            root = f"{layers[-1]}/"
            if not target.startswith(root):
                return ""
            real, target = [], target[len(root) :]
        rest = target.split("/") + rest
    return "/".join(real)


def _link_at(layers: Iterable[str], path: str) -> str | None:
    """Return the target of a link; None if there is none, or something else. The folders on the way
    are no links."""
    for layer in layers:
        try:
            return os.readlink(f"{layer}/{path}")
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
    return None
