# SPDX-License-Identifier: GPL-3.0-or-later
"""Unfinished work in a root folder that no longer exists.

Such work is kept until the folder is back. The user is notified once; a file remembers that.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from .. import N_
from ..errors import OllmSandboxError
from ..files.atomic import write_atomically
from ..paths import Paths, is_missing
from ..sandbox.overlay import Overlay, leftovers
from .change import State
from .jobs import MissingRootError, job_file
from .run import RunFolder, take_results


class MissingRootMarks:
    """Notes for which runs a missing root was reported: in a file, the root of each."""

    def __init__(self, paths: Paths) -> None:
        self._file = paths.cache / "missing-roots.json"
        self._before: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._before = dict(json.loads(self._file.read_text(encoding="utf-8")))
        self._now: dict[str, str] = {}

    def is_still_missing(self, name: str) -> bool:
        """Return whether a missing root of a run or a job was reported, and is still missing."""
        root = self._before.get(name, "")
        return root != "" and not os.path.isdir(root)

    def first_time(self, name: str, root: str) -> bool:
        """Mark a run as reported; return whether it was not marked before."""
        self._now[name] = root
        return name not in self._before

    def end(self) -> None:
        # If the disk is full, it is better reported twice than never.
        with contextlib.suppress(OllmSandboxError, OSError):
            if self._now:
                write_atomically(self._file, json.dumps(self._now))
            else:
                self._file.unlink(missing_ok=True)


def check_roots(overlay: Overlay) -> None:
    for name, root in overlay.overlay_map.items():
        if is_missing(root):
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


def _discard(paths: Paths, overlay: Overlay) -> None:
    """Discard a run; raise MissingRootError if its changes are already being applied."""
    file = job_file(paths, overlay.project)
    if file.exists():
        raise MissingRootError(
            N_("{root} is missing, and a run was interrupted while its changes were applied."),
            N_(
                "Restore the folder and run any command in it. If you cannot restore it, "
                "delete {file}."
            ),
            root=overlay.project,
            file=file,
        )
    run = RunFolder(paths, overlay.run_id)
    if run.is_captured:
        items = run.states().changes
        take_results(paths, run.id, overlay.uppers, items)
        dropped = [item._replace(state=State.DISCARDED, note=None) for item in items]
        run.append(dropped, ended=time.time())
    overlay.cleanup()


def discard_interrupted(paths: Paths, run_id: str, *, whole: bool) -> str:
    """Discard an interrupted run with a missing root; return its project, or "" if there is none.

    Raise if only a part of it is to be discarded (not `whole`).
    """
    project = ""
    for overlay in leftovers(paths.cache, lambda _folder: None):
        try:
            if overlay.run_id == run_id and any(map(is_missing, overlay.overlay_map.values())):
                if not whole:
                    raise OllmSandboxError(
                        N_("A run that was not finished can only be discarded as a whole."),
                        N_("Do not specify any files."),
                    )
                _discard(paths, overlay)
                project = overlay.project
        finally:
            overlay.release()
    return project
