# SPDX-License-Identifier: GPL-3.0-or-later
"""In a Flatpak: what holds the commands of a project in, in sentences for the badge. It is tried
out as it is before each question, so the badge and the card tell the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from gettext import gettext as _

from ...errors import OllmSandboxError
from ...paths import Paths
from ...sandbox.flatpak.portal import PortalError
from ...sandbox.flatpak.runner import InnerRunner, NotHandedOnError
from ...sandbox.profile import file
from ...sandbox.profile.profile import Limits, Profile
from ..i18n import spoken
from .badge import Section, Wall
from .project import ProjectState, broken, limits_without_sandbox


async def look(
    project: str, profile: str, paths: Paths, environ: Mapping[str, str], own: Limits
) -> ProjectState:
    """`own` limits instead of the profile's."""
    try:
        found = await asyncio.to_thread(file.load, profile, paths.profiles, paths.cache)
        loaded = found.with_limits(own)
        state = await _try(project, loaded, environ)
        return ProjectState(state.wall, (*state.sections, limits_without_sandbox(loaded)))
    except OllmSandboxError as error:
        return broken(error)


async def _try(project: str, loaded: Profile, environ: Mapping[str, str]) -> ProjectState:
    tight, loose = (
        InnerRunner(project, ask=_nobody, tight=tight, profile=loaded, environ=environ)
        for tight in (True, False)
    )
    try:
        await tight.try_out()
        return _inner()
    except NotHandedOnError as error:
        why = spoken(error.message)
    except PortalError as error:
        return _without(spoken(error.message))
    # As without a portal, if not even that can be had.
    with suppress(PortalError):
        await loose.try_out()
        return _offline(why)
    return _without(why)


def of_flatpak() -> ProjectState:
    """As long as no project is open."""
    sentence = _("Open a project to see what its commands can read and write.")
    return ProjectState(Wall.ASKING, (_asks(), Section(_("Sandbox"), (sentence,))))


def _inner() -> ProjectState:
    return ProjectState(
        Wall.INNER,
        (
            _asks(),
            Section(
                _("Can be written"),
                (
                    _("The project and the playground."),
                    _("What a command changes is changed at once, and cannot be undone here."),
                ),
            ),
            Section(
                _("Everything else"),
                (_("The programs of this Flatpak are there, and nothing else of yours."),),
            ),
            Section(_("Network"), (_("It is cut off, unless you allow it for a single command."),)),
        ),
    )


def _offline(why: str) -> ProjectState:
    meaning = _("A command can do all that this Flatpak may, but for the network.")
    network = _("It is cut off, unless you allow it for a single command.")
    return _not_sandboxed(meaning, why, network)


def _without(why: str) -> ProjectState:
    meaning = _("A command can do all that this Flatpak may.")
    return _not_sandboxed(meaning, why, _("It is open, and cannot be cut off here."))


def _not_sandboxed(meaning: str, why: str, network: str) -> ProjectState:
    sections = (
        _asks(),
        Section(_("Not sandboxed"), (meaning, spoken(why))),
        Section(_("Network"), (network,)),
    )
    return ProjectState(Wall.NONE, sections)


def _asks() -> Section:
    asks = _("In a Flatpak each command asks before it runs.")
    return Section(_("Asks each time"), (asks, _("A yes is good for that command only.")))


async def _nobody(_question: str) -> bool:
    return False
