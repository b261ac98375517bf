# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain of a project's pending changes: a layer for each run and root, in overlayfs's format.

A command sees the layers of all runs that ended before it, one above the other, and the project
below them. A layer is never written to again: what is applied or discarded goes out of it. Instead
of too many layers, one that shows the same as those of the oldest runs is mounted (squash.py).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ... import N_
from ...errors import OllmSandboxError
from ...files.atomic import write_locked
from ...files.dirfd import allow_many_descriptors
from ...paths import Paths

_FILE = "chain.json"
# Bytes for the names of mounted layers: the kernel reads one page, and bwrap makes them longer.
_ROOM = 3000
# More layers may need more open files than a process usually may have.
_MANY = 200


class Squashed(NamedTuple):
    """Layers that show the same as those of the oldest runs."""

    folder: str
    runs: list[str]
    # As of a run: the roots, by the names of their layers.
    names: dict[str, str]


class Chain:
    """A project's runs with pending changes, as they were when this object was made. Whoever
    changes the chain has to hold the project's lock."""

    def __init__(self, paths: Paths, project: str) -> None:
        self._project = project
        self.folder = paths.pending(project)
        # By run, the oldest first: the roots, by the names of their layers.
        self._runs: dict[str, dict[str, str]] = {}
        self.squashed: Squashed | None = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = _read(self.folder / _FILE)
            self._runs = found["runs"]
            if squashed := found.get("squashed"):
                self.squashed = Squashed(*squashed)
        if len(self._runs) > _MANY:
            allow_many_descriptors()

    @property
    def runs(self) -> list[str]:
        """Return the ids of the runs, the oldest first."""
        return list(self._runs)

    def roots_of(self, run_id: str) -> dict[str, str]:
        """Return, by root, the existing layers of a run."""
        layers = {
            root: str(self.folder / run_id / name)
            for name, root in self._runs.get(run_id, {}).items()
        }
        return {root: layer for root, layer in layers.items() if os.path.isdir(layer)}

    def layer_of(self, run_id: str, root: str) -> str:
        """Return the path of a run's layer of a root, whether it exists or not; "" if the run has
        nothing pending there."""
        names = (name for name, path in self._runs.get(run_id, {}).items() if path == root)
        return next((str(self.folder / run_id / name) for name in names), "")

    def layers(self, root: str, *, below: str = "") -> tuple[str, ...]:
        """Return the existing layers of a root, the last run's first; only those `below` a run."""
        found = []
        for run_id in self._runs:
            if run_id == below:
                break
            if (layer := self.layer_of(run_id, root)) and os.path.isdir(layer):
                found.append(layer)
        return tuple(reversed(found))

    def mounted(self, root: str) -> tuple[str, ...]:
        """Return the layers of a root that show the same as all of them, the last run's first."""
        if self.squashed is None:
            return self.layers(root)
        older = frozenset(self.squashed.runs)
        layers = [layer for layer in self.layers(root) if run_of(layer) not in older]
        squashed = (
            str(self.folder / self.squashed.folder / name)
            for name, path in self.squashed.names.items()
            if path == root
        )
        return (*layers, *squashed)

    def runs_that_fit(self, part: float = 1) -> int:
        """Return how many of the last runs have layers that can be mounted together, in a `part` of
        the room that there is for names."""
        size = 0
        for count, run_id in enumerate(reversed(self._runs)):
            if self.squashed and run_id in self.squashed.runs:
                return len(self._runs)
            size += sum(len(os.fsencode(layer)) + 1 for layer in self.roots_of(run_id).values())
            if size > _ROOM * part:
                return count
        return len(self._runs)

    def set_squashed(self, squashed: Squashed | None) -> None:
        self.squashed = squashed
        self._write()

    def lowers(self, run_id: str, root: str) -> list[str]:
        """Return what is below a run's layer of a root, from the top."""
        return [*self.layers(root, below=run_id), root]

    def add(self, run_id: str, names: Mapping[str, str]) -> None:
        """Put a run on top: its roots, by the names of their layers, which are made afterwards."""
        known = self._runs.get(run_id, {})
        if names.items() <= known.items():
            return
        self._runs[run_id] = {**known, **names}
        self._write()

    def add_below(self, run_id: str, names: Mapping[str, str]) -> None:
        """Put a run below all others, unless it is in the chain."""
        if run_id not in self._runs:
            self._runs = {run_id: dict(names), **self._runs}
            self.set_squashed(None)

    def drop_empty(self, runs: Collection[str]) -> None:
        """Forget those of the runs that have no layer any more."""
        gone = [run_id for run_id in runs if run_id in self._runs and not self.roots_of(run_id)]
        for run_id in gone:
            del self._runs[run_id]
            with contextlib.suppress(OSError):  # a command has a layer mounted that went
                os.rmdir(self.folder / run_id)
        if gone:
            self._write()

    def move_root(self, old: str, new: str) -> None:
        """Record the new path of a root, after the chain's folder was renamed."""
        moved = {
            run_id: {name: new if root == old else root for name, root in names.items()}
            for run_id, names in self._runs.items()
        }
        if moved != self._runs:
            self._runs = moved
            self.set_squashed(None)

    def _write(self) -> None:
        if self._runs:
            text = json.dumps(
                {"project": self._project, "runs": self._runs, "squashed": self.squashed}
            )
            write_locked(self.folder / _FILE, text, durably=True)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder / _FILE)
        with contextlib.suppress(OSError):  # as above
            os.rmdir(self.folder)


def chains(paths: Paths) -> Iterator[tuple[str, Chain]]:
    """Yield each project that has pending changes."""
    for file in sorted((paths.data / "pending").glob(f"*/{_FILE}")):
        with contextlib.suppress(FileNotFoundError):
            project = _read(file)["project"]
            yield project, Chain(paths, project)


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OllmSandboxError(
            N_("The list of pending changes cannot be read: {file}."),
            N_("Move the file away. The changes stay in its folder."),
            file=file,
        ) from error
    return found


def layers_of(paths: Paths, project: str, root: str) -> tuple[str, ...]:
    """Return what the next command sees of a root, from the top: its layers, and the root."""
    return (*Chain(paths, project).layers(root), root)


def run_of(layer: str) -> str:
    """Return the id of the run that a layer belongs to."""
    return os.path.basename(os.path.dirname(layer))
