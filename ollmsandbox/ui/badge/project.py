# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe for the badge what a command can see and change in a project."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gi.repository import GLib

from ...errors import OllmSandboxError
from ...i18n import _, localized, ngettext
from ...text.visible import visible_line
from ..widgets.readable import number
from .badge import SandboxState, Section

if TYPE_CHECKING:
    from ...paths import Paths
    from ...sandbox.plan.plan import Plan
    from ...sandbox.profile.profile import Limits, Profile
    from ...sandbox.spec import RunSpec
    from ...sandbox.unsandboxed.runner import UnsandboxedRunner
    from ..sessions.open_session import OpenSession


class ProjectState(NamedTuple):
    sandbox: SandboxState
    sections: tuple[Section, ...]


async def find_state(spec: RunSpec, paths: Paths, environ: Mapping[str, str]) -> ProjectState:
    """Return what a run of a project could do. In a Flatpak, the portal is tried as before each
    question, so the badge and the card say the same."""
    # Imported here: the first frame does not need the engine.
    from ...engine.executor import FlatpakExecutor, find_executor
    from ...engine.run import PreparedRun, awaits_rootfs, load_profile

    try:
        executor = await asyncio.to_thread(find_executor, paths, environ, spec.project)
        if executor.is_recorded and awaits_rootfs(paths, environ, spec.project):
            sentence = _("Alpine is installed with the first command.")
            return ProjectState(SandboxState.SANDBOXED, (Section(_("Sandboxed"), (sentence,)),))
        async with executor.prepare(spec) as run:
            if isinstance(run, PreparedRun):
                sections = await asyncio.to_thread(sections_of, run.plan)
                return ProjectState(SandboxState.SANDBOXED, sections)
        is_flatpak = isinstance(executor, FlatpakExecutor)
        state = _flatpak_state(run) if is_flatpak else machine_state(can_wrap=False)
        profile = await asyncio.to_thread(load_profile, paths, spec)
        return ProjectState(state.sandbox, (*state.sections, limits_without_sandbox(profile)))
    except OllmSandboxError as error:
        section = Section(_("Commands cannot run here"), (localized(str(error)),))
        return ProjectState(SandboxState.BROKEN, (section,))


def with_network(sandbox: SandboxState, session: OpenSession | None) -> SandboxState:
    """Return the state to show while a command of the session may be using the network."""
    if session is not None and session.has_network:
        return {
            SandboxState.SANDBOXED: SandboxState.NETWORK,
            SandboxState.INNER: SandboxState.INNER_NETWORK,
        }.get(sandbox, sandbox)
    return sandbox


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


def _flatpak_state(run: UnsandboxedRunner) -> ProjectState:
    from ...sandbox.unsandboxed.runner import Confinement

    if run.confinement is Confinement.INNER:
        return _inner()
    meaning = _("Commands can do everything this Flatpak can.")
    network: Sequence[str] = (_("On. It cannot be turned off here."),)
    if run.confinement is Confinement.OFFLINE:
        meaning = _("Commands can do everything this Flatpak can, except use the network.")
        network = _whole_network()
    sections = (
        _asks_section(),
        Section(_("Not sandboxed"), (meaning, localized(run.why or ""))),
        Section(_("Network"), network),
    )
    return ProjectState(SandboxState.NONE, sections)


def flatpak_state_without_project() -> ProjectState:
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
            Section(_("Network"), _whole_network()),
        ),
    )


def _whole_network() -> Sequence[str]:
    return (
        _("Off, unless you allow it for a single command."),
        _("It cannot be limited to hosts here: allowing it opens the whole network."),
    )


def _asks_section() -> Section:
    asks = _("In a Flatpak, you will be asked before each command runs.")
    return Section(_("Asks each time"), (asks, _("Your answer applies to that command only.")))


def sections_of(plan: Plan) -> tuple[Section, ...]:
    """Return the plan's sentences, sorted by subject."""
    # Not needed for the first frame.
    from ...sandbox.plan import mounts

    writes: list[str] = []
    hidden: list[str] = []
    rest: list[str] = []
    for mount in plan.mounts:
        match mount:
            case mounts.HiddenPath():
                hidden.append(visible_line(mount.path))
            case mounts.MaskedFolder():
                hidden += _existing(mount.spec.folder, mount.spec.hidden)
            case mounts.BoundFolder():
                hidden += _existing(mount.folder, mount.hidden)
            case mounts.OverlaidFolder() | mounts.WritableFolder():
                writes += filter(None, [mount.describe()])
            case _:
                rest += filter(None, [mount.describe()])
    asks = _("A command can ask for hosts. You are asked every time, and it reaches no others.")
    return tuple(
        section
        for section in (
            Section(_("Can write"), writes),
            Section(_("Everything else"), rest),
            Section(_("Hidden"), hidden),
            Section(_("Network"), [plan.describe_network(), *([] if plan.network else [asks])]),
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


def sentences(limits: Limits, *, is_sandboxed: bool = True) -> list[str]:
    """Return the limits that are set, as texts.

    Without a sandbox, only what a command writes to the project is counted.
    """

    def size(text: str) -> Callable[[float], str]:
        # In the units in which users and profiles set them.
        units = GLib.FormatSizeFlags.IEC_UNITS
        return lambda value: text.format(GLib.format_size_full(round(value), units))

    written = _("{} written to disk") if is_sandboxed else _("{} written to the project")
    found: tuple[tuple[float | None, Callable[[float], str]], ...] = (
        (limits.time, lambda seconds: _duration(round(seconds))),
        (limits.memory, size(_("{} of memory"))),
        (limits.processes, lambda count: _("{} processes").format(number(round(count)))),
        (limits.disk, size(written)),
        (limits.free, size(_("{} left free on the disk"))),
        (limits.tmp, size(_("{} in each folder for temporary files"))),
    )
    return [text(value) for value, text in found if value is not None]


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if rest or not minutes:
        return ngettext("{} second", "{} seconds", seconds).format(seconds)
    return ngettext("{} minute", "{} minutes", minutes).format(minutes)
