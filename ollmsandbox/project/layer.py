# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending layer: what the project would be if all pending changes were applied in order.

Commands see it above the project. It is built from the folders of the runs, with hard links and
whiteouts, and is built again if it is deleted. A new generation is built when a command starts and
something has changed since the last one; a generation that a command sees is never changed.

    layer.json               the runs with pending changes, and the generation that shows them
    layer-x/overlay1         the layer of the first root, and so on
    layer-x/index.json       which change each path is from
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import OllmSandboxError
from ..files import trees
from ..files.atomic import write_atomically
from ..files.dirfd import DirEntryAt, folders_above, opened_folder
from ..files.locks import FileLock
from ..paths import Paths
from ..text.merge import merge_change
from .change import Kind, Recorded, Type
from .run import RunFolder, is_pending, read_run, read_small, run_ids, signature

_FILE, _INDEX, _PREFIX = "layer.json", "index.json", "layer-"
_LONGEST = 4096


class _LayerFile(NamedTuple):
    """The content of layer.json."""

    # Runs with pending changes, in the order in which they ended.
    runs: list[str]
    # "" if a new generation has to be built.
    generation: str = ""
    # The root and the name of each layer.
    names: Sequence[Sequence[str]] = ()
    # Paths in the project that the layer depends on, with their signatures.
    checks: Sequence[Sequence[str]] = ()


class PendingLayer:
    """The pending changes of one project."""

    def __init__(self, paths: Paths, project: str) -> None:
        self._paths = paths
        self._folder = paths.project_data(project)
        self._project = project

    # --- which runs have pending changes -----------------------------------------------------

    def runs(self) -> list[str]:
        """Return the runs with pending changes, the oldest first."""
        return self._read().runs

    def changes(self) -> list[tuple[str, Recorded]]:
        """Return the pending changes, each with its run, the oldest first."""
        return [
            (run_id, item)
            for run_id in self.runs()
            for item in self._read_changes(run_id)
            if is_pending(item)
        ]

    def _read_changes(self, run_id: str) -> list[Recorded]:
        # A run that cannot be read must not keep commands from the project.
        with contextlib.suppress(OllmSandboxError):
            return read_run(self._paths, run_id).changes
        return []

    def make_file(self) -> None:
        """Make layer.json again if it is lost, while the project's lock is held."""
        if not (self._folder / _FILE).exists():
            self._write(self._read())

    def note(self, decided: Mapping[str, bool]) -> None:
        """Note which runs have pending changes after something was decided, while the project's
        lock is held."""
        runs = [run_id for run_id in self._read().runs if decided.get(run_id, True)]
        runs += [run_id for run_id, is_new in decided.items() if is_new and run_id not in runs]
        self._write(_LayerFile(runs))
        self._remove_unused()

    def release(self) -> None:
        """Remove the generations that no command sees. Their files have one name less then, and can
        be moved into the project."""
        state = self._read()
        if state.runs:
            self._write(_LayerFile(state.runs))
        self._remove_unused()

    # --- what a command sees -----------------------------------------------------------------

    def open(
        self, roots: Sequence[str], *, is_locked: bool = False
    ) -> tuple[dict[str, str], FileLock | None]:
        """Return the layers by root, built anew if necessary, and a lock: as long as it is held, or
        an overlay folder names the layer, they stay."""
        if (found := self._open_current(roots)) is not None:
            return found
        with contextlib.nullcontext() if is_locked else FileLock(self._folder / "lock"):
            self.make_file()
            if (found := self._open_current(roots)) is not None:
                return found
            self._build(roots)
            # Without a check: a file that changes all the time must not keep a command from it.
            found = self._open_current(roots, check=False)
            assert found is not None
            return found

    def _open_current(
        self, roots: Sequence[str], *, check: bool = True
    ) -> tuple[dict[str, str], FileLock | None] | None:
        """Return the layers of the last generation, locked; None if another one is needed."""
        if not (self._folder / _FILE).exists():
            return None
        state = self._read()
        if not state.runs:
            return {}, None
        is_current = not check or all(_signature(path) == known for path, known in state.checks)
        if not state.generation or not is_current:
            return None
        folder = self._folder / state.generation
        with contextlib.suppress(FileNotFoundError):
            lock = FileLock(folder, is_folder=True, shared=True)
            if folder.is_dir():
                layers = {root: str(folder / name) for root, name in state.names}
                return {root: layers[root] for root in roots if root in layers}, lock
        return None

    def _build(self, roots: Sequence[str]) -> None:
        state = self._read()
        views: dict[str, _View] = {root: _View(root) for root in roots}
        for run_id in state.runs:
            folder = RunFolder(self._paths, run_id)
            for item in self._read_changes(run_id):
                if is_pending(item) and not item.is_lost and item.change.root in views:
                    views[item.change.root].add(folder, item)
        name = f"{_PREFIX}{time.time_ns():x}"
        made = self._folder / f".{name}"
        made.mkdir(0o700)
        names = {}
        checks: list[list[str]] = []
        index = {}
        for number, (root, view) in enumerate(views.items(), 1):
            if view.entries and os.path.isdir(root):
                names[root] = f"overlay{number}"
                checks += view.build(str(made / names[root]))
                index[names[root]] = {path: entry.on for path, entry in view.entries.items()}
        (made / _INDEX).write_text(json.dumps(index), encoding="utf-8")
        made.rename(self._folder / name)
        self._write(_LayerFile(state.runs, name, [*names.items()], checks))
        self._remove_unused(name)

    def _remove_unused(self, current: str = "") -> None:
        """Remove the generations that no command sees."""
        found = [*self._folder.glob(f"{_PREFIX}*/"), *self._folder.glob(f".{_PREFIX}*/")]
        others = {str(folder) for folder in found if folder.name != current}
        for folder in others.difference(_named_by_overlays(self._paths.cache)) if others else ():
            with (
                contextlib.suppress(BlockingIOError, FileNotFoundError),
                FileLock(Path(folder), is_folder=True, timeout=0),
            ):
                trees.remove_path(folder)

    def _read(self) -> _LayerFile:
        # If it cannot be read, it is made again.
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            given = json.loads((self._folder / _FILE).read_text(encoding="utf-8"))
            if isinstance(given["runs"], list):
                return _LayerFile(**given)
        return _LayerFile(self._find_runs() if self._folder.is_dir() else [])

    def _find_runs(self) -> list[str]:
        """Look for runs with pending changes, after the file was lost."""
        found = []
        for run_id in run_ids(self._paths):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if RunFolder(self._paths, run_id).info().project == self._project:
                    states = RunFolder(self._paths, run_id).states()
                    if any(map(is_pending, states.changes)):
                        found.append((states.ended or 0, run_id))
        return [run_id for _, run_id in sorted(found)]

    def _write(self, state: _LayerFile) -> None:
        write_atomically(self._folder / _FILE, json.dumps(state._asdict()), is_locked=True)


def layer_index(layer: str) -> dict[str, tuple[str, int]]:
    """Return the run and the number of the change behind each path of a layer."""
    folder, name = os.path.split(layer)
    index = json.loads(Path(folder, _INDEX).read_text(encoding="utf-8"))[name]
    return {path: (run_id, number) for path, (run_id, number) in index.items()}


def _signature(path: str) -> str:
    try:
        return signature(os.lstat(path))
    except OSError:
        return ""


def _named_by_overlays(cache: Path) -> Iterator[str]:
    """Yield the generations that unsettled runs use."""
    for file in cache.glob("overlay-*/map.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
            for _path, layer in json.loads(file.read_text(encoding="utf-8"))["roots"]:
                if layer:
                    yield os.path.dirname(layer)


class _Entry(NamedTuple):
    """The pending file, link, folder or deletion at one path."""

    on: tuple[str, int]
    # None if it is deleted.
    type: Type | None
    mode: int = 0
    target: str = ""
    # The version of a file, or a text that was merged instead.
    source: Path = Path()
    text: bytes | None = None
    # Whether it is what the command left, unmerged and with all hunks.
    is_whole: bool = False


class _View:
    """One root as it would be with all pending changes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.entries: dict[str, _Entry] = {}
        # Texts in the project that pending ones are merged with.
        self._merged: dict[str, str] = {}

    def add(self, folder: RunFolder, item: Recorded) -> None:
        change, on = item.change, (folder.id, item.number)
        mode = (change.mode or 0) & 0o1777
        if change.kind is Kind.DELETED:
            entry = _Entry(on, None)
        elif change.type is Type.FOLDER:
            entry = _Entry(on, Type.FOLDER, mode)
        elif change.type is Type.LINK:
            entry = _Entry(on, Type.LINK, target=change.target or "")
        else:
            source = folder.result(item.number)
            text = self._merge(folder, item, source)
            is_whole = text is None and source == folder.whole_result(item.number)
            entry = _Entry(on, Type.FILE, mode, "", source, text, is_whole)
        self.entries[change.path] = entry

    def _merge(self, folder: RunFolder, item: Recorded, source: Path) -> bytes | None:
        """Return the pending text merged with what is below it, if that is not its base."""
        below = self.entries.get(item.change.path)
        is_on_below = below is not None and below.is_whole and below.on == item.on
        if not item.change.is_edit or not item.is_known or is_on_below:
            return None
        place = f"{self._root}/{item.change.path}"
        if below is None:
            self._merged[place] = _signature(place)
            if item.base and self._merged[place] == item.base:
                return None
            current = _read(Path(place))
        elif below.type is Type.FILE:
            current = below.text if below.text is not None else _read(below.source)
        else:
            return None
        base, result = _read(folder.base(item.number)), _read(source)
        if base is None or result is None or current is None or base == current:
            return None
        merged = merge_change(base, result, current, has_hunks=True)
        return None if merged == result else merged

    # --- writing it ----------------------------------------------------------------------------

    def build(self, layer: str) -> list[list[str]]:
        """Make the layer; return what has to stay as it is in the project, with signatures."""
        os.mkdir(layer, 0o700)
        modes: dict[str, tuple[int, os.stat_result | None]] = {"": self._folder_mode("")}
        checks = [[place, known] for place, known in self._merged.items()]
        # Below these nothing of the project is visible.
        hidden: set[str] = set()
        for path in sorted(self.entries, key=lambda path: path.split("/")):
            entry = self.entries[path]
            above = list(folders_above(path))
            # A path that is too long for programs is not seen before it is applied.
            is_long = len(os.fsencode(f"{layer}/{path}")) >= _LONGEST
            if path == "." or is_long or any(folder in hidden for folder in above):
                continue
            if entry.type is None and not self._hide(path, checks, hidden):
                continue
            is_folder = entry.type is Type.FOLDER or (entry.type is None and path not in hidden)
            for folder in (*reversed(above), *([path] if is_folder else [])):
                if folder not in modes:
                    os.mkdir(f"{layer}/{folder}", 0o700)
                    modes[folder] = self._folder_mode(folder)
            if not is_folder:
                _make(entry, f"{layer}/{path}")
                hidden.add(path)
        for folder in sorted(modes, reverse=True):
            mode, found = modes[folder]
            if found is not None and os.getuid() == 0:
                os.chown(f"{layer}/{folder}", found.st_uid, found.st_gid)
            os.chmod(f"{layer}/{folder}", mode)
        return checks

    def _hide(self, path: str, checks: list[list[str]], hidden: set[str]) -> bool:
        """Decide how a deleted path is hidden: as a whole, and then add it to `hidden`, or name by
        name, if its folder has something that the command did not delete. Return False if there is
        nothing to hide."""
        if not os.path.lexists(f"{self._root}/{path}"):
            return False
        paths = [path]
        while paths:
            folder = paths.pop()
            inner = f"{self._root}/{folder}"
            if os.path.islink(inner) or not os.path.isdir(inner):
                continue
            checks.append([inner, _signature(inner)])
            names = []
            with contextlib.suppress(OSError):
                names = os.listdir(inner)
            for name in names:
                entry = self.entries.get(f"{folder}/{name}")
                if entry is None or entry.type is not None:
                    return True
                paths.append(f"{folder}/{name}")
        hidden.add(path)
        return True

    def _folder_mode(self, path: str) -> tuple[int, os.stat_result | None]:
        """Return the mode of a folder: the pending one, or that in the project."""
        found = None
        with contextlib.suppress(OSError):
            there = os.lstat(f"{self._root}/{path}")
            found = there if stat.S_ISDIR(there.st_mode) else None
        entry = self.entries.get(path or ".")
        if entry is not None and entry.type is Type.FOLDER:
            return entry.mode, found
        return (stat.S_IMODE(found.st_mode) & 0o1777 if found else 0o755), found


def _make(entry: _Entry, place: str) -> None:
    if entry.type is None:
        os.mknod(place, stat.S_IFCHR, 0)
    elif entry.type is Type.LINK:
        os.symlink(entry.target, place)
    elif entry.text is not None:
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(entry.text)
        os.chmod(place, entry.mode)
    else:
        # Its version may be lost: then the project's is visible.
        with contextlib.suppress(FileNotFoundError):
            os.link(entry.source, place, follow_symlinks=False)


def _read(file: Path) -> bytes | None:
    try:
        with opened_folder(file.parent) as around:
            return read_small(DirEntryAt(around, file.name))
    except OSError:
        return None
