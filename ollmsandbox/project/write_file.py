# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes changes that the program makes itself: an edit, an earlier version.

They are handled like a command's changes, from an upper folder that is made by hand.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from .. import N_
from ..errors import OllmSandboxError, ProjectError
from ..files.copying import copy_entry
from ..files.dirfd import DirEntryAt, OpenTree, folders_above, opened_folder
from ..files.overlayfs import Seen, find_in_layers, read_seen
from ..paths import Paths
from ..sandbox.overlay import Overlay
from ..sandbox.spec import RunSpec
from .change import Report
from .recorder import Recorder, root_of
from .settle import opened_jobs, settle
from .versions import Version


def write_file(
    paths: Paths,
    spec: RunSpec,
    path: str,
    data: bytes,
    *,
    mode: int | None = None,
    based_on: bytes | None = None,
    approved: bool = False,
) -> Report:
    """Create or change a file of the project, by its full path. Without a mode, it keeps its own.

    Do nothing if the file is no longer what the change is `based_on`. What git would run is held,
    unless the user has `approved`.
    """

    def make(spot: DirEntryAt) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(spot.name, flags, 0o666, dir_fd=spot.dir_fd), "wb") as file:
            file.write(data)

    spec = spec._replace(command=spec.command or f"Edit of {os.path.basename(path)}")
    return _Edit(spec, paths, path, mode, based_on).record(make, approved=approved)


def restore(
    paths: Paths,
    project: str,
    path: str,
    version: Version,
    *,
    approved: bool = False,
) -> Report:
    """Put an earlier version of a file, with its mode, in the place of the one there is. Bytes are
    shared where the disk can."""
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
    return _Edit(spec, paths, path, mode).record(make, approved=approved)


class _Edit:
    """One file that is made, at a path in a project."""

    def __init__(
        self,
        spec: RunSpec,
        paths: Paths,
        path: str,
        mode: int | None,
        based_on: bytes | None = None,
    ) -> None:
        self._spec = spec
        self._paths = paths
        self._full = path
        self._root, self._path = root_of(paths, spec.project, os.path.normpath(path)) or ("", "")
        if not self._path:
            raise ProjectError(
                N_("{path} is not in the project."), N_("Specify a file in the project."), path=path
            )
        self._mode = mode
        self._based_on = based_on

    def record(self, make: Callable[[DirEntryAt], None], *, approved: bool) -> Report:
        """Make the file, and settle that as a run. `make` puts it at a name in an open folder."""
        recorder = Recorder(self._spec, self._paths)
        with opened_jobs(self._paths, self._spec.project) as jobs:
            jobs.bump_generation()
            roots = recorder.roots(is_locked=True)
            overlay = Overlay(self._paths.cache, roots, about=recorder.about)
            overlay.create(is_mounted=False)
            names = {root: name for name, root in overlay.overlay_map.items()}
            upper = overlay.upper(names[self._root])
            # Beside it until it is whole: a kill leaves all or nothing.
            new = f"{upper}~"
            try:
                self._fill(new, make, next(r for r in roots if r.path == self._root).lowers)
                os.rename(new, upper)
            except BaseException:
                overlay.cleanup()
                raise
            try:
                report = settle(self._paths, overlay, approved=approved, is_locked=True)
            except BaseException:
                # What has begun is finished at the next start.
                overlay.release()
                raise
            overlay.cleanup()
        recorder.report = report
        recorder.note_exit(0)
        return report

    def _fill(self, upper: str, make: Callable[[DirEntryAt], None], layers: Sequence[str]) -> None:
        """Make an upper folder that has the file, and the folders around it as they are."""
        present = find_in_layers(layers, self._path)
        self._check(present)
        modes: list[tuple[str, int]] = []
        for path in ("", *reversed([*folders_above(self._path)])):
            found = find_in_layers(layers, path)
            os.mkdir(f"{upper}/{path}")
            if found is None:
                continue
            if not found.is_folder:
                raise OllmSandboxError(
                    N_("{root}/{path} is not a folder."),
                    N_("Use the file's real path."),
                    root=self._root,
                    path=path,
                )
            modes.append((f"{upper}/{path}", _take_over(f"{upper}/{path}", found)))
            os.chmod(f"{upper}/{path}", 0o700)
        file = f"{upper}/{self._path}"
        with opened_folder(os.path.dirname(file)) as around:
            make(DirEntryAt(around, os.path.basename(file)))
        if present is not None:
            modes.append((file, _take_over(file, present)))
        if self._mode is not None:
            modes.append((file, self._mode))
        for place, mode in reversed(dict(modes).items()):
            os.chmod(place, mode)

    def _check(self, present: Seen | None) -> None:
        if present is not None and not present.is_file:
            what = N_("{file} is a special file.")
            if present.is_folder or present.is_link:
                what = N_("{file} is a folder.") if present.is_folder else N_("{file} is a link.")
            raise OllmSandboxError(what, N_("Specify a file."), file=self._full)
        if self._based_on is None:
            return
        if present is None or read_seen(present) != self._based_on:
            raise OllmSandboxError(
                N_("{file} was changed in the meantime."),
                N_("Look at it again, then try again."),
                file=self._full,
            )


def _take_over(place: str, found: Seen) -> int:
    """Give a new file or folder the owner of the one that it replaces, if we are root. Return the
    mode that it should get."""
    if os.getuid() == 0:
        os.chown(place, found.found.st_uid, found.found.st_gid)
    return stat.S_IMODE(found.found.st_mode) & 0o1777
