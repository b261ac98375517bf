# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command would see in a project, in sentences for the badge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from gettext import gettext as _
from gettext import ngettext

from gi.repository import GLib

from ..errors import OllmSandboxError
from ..paths import Paths
from ..project.recorder import Recorder
from ..project.system import System, system_of
from ..sandbox import profile_file
from ..sandbox.bubble import Bubble
from ..sandbox.mounts import Hidden, Layered, Overlaid, Pieced, Writable
from ..sandbox.plan import Plan
from ..sandbox.profile import Limits
from ..sandbox.rootfs_store import need
from .open_session import OpenSession
from .sandbox_badge import Section, Wall
from .spoken import spoken


@dataclass(frozen=True)
class ProjectState:
    wall: Wall
    sections: tuple[Section, ...]


def look(
    project: str, profile: str, paths: Paths, environ: Mapping[str, str], limit: float | None
) -> ProjectState:
    """`limit` in seconds, instead of the profile's. Takes a moment; not for the main thread."""
    try:
        if not Bubble.can_wrap(environ):
            return of_machine(can_wrap=False)
        loaded = profile_file.load(profile, paths.profiles, paths.cache)
        alpine = system_of(paths, project) is System.ALPINE
        bubble = Bubble(
            project,
            profile=loaded,
            environ=environ,
            timeout=limit,
            keeper=Recorder(project, paths),
            rootfs=need(paths, environ) if alpine else None,
        )
        return ProjectState(Wall.SANDBOXED, sections_of(bubble.plan))
    except OllmSandboxError as error:
        return broken(error)


def wall_now(wall: Wall, session: OpenSession | None) -> Wall:
    """While a command has the network, the badge says so."""
    if session is not None and session.has_network:
        return {Wall.SANDBOXED: Wall.NETWORK, Wall.INNER: Wall.INNER_NETWORK}.get(wall, wall)
    return wall


def broken(error: OllmSandboxError) -> ProjectState:
    sentence = spoken(str(error))
    return ProjectState(Wall.BROKEN, (Section(_("Commands cannot run here"), (sentence,)),))


def of_machine(*, can_wrap: bool) -> ProjectState:
    """As long as no project is open."""
    if can_wrap:
        sentence = _("Open a project to see what its commands can read and write.")
        return ProjectState(Wall.SANDBOXED, (Section(_("Sandboxed"), (sentence,)),))
    sentence = _("No sandbox is possible here. Each command asks, and sees what you see.")
    return ProjectState(Wall.NONE, (Section(_("Not sandboxed"), (sentence,)),))


def sections_of(plan: Plan) -> tuple[Section, ...]:
    """The plan's own sentences, by what they are about."""
    network = plan.describe()[0]
    writes: list[str] = []
    hidden: list[str] = []
    rest: list[str] = []
    for mount in plan.mounts:
        of_its_kind = rest
        if isinstance(mount, Overlaid | Writable):
            of_its_kind = writes
        elif isinstance(mount, Hidden | Layered | Pieced):
            of_its_kind = hidden
        of_its_kind += filter(None, [mount.describe()])
    return tuple(
        section
        for section in (
            Section(_("Can be written"), writes),
            Section(_("Everything else"), rest),
            Section(_("Hidden"), hidden),
            Section(_("Network"), [network]),
            Section(_("Limits of a command"), limits_of(plan.limits)),
        )
        if section.sentences
    )


def limits_of(limits: Limits) -> list[str]:
    found = []
    if limits.time is not None:
        found.append(_duration(round(limits.time)))
    if limits.processes is not None:
        found.append(_("{} processes at once").format(limits.processes))
    if limits.memory is not None:
        found.append(_("{} of memory").format(_size(limits.memory)))
    if limits.disk is not None:
        found.append(_("{} written to disk").format(_size(limits.disk)))
    return found


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if rest or not minutes:
        return ngettext("{} second", "{} seconds", seconds).format(seconds)
    return ngettext("{} minute", "{} minutes", minutes).format(minutes)


def _size(size: int) -> str:
    return GLib.format_size(size)
