# SPDX-License-Identifier: GPL-3.0-or-later
"""Map paths between the host and a root file system: of folders, in output, in variables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import WorkingDirError
from ...files.dirfd import follow_links
from ...paths import Paths, is_inside
from ..output import Sink
from ..plan.folders import EMPTY_FOLDERS, may_enter, named_path
from ..plan.resolver import PROXIES
from ..process import Sinks
from ..profile.profile import Profile

WORKSPACE = "/workspace"
PLAYGROUND = "/playground"
SKILLS = "/skills"
# Where pip installs packages: in the project, so that the next command finds them.
PACKAGES = f"{WORKSPACE}/.packages"
PATH = f"/usr/bin:/bin:/usr/local/bin:{PACKAGES}/bin:/usr/sbin:/sbin"


def skills_folder(profile: Profile, paths: Paths) -> str:
    """Return the host's folder that commands see as /skills; "" if there is none."""
    named = profile.skills.replace("~", paths.real_home, 1)
    return os.path.realpath(named) if named and os.path.isdir(named) else ""


def rootfs_environment(
    profile: Profile, environ: Mapping[str, str], *, network: bool
) -> dict[str, str]:
    """Return a command's variables: none of the user's, but those that the profile sets."""
    made = {
        "HOME": WORKSPACE,
        "PATH": PATH,
        "PIP_TARGET": PACKAGES,
        "PYTHONPATH": PACKAGES,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
    }
    if network:
        # The profile drops those with a password.
        made |= proxy_variables(profile.environment(environ, network=True))
    made.update(profile.environment_set)
    return made


def proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name proxies; some networks need them."""
    return {name: value for name, value in environ.items() if name.lower() in PROXIES}


_NAME = WORKSPACE.encode()
_COLOUR = 12


def _after(name: bytes) -> bytes:
    """Return a pattern for a name that begins a path, also after a colour or file://. The name
    comes first in the pattern because that is found much faster."""
    ends = [rb"(?<![\w./~-]%b)", rb"(?<=file://%b)"]
    ends += [rb"(?<=\x1b\[[0-9;]{%d}[mK]%%b)" % size for size in range(_COLOUR + 1)]
    return name + b"(?:" + b"|".join(end % name for end in ends) + b")"


_WHOLE = re.compile(_after(_NAME) + rb"(?![\w.-])")
# The beginning of a name at the end of a piece.
_HALF = re.compile(
    rb"(?:(?<![\w./~-])|(?<=[mK/]))(?:"
    + b"|".join(_NAME[:n] for n in range(len(_NAME), 0, -1))
    + rb")\Z"
)
# How many bytes before a name matter.
_CONTEXT = _COLOUR + 3


class PathRewriter:
    """A sink that replaces /workspace with the project's path, even across two pieces."""

    def __init__(self, sink: Sink, project: str) -> None:
        self._sink = sink
        self._project = os.fsencode(project)
        self._held = b""
        # The end of what was passed on: the pattern looks at it.
        self._last = b""

    def __call__(self, data: bytes) -> None:
        text = self._last + self._held + data
        half = _HALF.search(text, max(len(self._last), len(text) - len(_NAME)))
        end = half.start() if half else len(text)
        self._held = text[end:]
        self._pass_on(text[:end])

    def end(self) -> None:
        text, self._held = self._last + self._held, b""
        self._pass_on(text)

    def _pass_on(self, text: bytes) -> None:
        at = len(self._last)
        if len(text) == at:
            return
        shown = []
        for found in _WHOLE.finditer(text, at):
            shown += [text[at : found.start()], self._project]
            at = found.end()
        shown.append(text[at:])
        self._last = text[-_CONTEXT:]
        self._sink(b"".join(shown))


def rewrite_paths(sinks: Sinks, project: str) -> Sinks:
    """Return sinks that replace /workspace with the project's path."""
    assert sinks.stdout is not None
    assert sinks.stderr is not None
    stdout, stderr = PathRewriter(sinks.stdout, project), PathRewriter(sinks.stderr, project)

    def end() -> None:
        stdout.end()
        stderr.end()

    return sinks._replace(stdout=stdout, stderr=stderr, ended=end)


@dataclass(frozen=True)
class PathMap:
    """Maps paths of the host to paths inside, and back."""

    project: str
    # Approved folders outside the project. They keep their paths, which the links to them contain.
    linked: tuple[str, ...]
    # The real path of the playground, then its other paths on the host.
    playgrounds: tuple[str, ...]

    @classmethod
    def of(cls, paths: Paths, project: str, linked: Sequence[str] = ()) -> PathMap:
        named = (str(paths.playground_inside), f"{paths.real_home}/playground")
        return cls(project, tuple(linked), (os.path.realpath(paths.playground), *named))

    def to_inside(self, path: str) -> str | None:
        """Return the path inside, or None if it is not visible there."""
        for folder, shown in (
            (self.project, WORKSPACE),
            *((p, PLAYGROUND) for p in self.playgrounds),
        ):
            if is_inside(path, folder):
                return shown + path[len(folder) :]
        return path if is_inside(path, *self.linked) else None

    def to_host(self, path: str) -> str | None:
        """Return the path on the host, or None if it belongs to the root file system. A project
        may itself be below /workspace: then its own path counts."""
        if is_inside(path, self.project):
            return path
        for shown, folder in ((WORKSPACE, self.project), (PLAYGROUND, self.playgrounds[0])):
            if is_inside(path, shown):
                return folder + path[len(shown) :]
        return path if is_inside(path, *self.linked) else None


def find_working_dir_inside(
    given: str | None, places: PathMap, paths: Paths, rootfs: str, hidden: Sequence[str]
) -> str:
    """Return the folder inside where the command starts, given as a path of either side."""
    if not given:
        return WORKSPACE
    if given == "playground":
        return PLAYGROUND
    path = named_path(given, places.project, paths)
    real = os.path.realpath(places.to_host(path) or path)
    for playground in places.playgrounds[1:]:
        if is_inside(path, playground):
            real = os.path.realpath(places.playgrounds[0] + path[len(playground) :])
    inside = places.to_inside(real)
    if inside is not None:
        if not may_enter(real) or (
            is_inside(real, *hidden) and not is_inside(real, places.playgrounds[0])
        ):
            raise WorkingDirError(given)
        return inside
    # A link in the project may lead into the root file system.
    found = folder_in(rootfs, path if places.to_host(path) is None else real)
    # These folders are empty at first.
    if found is None or (is_inside(found, *EMPTY_FOLDERS) and found not in EMPTY_FOLDERS):
        raise WorkingDirError(given)
    return found


def folder_in(rootfs: str, path: str) -> str | None:
    """Return a folder's path with links resolved as they are inside, or None if there is none."""

    def target_of(place: str) -> str | None:
        whole = rootfs + place
        mode = os.lstat(whole).st_mode
        if not stat.S_ISLNK(mode) and not stat.S_ISDIR(mode):
            raise NotADirectoryError(whole)
        return os.readlink(whole) if stat.S_ISLNK(mode) else None

    try:
        return follow_links(path, target_of)
    except (OSError, ValueError):
        return None
