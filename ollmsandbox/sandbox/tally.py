# SPDX-License-Identifier: GPL-3.0-or-later
"""Which paths are changed, as far as that was noticed, and how many: bounded, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_MOST_KEPT = 10_000
_MOST_ERRORS = 10


class Kind(Enum):
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"


@dataclass(frozen=True)
class Event:
    """What just happened to a path, and how many paths are changed now."""

    kind: Kind
    path: str
    count: int


class Tally:
    """And who wants to hear of it."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Event], None]] = []
        self.errors: list[Exception] = []
        self._paths: dict[Kind, dict[str, None]] = {kind: {} for kind in Kind}
        # Those that are too many to be known by name.
        self.not_kept = 0

    def __len__(self) -> int:
        return sum(map(len, self._paths.values())) + self.not_kept

    def paths(self, kind: Kind) -> list[str]:
        return list(self._paths[kind])

    def kind(self, path: str) -> Kind | None:
        return next((kind for kind, paths in self._paths.items() if path in paths), None)

    @property
    def is_full(self) -> bool:
        """Of what is there; deletions aside."""
        return any(len(self._paths[kind]) >= _MOST_KEPT for kind in (Kind.ADDED, Kind.UPDATED))

    def keep(self, path: str, kind: Kind) -> bool:
        """False if there are too many."""
        if len(self._paths[kind]) >= _MOST_KEPT:
            return False
        self._paths[kind][path] = None
        return True

    def drop(self, path: str, kind: Kind) -> None:
        del self._paths[kind][path]

    def tell(self, kind: Kind, path: str) -> None:
        event = Event(kind, path, len(self))
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a view that fails must not blind the others
                if len(self.errors) < _MOST_ERRORS:
                    self.errors.append(error)
