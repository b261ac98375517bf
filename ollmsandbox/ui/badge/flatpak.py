# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe for the badge what a command can do in a Flatpak.

The portal is tried as before each question, so the badge and the card say the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...engine.run import Confinement, load_profile, prepare_unrecorded_run
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ...paths import Paths
from ...sandbox.flatpak.portal import PortalError
from ...sandbox.flatpak.runner import ProjectNotSharedError
from ...sandbox.profile.profile import Limits
from ...sandbox.unsandboxed.runner import UnsandboxedRunner
from .badge import SandboxState, Section
from .project import ProjectState, broken_state, limits_without_sandbox


async def find_state(
    project: str, profile: str, paths: Paths, environ: Mapping[str, str], own: Limits
) -> ProjectState:
    """Return the state of a project, with the user's own limits in place of the profile's."""

    def prepare(confinement: Confinement) -> UnsandboxedRunner:
        return prepare_unrecorded_run(
            project, paths, environ, confinement, ask=_deny, profile=profile, limits=own
        )

    try:
        loaded = await asyncio.to_thread(load_profile, paths, profile, own)
        state = await _try(prepare)
        return ProjectState(state.sandbox, (*state.sections, limits_without_sandbox(loaded)))
    except OllmSandboxError as error:
        return broken_state(error)


async def _try(prepare: Callable[[Confinement], UnsandboxedRunner]) -> ProjectState:
    try:
        await prepare(Confinement.INNER).check()
        return _inner()
    except ProjectNotSharedError as error:
        why = localized(error.message)
    except PortalError as error:
        return _without(localized(error.message))
    # If this fails, too, it is as without a portal.
    with suppress(PortalError):
        await prepare(Confinement.OFFLINE).check()
        return _offline(why)
    return _without(why)


def state_without_project() -> ProjectState:
    sentence = _("Open a project to see what its commands can read and write.")
    return ProjectState(SandboxState.ASKING, (_asks_section(), Section(_("Sandbox"), (sentence,))))


def _inner() -> ProjectState:
    return ProjectState(
        SandboxState.INNER,
        (
            _asks_section(),
            Section(
                _("Can write"),
                (
                    _("The project and the playground."),
                    _("Commands change files directly. You cannot undo their changes here."),
                ),
            ),
            Section(
                _("Everything else"),
                (_("Commands see the programs of this Flatpak, but none of your other files."),),
            ),
            Section(_("Network"), (_("Off, unless you allow it for a single command."),)),
        ),
    )


def _offline(why: str) -> ProjectState:
    meaning = _("Commands can do everything this Flatpak can, except use the network.")
    network = _("Off, unless you allow it for a single command.")
    return _not_sandboxed(meaning, why, network)


def _without(why: str) -> ProjectState:
    meaning = _("Commands can do everything this Flatpak can.")
    return _not_sandboxed(meaning, why, _("On. It cannot be turned off here."))


def _not_sandboxed(meaning: str, why: str, network: str) -> ProjectState:
    sections = (
        _asks_section(),
        Section(_("Not sandboxed"), (meaning, why)),
        Section(_("Network"), (network,)),
    )
    return ProjectState(SandboxState.NONE, sections)


def _asks_section() -> Section:
    asks = _("In a Flatpak, you will be asked before each command runs.")
    return Section(_("Asks each time"), (asks, _("Your answer applies to that command only.")))


async def _deny() -> bool:
    return False
