# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe for the badge what a command can see and change in a project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...errors import OllmSandboxError
from ...i18n import _, localized
from ...text.visible import visible_line
from .badge import SandboxState, Section
from .limits import sentences

if TYPE_CHECKING:
    from ...paths import Paths
    from ...sandbox.plan.plan import Plan
    from ...sandbox.profile.profile import Limits, Profile
    from ..sessions.open_session import OpenSession


class ProjectState(NamedTuple):
    sandbox: SandboxState
    sections: tuple[Section, ...]


def find_state(
    project: str, profile: str, paths: Paths, environ: Mapping[str, str], own: Limits
) -> ProjectState:
    """Return the state of a project, with the user's own limits in place of the profile's.

    This takes a moment: call it in a thread.
    """
    # Imported here: the first frame does not need the engine.
    from ...engine.run import awaits_rootfs, load_profile, prepare_run
    from ...sandbox.bubble import Bubble

    try:
        if not Bubble.can_wrap(environ):
            state = machine_state(can_wrap=False)
            limits = limits_without_sandbox(load_profile(paths, profile, own))
            return ProjectState(state.sandbox, (*state.sections, limits))
        if awaits_rootfs(paths, environ, os.path.realpath(project)):
            sentence = _("Alpine is installed with the first command.")
            return ProjectState(SandboxState.SANDBOXED, (Section(_("Sandboxed"), (sentence,)),))
        run = prepare_run(project, paths, environ, profile=profile, limits=own)
        return ProjectState(SandboxState.SANDBOXED, sections_of(run.plan))
    except OllmSandboxError as error:
        return broken_state(error)


def with_network(sandbox: SandboxState, session: OpenSession | None) -> SandboxState:
    """Return the state to show while a command of the session may be using the network."""
    if session is not None and session.has_network:
        return {
            SandboxState.SANDBOXED: SandboxState.NETWORK,
            SandboxState.INNER: SandboxState.INNER_NETWORK,
        }.get(sandbox, sandbox)
    return sandbox


def broken_state(error: OllmSandboxError) -> ProjectState:
    sentence = localized(str(error))
    return ProjectState(SandboxState.BROKEN, (Section(_("Commands cannot run here"), (sentence,)),))


def machine_state(*, can_wrap: bool) -> ProjectState:
    """Return the state to show before a project is open."""
    if can_wrap:
        sentence = _("Open a project to see what its commands can read and write.")
        return ProjectState(SandboxState.SANDBOXED, (Section(_("Sandboxed"), (sentence,)),))
    sentence = _(
        "This computer cannot run a sandbox. You will be asked before each command, and "
        "commands can see everything you can."
    )
    return ProjectState(SandboxState.NONE, (Section(_("Not sandboxed"), (sentence,)),))


def sections_of(plan: Plan) -> tuple[Section, ...]:
    """Return the plan's sentences, sorted by subject."""
    # Not needed for the first frame.
    from ...sandbox.plan.mounts import (
        BoundFolder,
        HiddenPath,
        MaskedFolder,
        OverlaidFolder,
        WritableFolder,
    )

    writes: list[str] = []
    hidden: list[str] = []
    rest: list[str] = []
    for mount in plan.mounts:
        match mount:
            case HiddenPath():
                hidden.append(visible_line(mount.path))
            case MaskedFolder():
                hidden += _existing(mount.spec.folder, mount.spec.hidden)
            case BoundFolder():
                hidden += _existing(mount.folder, mount.hidden)
            case OverlaidFolder() | WritableFolder():
                writes += filter(None, [mount.describe()])
            case _:
                rest += filter(None, [mount.describe()])
    return tuple(
        section
        for section in (
            Section(_("Can write"), writes),
            Section(_("Everything else"), rest),
            Section(_("Hidden"), hidden),
            Section(_("Network"), [plan.describe_network()]),
            Section(_("Limits"), sentences(plan.limits)),
        )
        if section.sentences
    )


def _existing(folder: str, names: Iterable[str]) -> list[str]:
    """Return the paths that exist, one per line below the heading."""
    paths = [f"{folder}/{name}" for name in names]
    return [visible_line(path) for path in paths if os.path.lexists(path)]


def limits_without_sandbox(profile: Profile) -> Section:
    """Return the limits that apply without a sandbox, which has no temporary folders of its own."""
    limits = profile.limits._replace(tmp=None)
    return Section(_("Limits"), sentences(limits, is_sandboxed=False))
