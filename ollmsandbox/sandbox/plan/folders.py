# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which folder may be a project, and where a command starts."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from ... import N_
from ...errors import ProjectError, WorkingDirError
from ...paths import Paths, is_inside, real_path

# Programs put sockets and temporary files there, so the sandbox has its own, empty ones.
EMPTY_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_NOT_ON_DISK = ("/proc", "/sys", "/dev", "/run/user")
_KERNEL_FOLDERS = ("/proc", "/dev")
# These folders and everything in them cannot be projects.
_SYSTEM_FOLDERS = ("/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr")
# These cannot be projects, but folders in them can.
_SHARED_FOLDERS = (
    *("/", "/var", "/var/lib", "/home", "/opt"),
    *("/root", "/srv", "/mnt", "/media", "/snap"),
)


def find_project(folder: str | os.PathLike[str], paths: Paths) -> str:
    """Return the project folder with links resolved, or raise why it cannot be one."""
    given = os.fspath(folder)
    if not given:
        raise ProjectError(N_("The name of the project folder is empty."), N_("Choose a folder."))
    try:
        found = os.stat(given)
    except PermissionError as error:
        raise ProjectError(N_("Cannot open the project folder: {given}."), given=given) from error
    except OSError as error:
        raise ProjectError(
            N_("The project folder does not exist: {given}."), given=given
        ) from error
    except ValueError as error:
        raise ProjectError(N_("Not a valid folder name: {given}."), given=repr(given)) from error
    if not stat.S_ISDIR(found.st_mode):
        raise ProjectError(
            N_("The project is a file, not a folder: {given}."),
            N_("Choose the folder that contains it."),
            given=given,
        )
    project = real_path(given)
    for is_so, why, remedy in _refusals(project, paths):
        if is_so:
            raise ProjectError(why, remedy, project=project)
    return project


def _refusals(project: str, paths: Paths) -> Iterator[tuple[bool, str, str]]:
    """Yield the reasons for which a folder cannot be a project, and whether each applies."""
    home = paths.real_home
    yield (
        is_inside(home, project),
        N_("{project} contains your whole home folder, with your keys and passwords."),
        N_("Choose a folder inside it."),
    )
    own = [real_path(folder) for folder in (*paths.own, paths.runtime)]
    yield (
        # A command that could write there would decide what the next one may do.
        is_inside(project, *own) or any(is_inside(folder, project) for folder in own),
        N_("{project} contains files of this program, or is inside its folders."),
        "",
    )
    yield (
        is_inside(project, *_NOT_ON_DISK) and not is_inside(project, "/dev/shm"),
        N_("{project} cannot be a project because it is not on a disk."),
        "",
    )
    yield (
        project in _SHARED_FOLDERS or is_inside(project, *_SYSTEM_FOLDERS),
        N_("{project} belongs to the system and cannot be a project."),
        N_("Choose a folder of your own."),
    )
    yield (
        is_inside(project, f"{home}/playground"),
        N_("{project} is where commands find the playground."),
        N_("Move it to another folder."),
    )
    yield (
        project in EMPTY_FOLDERS,
        N_("{project} is for temporary files of all programs."),
        N_("Choose a folder inside it."),
    )


def is_home(folder: str) -> bool:
    """Return whether a folder can be somebody's home: that of some users of the system is not."""
    return folder not in _SHARED_FOLDERS[:5] and not is_inside(
        folder, *_SYSTEM_FOLDERS, *_NOT_ON_DISK, *EMPTY_FOLDERS
    )


def named_path(given: str, project: str, paths: Paths) -> str:
    """Return the path that a working directory names, in the project or absolute."""
    if "\0" in given:
        raise WorkingDirError(given)
    # Not with expanduser: the run may have another home folder than this process.
    if given == "~" or given.startswith("~/"):
        given = f"{paths.home}{given[1:]}"
    return os.path.normpath(os.path.join(project, given))


def find_working_dir(
    working_dir: str | None,
    project: str,
    paths: Paths,
    hidden: Sequence[str],
    empty: Sequence[str] = EMPTY_FOLDERS,
) -> str:
    """Return where the command starts, as a path inside the sandbox."""
    if not working_dir:
        return project
    inside = paths.real_home + "/playground"
    if working_dir == "playground":
        return inside
    path = named_path(working_dir, project, paths)
    for shown in (str(paths.playground_inside), inside):
        # The playground has another path on the host.
        if is_inside(path, shown):
            playground = real_path(paths.playground)
            real = os.path.realpath(f"{playground}/{path[len(shown) :]}")
            if is_inside(real, playground) and may_enter(real):
                return inside + real[len(playground) :]
            raise WorkingDirError(working_dir)
    path = os.path.realpath(path)
    if not may_enter(path):
        raise WorkingDirError(working_dir)
    home = paths.real_home
    # Parents of the project and the home folder exist even in the empty folders.
    is_parent = is_inside(project, path) or is_inside(home, path) or path in empty
    in_scratch = is_inside(path, *empty) and not is_parent and not is_inside(path, home)
    in_kernel = is_inside(path, *_KERNEL_FOLDERS) and path not in (
        *EMPTY_FOLDERS,
        *_KERNEL_FOLDERS,
        "/dev/pts",
    )
    unseen = in_scratch or in_kernel or is_inside(path, *hidden)
    if unseen and not is_inside(path, project):
        raise WorkingDirError(working_dir)
    return path


@cache
def own_code() -> tuple[str, ...]:
    """Return the folders with this program's code and what starts it."""
    package = str(Path(__file__).resolve().parents[2])
    around = os.path.dirname(package)
    found = [package, sys.prefix, f"{around}/build-aux", f"{around}/build"]
    return tuple(os.path.realpath(path) for path in found)


def may_enter(path: str) -> bool:
    """Return whether a command may enter a folder: inside, root has only the rights of its mode."""
    if not os.path.isdir(path) or not os.access(path, os.X_OK):
        return False
    while os.getuid() == 0 and path != "/":
        found = os.stat(path)
        mine, group = found.st_uid == 0, found.st_gid in (os.getgid(), *os.getgroups())
        if not found.st_mode & (0o100 if mine else 0o010 if group else 0o001):
            return False
        path = os.path.dirname(path)
    return True
