# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the project's folders are seen in another system, and which folder of the machine a path in
there stands for.

The variables of a command in another system: nothing of the person's own.

Output for people: the project by the path that it has on this machine.

Where the project's folders are seen in another system, and which folder of the machine a path in
there stands for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ...errors import WorkingDirError
from ...paths import Paths, is_inside
from ..output import Sink
from ..plan.folders import EMPTY_FOLDERS, may_enter
from ..process import Sinks
from ..profile.profile import Profile

WORKSPACE = "/workspace"
PLAYGROUND = "/playground"
# What pip installs is kept in the project, and found there by the next command.
PACKAGES = f"{WORKSPACE}/.packages"
PATH = f"/usr/bin:/bin:/usr/local/bin:{PACKAGES}/bin:/usr/sbin:/sbin"
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def environment_of(
    profile: Profile, environ: Mapping[str, str], *, network: bool
) -> dict[str, str]:
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
        # As for every command, without one that holds a password.
        made |= proxies(profile.environment(environ))
    made.update(profile.environment_set)
    return made


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Without them some networks lead nowhere."""
    return {name: value for name, value in environ.items() if name.lower() in _PROXIES}


_NAME = WORKSPACE.encode()
_COLOUR = 12


def _after(name: bytes) -> bytes:
    """Not within another path or word; but the word may be a colour that ends there, and the path a
    file's address. The name itself comes first: it is looked for much quicker."""
    ends = [rb"(?<![\w./~-]%b)", rb"(?<=file://%b)"]
    ends += [rb"(?<=\x1b\[[0-9;]{%d}[mK]%%b)" % size for size in range(_COLOUR + 1)]
    return name + b"(?:" + b"|".join(end % name for end in ends) + b")"


_WHOLE = re.compile(_after(_NAME) + rb"(?![\w.-])")
# What may become one; whether it does is seen when all of it is there.
_HALF = re.compile(
    rb"(?:(?<![\w./~-])|(?<=[mK/]))(?:"
    + b"|".join(_NAME[:n] for n in range(len(_NAME), 0, -1))
    + rb")\Z"
)
# As far as what is before a name matters.
_CONTEXT = _COLOUR + 3


class Renamed:
    """Passes on what comes; a name that is cut in two by the pieces is put together first."""

    def __init__(self, sink: Sink, project: str) -> None:
        self._sink = sink
        self._project = os.fsencode(project)
        self._held = b""
        # What was passed on last: whether a name begins depends on it.
        self._last = b""

    async def __call__(self, data: bytes) -> None:
        text = self._last + self._held + data
        half = _HALF.search(text, max(len(self._last), len(text) - len(_NAME)))
        end = half.start() if half else len(text)
        self._held = text[end:]
        await self._pass_on(text[:end])

    async def end(self) -> None:
        text, self._held = self._last + self._held, b""
        await self._pass_on(text)

    async def _pass_on(self, text: bytes) -> None:
        at = len(self._last)
        if len(text) == at:
            return
        shown = []
        for found in _WHOLE.finditer(text, at):
            shown += [text[at : found.start()], self._project]
            at = found.end()
        shown.append(text[at:])
        self._last = text[-_CONTEXT:]
        await self._sink(b"".join(shown))


@asynccontextmanager
async def renamed(sinks: Sinks, project: str) -> AsyncIterator[Sinks]:
    """For who shows both streams while they come."""
    assert sinks.stdout is not None
    assert sinks.stderr is not None
    stdout, stderr = Renamed(sinks.stdout, project), Renamed(sinks.stderr, project)
    try:
        yield Sinks(stdout, stderr, sinks.started)
    finally:
        await stdout.end()
        await stderr.end()


# So many links may follow each other.
_MOST_LINKS = 40


@dataclass(frozen=True)
class Places:
    project: str
    # Folders outside the project that a person has agreed to. They keep their own paths: the links
    # that lead there hold these.
    linked: tuple[str, ...]
    # Where the playground really is, then its other names on the machine.
    playgrounds: tuple[str, ...]

    @classmethod
    def of(cls, paths: Paths, project: str, linked: Sequence[str] = ()) -> Places:
        named = (str(paths.playground_inside), f"{paths.real_home}/playground")
        return cls(project, tuple(linked), (os.path.realpath(paths.playground), *named))

    def to_inside(self, path: str) -> str | None:
        """None: it is not there. Paths that mean something inside only stay what they are."""
        for folder, shown in (
            (self.project, WORKSPACE),
            *((p, PLAYGROUND) for p in self.playgrounds),
        ):
            if is_inside(path, folder):
                return shown + path[len(folder) :]
        return path if is_inside(path, *self.linked) else None

    def to_host(self, path: str) -> str | None:
        """None: it belongs to the system in there. A project may itself lie in a folder of that
        name: then its own path counts."""
        if is_inside(path, self.project):
            return path
        for shown, folder in ((WORKSPACE, self.project), (PLAYGROUND, self.playgrounds[0])):
            if is_inside(path, shown):
                return folder + path[len(shown) :]
        return path if is_inside(path, *self.linked) else None


def find_working_dir_inside(
    given: str | None, places: Places, paths: Paths, rootfs: str, hidden: Sequence[str]
) -> str:
    """Where the command starts, named as on the machine or as inside."""
    if not given:
        return WORKSPACE
    if given == "playground":
        return PLAYGROUND
    if "\0" in given:
        raise WorkingDirError(given)
    whole = given
    if whole == "~" or whole.startswith("~/"):
        whole = f"{paths.home}{whole[1:]}"
    path = os.path.normpath(os.path.join(places.project, whole))
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
    # A link of the project's may lead there, too.
    found = folder_in(rootfs, path if places.to_host(path) is None else real)
    # These are empty when it starts.
    if found is None or (is_inside(found, *EMPTY_FOLDERS) and found not in EMPTY_FOLDERS):
        raise WorkingDirError(given)
    return found


def folder_in(rootfs: str, path: str) -> str | None:
    """The path of a folder of the system, links followed as they lead inside; None if there is
    none."""
    waiting = [part for part in path.split("/") if part][::-1]
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part in (".", ".."):
            del here[len(here) - (part == "..") :]
            continue
        whole = "/".join((rootfs, *here, part))
        try:
            mode = os.lstat(whole).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(mode):
            links += 1
            target = os.readlink(whole)
            if links > _MOST_LINKS:
                return None
            if target.startswith("/"):
                here = []
            waiting += [one for one in target.split("/") if one][::-1]
        elif stat.S_ISDIR(mode):
            here.append(part)
        else:
            return None
    return "/" + "/".join(here)
