# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command would see in a project, in sentences for the badge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from gettext import gettext as _
from typing import TYPE_CHECKING

from ...errors import OllmSandboxError
from ...paths import Paths
from ...sandbox.plan.mounts import (
    BoundFolder,
    HiddenPath,
    MaskedFolder,
    OverlaidFolder,
    WritableFolder,
)
from ...sandbox.plan.plan import Plan
from ...sandbox.profile.profile import Limits, Profile
from ...text.visible import visible_line
from ..i18n import spoken
from .badge import Section, Wall
from .limits import sentences

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession


@dataclass(frozen=True)
class ProjectState:
    wall: Wall
    sections: tuple[Section, ...]


def look(
    project: str, profile: str, paths: Paths, environ: Mapping[str, str], own: Limits
) -> ProjectState:
    """`own` limits instead of the profile's. Takes a moment; not for the main thread."""
    # Here, because the first picture can do without all that runs a command.
    from ...engine.run import load_profile, prepare_run
    from ...sandbox.bubble import Bubble

    try:
        if not Bubble.can_wrap(environ):
            state = of_machine(can_wrap=False)
            limits = limits_without_sandbox(load_profile(paths, profile, own))
            return ProjectState(state.wall, (*state.sections, limits))
        run = prepare_run(project, paths, environ, profile=profile, limits=own)
        return ProjectState(Wall.SANDBOXED, sections_of(run.plan))
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
        if isinstance(mount, HiddenPath | MaskedFolder | BoundFolder):
            hidden += _paths(mount)
            continue
        of_its_kind = writes if isinstance(mount, OverlaidFolder | WritableFolder) else rest
        of_its_kind += filter(None, [mount.describe()])
    return tuple(
        section
        for section in (
            Section(_("Can be written"), writes),
            Section(_("Everything else"), rest),
            Section(_("Hidden"), hidden),
            Section(_("Network"), [network]),
            Section(_("Limits of a command"), sentences(plan.limits)),
        )
        if section.sentences
    )


def _paths(mount: HiddenPath | MaskedFolder | BoundFolder) -> list[str]:
    """One below the other: that they are hidden stands above them. Only those that are there."""
    if isinstance(mount, HiddenPath):
        return [visible_line(mount.path)]
    if isinstance(mount, MaskedFolder):
        folder, names = mount.spec.folder, mount.spec.hidden
    else:
        folder, names = mount.folder, mount.hidden
    paths = [f"{folder}/{name}" for name in names]
    return [visible_line(path) for path in paths if os.path.lexists(path)]


def limits_without_sandbox(profile: Profile) -> Section:
    """There are no folders for temporary files of its own."""
    limits = replace(profile.limits, tmp=None)
    return Section(_("Limits of a command"), sentences(limits, is_held_in=False))
