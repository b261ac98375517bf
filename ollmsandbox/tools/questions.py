# SPDX-License-Identifier: GPL-3.0-or-later
"""Words permission questions: builds requests from plans, with what a tool says about its call."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace

from ..i18n import _, pgettext
from ..permission.request import Fact, PermissionRequest, Source, Verdict
from ..sandbox.plan.mounts import Device, OverlaidFolder, WritableFolder
from ..sandbox.plan.plan import Plan
from ..sandbox.probe.probe import Capabilities
from ..sandbox.rootfs.paths import PLAYGROUND
from .base import RequestBase, Watcher
from .context import ToolContext


def every_time() -> Fact:
    # Translators: names a line of the card: "Asked   Every time"
    return Fact(pgettext("permission card", "Asked"), _("Every time"), is_wording=True)


def make_request(
    context: ToolContext,
    tool: str,
    question: str,
    subject: str,
    *,
    heading: str = "",
    host: str = "",
    target: str = "",
    for_project: bool = False,
    sandboxed: bool = True,
    network: bool = False,
    facts: Sequence[Fact] = (),
    sees: Sequence[str] = (),
    call_id: str = "",
    notice: str = "",
) -> PermissionRequest:
    """Return a request. Without a `target` no rule can answer it, and none can be made.

    The question, the heading and the notice are marked for translation. The question may contain
    {host}; with a heading, it contains {command}.
    """
    one_time_only = not target and not for_project
    words = {"command": subject} if heading else {"host": host}
    return PermissionRequest(
        id=uuid.uuid4().hex,
        tool=tool,
        project=os.path.realpath(context.project) if context.project else "",
        question=question.format(**words),
        subject=subject,
        target_path=target or f"once:{uuid.uuid4().hex}",
        one_time_only=one_time_only,
        for_project=for_project,
        sandboxed=sandboxed,
        network=network,
        facts=(*facts, *((every_time(),) if one_time_only else ())),
        sees=tuple(sees),
        session_id=context.session_id,
        call_id=call_id,
        translated=_(question) if heading else _(question).format(host=host),
        heading=_(heading) if heading else "",
        notice=_(notice) if notice else "",
    )


async def ask(
    context: ToolContext, watcher: Watcher, call: RequestBase, request: PermissionRequest
) -> Verdict:
    """Ask the user about a call, unless a rule answers."""
    call.question = request
    watcher.asking(request)
    verdict = await context.permissions.decide(request)
    watcher.answered(verdict)
    return verdict


def facts_of(context: ToolContext, plan: Plan) -> list[Fact]:
    writes = [m.folder for m in plan.mounts if isinstance(m, OverlaidFolder | WritableFolder)]
    playground = (f"{context.paths.real_home}/playground", PLAYGROUND)
    # The project first; the plan lists mounts in the order of mounting.
    writes.sort(key=lambda folder: folder in playground)
    names = [
        _("Playground") if folder in playground else context.shown(folder) for folder in writes
    ]
    return [
        _folder(context, plan.working_dir),
        _network(on=plan.network),
        writes_fact(", ".join(names)),
        _devices(plan),
        # Translators: names a line of the card: "Can read   The project and the playground"
        Fact(pgettext("permission card", "Can read"), plan.describe_reading(), is_wording=True),
    ]


def plain_facts(context: ToolContext, folder: str, *, offline: bool = False) -> list[Fact]:
    open_ = Fact(_network_label(), _("On: it cannot be turned off here"), is_wording=True)
    writes = replace(writes_fact(_("Everything you can write to")), is_wording=True)
    return [_folder(context, folder), _network(on=False) if offline else open_, writes]


def inner_facts(context: ToolContext, folder: str, project: str, *, network: bool) -> list[Fact]:
    # Translators: what a command writes to, and how. Please use only ASCII punctuation: beside a
    # path, full-width characters are shown by their number.
    text = _("{folder}, playground: right away, and not recorded")
    writes = writes_fact(text.format(folder=context.shown(project)))
    return [_folder(context, folder), _network(on=network), writes]


def writes_fact(value: str) -> Fact:
    # Translators: names a line of the card: "Can write   ~/src/parser, Playground"
    return Fact(pgettext("permission card", "Can write"), value)


def _devices(plan: Plan) -> Fact:
    # Translators: names a line of the card: "Devices   /dev/dri/renderD128"
    label = pgettext("permission card", "Devices")
    found = [mount.path for mount in plan.mounts if isinstance(mount, Device)]
    if found:
        return Fact(label, ", ".join(found))
    # Translators: no devices; it stands beside "Devices"
    return Fact(label, pgettext("devices", "None"), is_wording=True)


def _folder(context: ToolContext, folder: str) -> Fact:
    # Translators: names a line of the card, the folder a command starts in: "Folder   ~/parser"
    return Fact(pgettext("permission card", "Folder"), context.shown(folder))


def _network(*, on: bool) -> Fact:
    # Translators: the network; it stands beside "Network"
    off = pgettext("permission card", "Off")
    return Fact(_network_label(), _("On, for this command") if on else off, is_wording=True)


def _network_label() -> str:
    # Translators: names a line of the card: "Network   Off"
    return pgettext("permission card", "Network")


def inner_sandbox(*, network: bool) -> list[str]:
    """Return sentences that explain a Flatpak's inner sandbox."""
    return [
        _("Network access is on.") if network else _("Network access is off."),
        _(
            "The Flatpak portal starts a separate sandbox for this command. It contains this "
            "Flatpak's programs, the project and the playground, and no other files of yours."
        ),
        _("Changes are made right away. They are not recorded and cannot be undone here."),
    ]


def without_sandbox(found: Capabilities, meaning: str) -> list[str]:
    """Return sentences that explain what it means to have no sandbox, and why there is none.

    `meaning` is marked for translation.
    """
    return [_(meaning), *(found.translated(miss).cause for miss in found.missing)]


def denial(verdict: Verdict, what: str) -> str:
    """Return the error for the model."""
    if verdict.source is Source.NOBODY:
        return f"{what} was not allowed: nobody could be asked. Nothing was done."
    return (
        f"{what} was denied by the user. Nothing was done. "
        "Do not try the same again; continue without it, or ask what to do instead."
    )
