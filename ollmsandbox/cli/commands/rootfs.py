# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox rootfs`"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from ... import loop
from ...engine.system import System, set_system, system_of
from ...errors import OllmSandboxError
from ...paths import Paths
from ...sandbox.plan.folders import find_project
from ...sandbox.rootfs.install import InstallProgress, Step
from ...sandbox.rootfs.rootfs import Rootfs
from ...sandbox.rootfs.store import find_rootfs, get_rootfs_dir
from ...text.ansi import escape_line, harmless
from ..arguments import default_project, find_given_project
from ..streams import print_notices


def rootfs(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    if given.action == "use":
        return _use(given, paths)
    found = Rootfs(paths, os.environ)
    if given.action == "status":
        return _status(given, paths, found)
    if given.action == "install":
        return _install(given, found)
    return _remove(found)


def _remove(found: Rootfs) -> int:
    was_there = bool(os.environ.get("ROOTFS_DIR")) or bool(found.store.all())
    if not loop.run(found.remove()):
        raise OllmSandboxError(
            "A command is still running in Alpine, so it was not removed.",
            "Try again when the command has ended.",
        )
    print("Alpine was removed." if was_there else "Alpine is not installed.")
    return 0


def _use(given: argparse.Namespace, paths: Paths) -> int:
    project = find_given_project(given.project or None, paths)
    system = System(given.system)
    set_system(paths, project, system)
    print(f"Commands of {escape_line(project)} now run in {_name(system)}.")
    return 0


def _install(given: argparse.Namespace, found: Rootfs) -> int:
    tarball = None
    if given.tarball is not None:
        if not given.tarball:
            raise OllmSandboxError("--from needs a file.", "Name a tarball.")
        tarball = Path(os.path.abspath(given.tarball))
    shown = ProgressLine(quiet=given.quiet)
    try:
        prepared = loop.run(found.prepare(shown, tier=given.tier, tarball=tarball))
    except KeyboardInterrupt:
        shown.end()
        print_notices("Cancelled. The downloaded files are kept.")
        raise
    finally:
        shown.end()
    print_notices(*prepared.notices)
    if not given.quiet:
        what = "is installed" if prepared.is_new else "is already installed"
        print(f"{prepared.installed.title} {what}.")
        if prepared.is_new:
            hint = "To run a project's commands in it: ollmsandbox rootfs use alpine"
            print(hint, file=sys.stderr)
    return 0


class ProgressLine:
    """Shows progress: on a terminal in one changing line, elsewhere as one line per step."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._step: Step | None = None
        self._in_line = False

    def __call__(self, progress: InstallProgress) -> None:
        if self._quiet or progress.step is Step.DONE:
            return
        if self._live:
            text = f"{progress.step.value}{_amount(progress)}"
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)
            self._in_line = True
        elif progress.step is not self._step:
            print(f"{progress.step.value}.", file=sys.stderr)
        self._step = progress.step

    def end(self) -> None:
        if self._in_line:
            print(file=sys.stderr)
        self._in_line = False


def _amount(progress: InstallProgress) -> str:
    if progress.text:
        return f": {harmless(progress.text)}"
    if progress.step in (Step.FETCH, Step.UNPACK) and progress.total:
        return f": {100 * progress.done // progress.total} %"
    return ""


def _status(given: argparse.Namespace, paths: Paths, found: Rootfs) -> int:
    status = found.status()
    try:
        project = find_project(given.project or default_project(os.environ), paths)
        system = system_of(paths, project)
    except OllmSandboxError:
        if given.project is not None:
            raise
        project, system = "", System.HOST
    installed = status.installed
    if given.json:
        document = {
            "installed": installed.version if installed else None,
            "tier": installed.tier if installed else None,
            "folder": installed.folder if installed else None,
            "size": status.size,
            "programs": found.programs(),
            "still_used": [other.version for other in status.others],
            "mirror": status.settings.mirror,
            "version": status.settings.version or status.settings.branch,
            "project": project,
            "system": system.value,
        }
        print(json.dumps(document, indent=2))
        return 0
    if installed is None:
        print("Alpine is not installed. Install it with: ollmsandbox rootfs install")
        print(f"  It goes to {escape_line(str(get_rootfs_dir(paths, os.environ)))}")
    else:
        print(f"{installed.title}, tier {installed.tier}, {status.size >> 20} MiB")
        named = " (ROOTFS_DIR)" if installed.is_given else ""
        print(f"  in {escape_line(installed.folder)}{named}")
        print(f"  with {escape_line(', '.join(found.programs())) or 'no known programs'}")
    for other in status.others:
        print(f"{other.title} will be removed when no command uses it.")
    if project:
        print(f"Commands of {escape_line(project)} run in {_name(system)}.")
    return 0


def _name(system: System) -> str:
    if system is System.HOST:
        return "this computer's own system"
    there = find_rootfs(Paths.from_environ(os.environ), os.environ)
    return "Alpine" if there else "Alpine, which the next command installs"
