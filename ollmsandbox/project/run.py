# SPDX-License-Identifier: GPL-3.0-or-later
"""A run on disk: a folder with its changes, the base and the result of each, and their states.

    run.json       the project, the roots, the command, when it started, its mode
    changes.jsonl  a line for each change, written once
    state.jsonl    a line is appended when the state of a change is decided; the last one counts.
                   Other lines have the end of the run, and the hosts that it tried to reach
    base/7         the version of change 7 that the command saw
    result/7       the version that it left; result/7.rest is the same without the hunks that the
                   user discarded
    made/7-x       the file before and after what was really done (7-x.before, 7-x.after), if the
                   user decided a conflict or applied only some hunks
    stage/7        what a job puts into the project, or has taken out
    mine-7-x       a version of the user's that nothing else has kept

A version that is in the project itself may be missing here: it is known by its signature.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import N_
from ..errors import OllmSandboxError
from ..files import dirfd, trees
from ..files.atomic import flush, write_atomically
from ..files.copying import HALF, copy_whole, strip
from ..files.dirfd import FOLDER, DirEntryAt, OpenTree, open_regular_file
from ..paths import Paths, make_folder
from ..sandbox.network.hosts import HostUse
from ..sandbox.spec import Mode
from ..text.diff import LARGEST
from .change import (
    PENDING_STATES,
    Change,
    Kind,
    Recorded,
    Type,
    pack_change,
    pack_state,
    unpack_change,
    unpack_state,
)

_INFO, _CHANGES, _STATES = "run.json", "changes.jsonl", "state.jsonl"
_PARTS = ("base", "result", "stage")
# The number of changes to encode at once: meanwhile no other thread has a turn, nor has a window.
_PIECE = 500
# The names of pairs that are a part of the change begin with this, which is no hexadecimal digit.
_PART = "part-"


class RunInfo(NamedTuple):
    """Facts about a run that stay as they are."""

    project: str
    roots: tuple[str, ...]
    command: str
    mode: str
    started: float
    session_id: str = ""
    call_id: str = ""
    # Whether the user approved what would be held.
    is_approved: bool = False

    @classmethod
    def of(cls, project: str, roots: Iterable[str], about: Mapping[str, str]) -> RunInfo:
        """Return what a recorder noted about a run before it started."""
        return cls(
            project,
            tuple(roots),
            about.get("command", ""),
            about.get("mode", Mode.NEVER.value),
            float(about.get("started", time.time())),
            about.get("session_id", ""),
            about.get("call_id", ""),
        )


class RunStates(NamedTuple):
    """The decisions about a run."""

    changes: list[Recorded]
    # When it was settled; None if it was not.
    ended: float | None = None
    exit_code: int | None = None
    # The hosts that its command tried to reach.
    hosts: tuple[HostUse, ...] = ()


class RunFolder:
    def __init__(self, paths: Paths, run_id: str) -> None:
        self.id = run_id
        self.path = paths.runs / run_id

    def create(self, info: RunInfo) -> None:
        for part in _PARTS:
            # An attempt that was killed may have numbered the changes in another way.
            trees.empty(make_folder(self.path / part))
        (self.path / _STATES).unlink(missing_ok=True)
        self._write(_INFO, json.dumps(info._asdict()))

    def info(self) -> RunInfo:
        """Read the facts about the run; raise OSError or ValueError if that is impossible."""
        given = json.loads((self.path / _INFO).read_text(encoding="utf-8"))
        return RunInfo(**{**given, "roots": tuple(given["roots"])})

    def move_root(self, old: str, new: str) -> None:
        info = self.info()
        roots = tuple(new if root == old else root for root in info.roots)
        project = new if info.project == old else info.project
        moved = info._replace(project=project, roots=roots)
        self._write(_INFO, json.dumps(moved._asdict()))

    @property
    def is_captured(self) -> bool:
        """Return whether the list of changes is complete."""
        return (self.path / _CHANGES).exists()

    def write_changes(self, info: RunInfo, items: Sequence[Recorded]) -> None:
        self._write(_CHANGES, _lines([pack_change(info.roots, item) for item in items]))

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text, durably=True, is_locked=True)

    def states(self) -> RunStates:
        """Return the changes in the states that were last decided."""
        roots = self.info().roots
        lines = (self.path / _CHANGES).read_text(encoding="utf-8").splitlines()
        changes = [
            unpack_change(roots, row)
            for at in range(0, len(lines), _PIECE)
            for row in _parsed(lines[at : at + _PIECE])
        ]
        ended = exit_code = None
        hosts: list[dict[str, object]] = []
        last: dict[int, list[object]] = {}
        for values in self._state_rows():
            if isinstance(values, list):
                last[values[0]] = values
            else:
                ended, exit_code = values.get("ended", ended), values.get("exit", exit_code)
                hosts = values.get("hosts", hosts)
        for number, values in last.items():
            changes[number] = unpack_state(changes[number], values)
        return RunStates(changes, ended, exit_code, tuple(map(HostUse.from_document, hosts)))

    def _state_rows(self) -> list[Any]:
        try:
            text = (self.path / _STATES).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        lines = [line for line in text.split("\n") if line]
        rows: list[Any] = []
        for at in range(0, len(lines), _PIECE):
            piece = lines[at : at + _PIECE]
            try:
                rows += _parsed(piece)
            except ValueError:
                for line in piece:
                    with contextlib.suppress(ValueError):  # cut off by a kill
                        rows.append(json.loads(line))
        return rows

    def append(self, items: Iterable[Recorded], **facts: object) -> None:
        """Record what was decided; `facts` are `ended`, `exit` and `hosts`."""
        text = _lines([pack_state(item) for item in items])
        text += f"{json.dumps(facts)}\n" if facts else ""
        if not text:
            return
        with open(self.path / _STATES, "ab") as file:
            # A line that a kill cut off must not swallow this one.
            file.write((b"\n" if file.tell() else b"") + text.encode())
            file.flush()
            os.fsync(file.fileno())

    def remove_unused(self) -> None:
        """Remove what was staged, pairs that no change has, and copies that were not finished."""
        pairs = [self.pair(item) for item in self.states().changes if item.made]
        used = {str(file) for pair in pairs for file in pair}
        for pattern in ("stage/*", "made/*", f"*/*{HALF}"):
            for file in self.path.glob(pattern):
                if str(file) not in used:
                    file.unlink()

    def make_durable(self) -> None:
        """Write the names of the versions to disk."""
        for part in _PARTS:
            flush(self.path / part)

    def base(self, number: int) -> Path:
        return self.path / "base" / str(number)

    def result(self, number: int) -> Path:
        """Return the version that applying the change puts into the project."""
        rest = self.path / "result" / f"{number}.rest"
        return rest if rest.exists() else self.whole_result(number)

    def whole_result(self, number: int) -> Path:
        """Return the version that the command left, with hunks that the user discarded."""
        return self.path / "result" / str(number)

    def pair(self, item: Recorded) -> tuple[Path, Path]:
        """Return the paths of the versions before and after the change. If a path does not exist,
        there was no file, or the version is in the project."""
        if item.made:
            made = self.path / "made" / f"{item.number}-{item.made}"
            return Path(f"{made}.before"), Path(f"{made}.after")
        return self.base(item.number), self.result(item.number)


def new_pair(number: int, *, is_part: bool = False) -> tuple[str, str, str]:
    """Return the name of a new pair of versions, and where both are in the folder of the run."""
    name = f"{_PART if is_part else ''}{time.time_ns():x}"
    return name, f"made/{number}-{name}.before", f"made/{number}-{name}.after"


def mine_name(number: int | str) -> str:
    """Return the name of a version of the user's that nothing else keeps."""
    return f"mine-{number}-{time.time_ns():x}"


def is_part(item: Recorded) -> bool:
    """Return whether only some hunks of a change are in the project."""
    return item.made.startswith(_PART)


def _parsed(lines: Sequence[str]) -> list[Any]:
    # Five times as fast as one after the other. No other thread runs meanwhile, so not all at once.
    return list(json.loads(f"[{','.join(lines)}]"))


def _lines(rows: Sequence[object]) -> str:
    pieces = (rows[at : at + _PIECE] for at in range(0, len(rows), _PIECE))
    return "".join(map(_encoded, pieces))


def _encoded(rows: Sequence[object]) -> str:
    # One call of the encoder is about ten times as fast as one for each row.
    text = json.dumps(rows, check_circular=False, separators=(",", ":"))[1:-1]
    # No name or list in a row contains what is between rows.
    if text.count("],[") == len(rows) - 1:
        return text.replace("],[", "]\n[") + "\n"
    return "".join(f"{json.dumps(row)}\n" for row in rows)


class OpenRuns:
    """Opens folders of runs, and keeps them open."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._folders: dict[tuple[str, str], int] = {}

    def at(self, run_id: str, place: str) -> DirEntryAt:
        """Return an entry of a run's folder, such as "stage/7"."""
        part, _, name = place.rpartition("/")
        return DirEntryAt(self.folder(run_id, part), name)

    def folder(self, run_id: str, part: str) -> int:
        key = (run_id, part)
        if key not in self._folders:
            path = make_folder(self._paths.runs / run_id / part)
            self._folders[key] = os.open(path, FOLDER)
        return self._folders[key]

    def close(self) -> None:
        for folder in self._folders.values():
            os.close(folder)
        self._folders.clear()


def take_results(
    paths: Paths, run_id: str, uppers: Mapping[str, str], items: Sequence[Recorded]
) -> None:
    """Move what the command left from its upper folders, by root, to the run; skip what was moved
    before."""
    with contextlib.closing(OpenRuns(paths)) as runs:
        results = runs.folder(run_id, "result")
        for root, upper in uppers.items():
            tree = OpenTree(upper, missing_ok=True)
            try:
                for item in items:
                    change = item.change
                    is_deleted = change.kind is Kind.DELETED
                    if change.root == root and not is_deleted and change.type is not Type.FOLDER:
                        _take(tree, change, DirEntryAt(results, str(item.number)))
            finally:
                tree.leave()


def _take(tree: OpenTree, change: Change, kept: DirEntryAt) -> None:
    try:
        spot = DirEntryAt(*tree.split(change.path))
    except FileNotFoundError:
        return
    found = spot.lstat()
    if found is None:
        return  # done before a kill
    strip(spot)
    is_file, mode = stat.S_ISREG(found.st_mode), (change.mode or 0) & 0o1777
    if is_file and stat.S_IMODE(found.st_mode) != mode:
        # It had lent rights, or was made readable under another name.
        dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)
    if is_file and found.st_nlink > 1:
        # It could be changed later through another name.
        if not mode & stat.S_IRUSR:
            dirfd.set_mode(spot.name, spot.dir_fd, mode | stat.S_IRUSR, any_kind=True)
        copy_whole(spot, kept)
        dirfd.set_mode(kept.name, kept.dir_fd, mode, any_kind=True)
        spot.unlink()
        return
    try:
        spot.rename_to(kept)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_whole(spot, kept)
        spot.unlink()


def run_ids(paths: Paths) -> list[str]:
    """Return the ids of all runs, in the order in which they started."""
    try:
        return sorted(os.listdir(paths.runs))
    except FileNotFoundError:
        return []


def read_run(paths: Paths, run_id: str) -> RunStates:
    """Return what is recorded of a run; raise OllmSandboxError if it cannot be read."""
    try:
        return RunFolder(paths, run_id).states()
    except FileNotFoundError:
        return RunStates([])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise OllmSandboxError(
            N_("The record of run {run} cannot be read: {folder}."),
            N_("Copy what you need from it, then delete it."),
            run=run_id,
            folder=paths.runs / run_id,
        ) from error


def is_pending(item: Recorded) -> bool:
    return item.state in PENDING_STATES


# --- versions --------------------------------------------------------------------------------


def signature(found: os.stat_result | None) -> str:
    """Return what identifies a version of a file, also after it was moved; "" for no file."""
    if found is None:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}:{found.st_size}:{found.st_mode:o}"


def signature_at(item: Recorded) -> str:
    """Return the signature of what is at the place of a change now: "-" if there is nothing, and
    "?" if that cannot be seen."""
    try:
        return signature(os.lstat(f"{item.change.root}/{item.change.path}"))
    except (FileNotFoundError, NotADirectoryError):
        return "-"
    except OSError:
        return "?"


def is_small(found: os.stat_result | None) -> bool:
    """Return whether a file is small enough to be copied and merged."""
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST


def read_small(spot: DirEntryAt) -> bytes | None:
    """Return the content of a file; None if it is not a small file, or cannot be read."""
    try:
        with open_regular_file(spot.name, spot.dir_fd) as file:
            return file.read(LARGEST + 1) if is_small(os.fstat(file.fileno())) else None
    except OSError:
        return None
