# SPDX-License-Identifier: GPL-3.0-or-later
"""Unfinished work in a root folder that no longer exists.

Such work is kept until the folder is back. The user is notified once; a file remembers that.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
from pathlib import Path

from ... import N_
from ...errors import OllmSandboxError
from ...files.atomic import write_atomically
from ...paths import Paths
from ...sandbox.overlay import Overlay, leftovers
from ..apply.journal import Job, Journal
from ..manager import is_missing


class MissingRootMarks:
    """Notes for which runs a missing root was reported: in a file, the root of each."""

    def __init__(self, paths: Paths) -> None:
        self._file = _file(paths)
        self._before = _read(self._file)
        self._now: dict[str, str] = {}

    def first_time(self, name: str, root: str) -> bool:
        """Mark a run as reported; return whether it was not marked before."""
        self._now[name] = root
        return name not in self._before

    def end(self) -> None:
        """Write the marks of the runs that are still interrupted."""
        # If the disk is full, it is better reported twice than never.
        with contextlib.suppress(OllmSandboxError, OSError):
            if self._now:
                write_atomically(self._file, json.dumps(self._now))
            else:
                self._file.unlink(missing_ok=True)


def was_notified(paths: Paths, name: str) -> bool:
    """Return whether the user was notified of a run and its root is still missing."""
    root = _read(_file(paths)).get(name, "")
    return root != "" and not os.path.isdir(root)


def _file(paths: Paths) -> Path:
    return paths.cache / "missing-roots.json"


def _read(file: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}


class MissingRootError(OllmSandboxError):
    """A root is missing, so a run or an action cannot be finished. Nothing is lost."""

    def __init__(self, message: str, remedy: str, /, *, root: str, **fields: object) -> None:
        super().__init__(message, remedy, root=root, **fields)
        self.root = root


def check_roots(overlay: Overlay) -> None:
    """Raise MissingRootError if a root of a run is missing."""
    for name, root in overlay.overlay_map.items():
        if not is_missing(root):
            continue
        if _had_begun(overlay):
            # Files were exchanged: the run's folder may have the only copies of the originals.
            raise MissingRootError(
                N_(
                    "{root} is missing, and a run was interrupted while its changes were "
                    "being applied. Its files are kept in {folder}, which may also contain "
                    "your original files."
                ),
                N_(
                    "Restore the folder and run any command in it. If you cannot restore it, "
                    "copy what you need from {folder}, then delete {folder}."
                ),
                root=root,
                folder=overlay.folder,
            )
        raise MissingRootError(
            N_("{root} is missing. What the command wrote is kept in {folder}."),
            N_(
                "Restore the folder and run any command in it. If you do not need the "
                "changes, run `ollmsandbox discard {run}`."
            ),
            root=root,
            folder=os.path.dirname(overlay.upper(name)),
            run=overlay.run_id,
        )


def discard_interrupted(paths: Paths, run_id: str, *, whole: bool = True) -> str:
    """Discard an interrupted run with a missing root; return its project, or "" if there is none.

    Raise if applying it had begun, or if only a part of it is to be discarded (not `whole`).
    """
    project = ""
    for overlay in leftovers(paths.cache, lambda _folder: None):
        try:
            roots = overlay.overlay_map.values()
            if overlay.run_id == run_id and any(map(is_missing, roots)):
                if _had_begun(overlay):
                    check_roots(overlay)
                if not whole:
                    raise OllmSandboxError(
                        N_("A run that was not finished can only be discarded as a whole."),
                        N_("Do not specify any files."),
                    )
                overlay.cleanup()
                project = overlay.project
        finally:
            overlay.release()
    return project


def check_job_roots(paths: Paths, job: Job, journal: Journal) -> None:
    """Raise MissingRootError if a root of an action that the user requested is missing."""
    for root in (job.project, *job.sources):
        if is_missing(root):
            raise MissingRootError(
                N_("{root} is missing, and an action you requested there was not finished."),
                N_(
                    "Restore the folder and run any command in it. If you cannot restore it, "
                    "delete {file}."
                ),
                root=root,
                file=paths.cache / f"{journal.name}.json",
            )


def unfinished_projects(paths: Paths) -> set[str] | None:
    """Return the projects with unfinished work, which may be in a layer and not recorded yet; None
    if a journal is unreadable."""
    runs = (Journal.of_run(str(folder)) for folder in paths.cache.glob("overlay-*"))
    projects: set[str] = set()
    for journal in (*runs, *Journal.left(paths)):
        jobs = journal.read_all()
        if not jobs and journal.exists():
            return None
        projects |= {job.project for job in jobs}
    return projects


def _had_begun(overlay: Overlay) -> bool:
    if Journal.of_run(overlay.folder).exists():
        return True
    # An unreadable journal was set aside.
    cache, name = Path(overlay.folder).parent, os.path.basename(overlay.folder)
    return any(cache.glob(f"unreadable-{glob.escape(name)}*.json"))
