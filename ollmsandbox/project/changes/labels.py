# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes in plain English, for the command line and for models. The window has its own texts."""

from __future__ import annotations

from collections.abc import Sequence

from ...text.ansi import escape_line
from .change import Flag, Kind, Recorded, Skipped, Type

# What is lost comes first.
KIND_ORDER = (Kind.DELETED, Kind.REPLACED, Kind.MODIFIED, Kind.ADDED)
FLAG_LABELS = {
    Flag.LATER: "can run code outside the sandbox",
    Flag.EXECUTABLE: "executable",
    Flag.OUTSIDE: "leads out of the project",
    Flag.STRIPPED: "its setuid or setgid bit was removed",
    Flag.HELD: "needs approval",
}


def count_kinds(items: Sequence[Recorded]) -> dict[Kind, int]:
    """Return the number of changes of each kind that there is."""
    # list.count() makes no Python call per item: there may be a hundred thousand.
    kinds = [item.change.kind for item in items]
    return {kind: count for kind in KIND_ORDER if (count := kinds.count(kind))}


def shown_path(item: Recorded | Skipped, project: str) -> str:
    """Return the path relative to the project, or the absolute path in a linked root."""
    place = item if isinstance(item, Skipped) else item.change
    return place.path if place.root == project else f"{place.root}/{place.path}"


def shown_name(item: Recorded, project: str) -> str:
    """Return the path on one line, with a slash for a folder and the target of a link."""
    change = item.change
    name = escape_line(shown_path(item, project)) + ("/" if change.type is Type.FOLDER else "")
    return name if change.target is None else f"{name} -> {escape_line(change.target)}"
