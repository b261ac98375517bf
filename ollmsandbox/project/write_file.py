# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes changes that the program makes itself: an edit, an earlier version.

They are handled like a command's changes, from an upper folder that is made by hand.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from .. import N_
from ..errors import OllmSandboxError, ProjectError
from ..files.copying import copy_entry
from ..files.dirfd import DirEntryAt, OpenTree, folders_above, opened_folder
from ..files.overlayfs import Seen, find_in_layers, read_seen
from ..paths import Paths
from ..sandbox.overlay import Overlay, Root
from ..sandbox.spec import RunSpec
from .change import Report
from .recorder import Recorder, root_of
from .settle import opened_jobs, settle
from .versions import Version


def write_file(
    paths: Paths, spec: RunSpec, path: str, data: bytes, *, based_on: bytes | None = None
) -> Report:
    """Create or change a file of the project, by its full path; the user has approved it.

    Do nothing if the file is no longer what the change is `based_on`.
    """

    def make(spot: DirEntryAt) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(spot.name, flags, 0o666, dir_fd=spot.dir_fd), "wb") as file:
            file.write(data)

    spec = spec._replace(command=spec.command or f"Edit of {os.path.basename(path)}")
    return _Edit(spec, paths, path, make, based_on=based_on).record()


def restore(paths: Paths, project: str, path: str, version: Version) -> Report:
    """Put an earlier version of a file, with its mode, in the place of the one there is; the user
    has approved it. Bytes are shared where the disk can."""
    seen = version.seen
    if seen is None or not seen.is_file:
        why = version.note.sentence if version.note else ""
        raise OllmSandboxError(N_("That version of {path} is not kept."), why, path=path)

    def make(spot: DirEntryAt) -> None:
        tree = OpenTree(seen.layer)
        try:
            copy_entry(DirEntryAt(*tree.split(seen.path)), spot)
        finally:
            tree.leave()

    spec = RunSpec(project, f"Earlier version of {os.path.basename(path)}")
    mode = stat.S_IMODE(seen.found.st_mode) & 0o1777
    return _Edit(spec, paths, path, make, mode=mode).record()


@dataclass(frozen=True)
class _Edit:
    """An edit that creates or replaces one file, by its full path in a project."""

    spec: RunSpec
    paths: Paths
    path: str
    # Puts it at a name in an open folder.
    make: Callable[[DirEntryAt], None]
    # Without one, the file keeps its own.
    mode: int | None = None
    based_on: bytes | None = None

    def record(self) -> Report:
        path, project = os.path.normpath(self.path), self.spec.project
        root, inner = root_of(self.paths, project, path) or ("", "")
        if not inner:
            raise ProjectError(
                N_("{path} is not in the project."),
                N_("Specify a file in the project."),
                path=self.path,
            )
        recorder = Recorder(self.spec, self.paths)
        with opened_jobs(self.paths, project) as jobs:
            jobs.bump_generation()
            roots = recorder.roots(is_locked=True)
            overlay = Overlay(self.paths.cache, roots, about=recorder.about)
            overlay.create(is_mounted=False)
            names = {root: name for name, root in overlay.overlay_map.items()}
            upper = overlay.upper(names[root])
            # Beside it until it is whole: a kill leaves all or nothing.
            new = f"{upper}~"
            try:
                self._fill(new, inner, next(r for r in roots if r.path == root))
                os.rename(new, upper)
            except BaseException:
                overlay.cleanup()
                raise
            try:
                report = settle(self.paths, overlay, approved=True, is_locked=True)
            except BaseException:
                # What has begun is finished at the next start.
                overlay.release()
                raise
            overlay.cleanup()
        recorder.report = report
        recorder.note_end(report.run_id, 0, ())
        return report

    def _fill(self, upper: str, inner: str, root: Root) -> None:
        """Make an upper folder with the file, in folders like those around it in the project."""
        present = find_in_layers(root.lowers, inner)
        self._check(present)
        modes: dict[str, int] = {}
        for path in ("", *reversed([*folders_above(inner)])):
            found = find_in_layers(root.lowers, path)
            folder = f"{upper}/{path}"
            os.mkdir(folder)
            if found is None:
                continue
            if not found.is_folder:
                raise OllmSandboxError(
                    N_("{root}/{path} is not a folder."),
                    N_("Use the file's real path."),
                    root=root.path,
                    path=path,
                )
            modes[folder] = _take_over(folder, found)
            os.chmod(folder, 0o700)
        file = f"{upper}/{inner}"
        with opened_folder(os.path.dirname(file)) as around:
            self.make(DirEntryAt(around, os.path.basename(file)))
        if present is not None:
            modes[file] = _take_over(file, present)
        if self.mode is not None:
            modes[file] = self.mode
        for place, mode in reversed(modes.items()):
            os.chmod(place, mode)

    def _check(self, present: Seen | None) -> None:
        if present is not None and not present.is_file:
            what = N_("{file} is a special file.")
            if present.is_folder or present.is_link:
                what = N_("{file} is a folder.") if present.is_folder else N_("{file} is a link.")
            raise OllmSandboxError(what, N_("Specify a file."), file=self.path)
        if self.based_on is not None and (present is None or read_seen(present) != self.based_on):
            raise OllmSandboxError(
                N_("{file} was changed in the meantime."),
                N_("Look at it again, then try again."),
                file=self.path,
            )


def _take_over(place: str, found: Seen) -> int:
    """Give a new file or folder the owner of the one that it replaces, if we are root. Return the
    mode that it should get."""
    if os.getuid() == 0:
        os.chown(place, found.found.st_uid, found.found.st_gid)
    return stat.S_IMODE(found.found.st_mode) & 0o1777
