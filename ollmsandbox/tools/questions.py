# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to the question that a person is asked about it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from gettext import gettext as _
from gettext import pgettext

from ..permission.request import Fact, PermissionRequest, Source, Verdict
from ..sandbox.plan.mounts import OverlaidFolder, WritableFolder
from ..sandbox.plan.plan import Plan
from ..sandbox.probe.probe import Capabilities
from ..sandbox.rootfs.paths import PLAYGROUND
from .base import Watcher
from .context import Workbench


def every_time() -> Fact:
    # Translators: names a line of the card: "asked   every time, and never remembered"
    label = pgettext("permission card", "asked")
    return Fact(label, _("every time, and never remembered"), is_said=True)


def make_request(
    bench: Workbench,
    tool: str,
    question: str,
    subject: str,
    *,
    host: str = "",
    target: str = "",
    sandboxed: bool = True,
    network: bool = False,
    facts: Sequence[Fact] = (),
    sees: Sequence[str] = (),
    call_id: str = "",
) -> PermissionRequest:
    """Without a target it is asked once only: no rule can be made of it, and none is found. The
    question is marked for translation, and may name the host."""
    return PermissionRequest(
        id=uuid.uuid4().hex,
        tool=tool,
        project=os.path.realpath(bench.project) if bench.project else "",
        question=question.format(host=host),
        subject=subject,
        target_path=target or f"once:{uuid.uuid4().hex}",
        one_time_only=not target,
        sandboxed=sandboxed,
        network=network,
        facts=(*facts, *(() if target else (every_time(),))),
        sees=tuple(sees),
        session_id=bench.session_id,
        call_id=call_id,
        translated=_(question).format(host=host),
    )


async def ask(bench: Workbench, watcher: Watcher, request: PermissionRequest) -> Verdict:
    watcher.asking(request)
    verdict = await bench.permissions.decide(request)
    watcher.answered(verdict)
    return verdict


def facts_of(bench: Workbench, plan: Plan) -> list[Fact]:
    writes = [m.folder for m in plan.mounts if isinstance(m, OverlaidFolder | WritableFolder)]
    playground = (f"{bench.paths.real_home}/playground", PLAYGROUND)
    # The project first; the plan has the order of the mounts.
    writes.sort(key=lambda folder: folder in playground)
    names = [_("playground") if folder in playground else bench.shown(folder) for folder in writes]
    return [_in(bench, plan.working_dir), _network(on=plan.network), writes_fact(", ".join(names))]


def plain_facts(bench: Workbench, folder: str, *, offline: bool = False) -> list[Fact]:
    open_ = Fact(_network_label(), _("on: it cannot be cut off here"), is_said=True)
    writes = replace(writes_fact(_("whatever you can write")), is_said=True)
    return [_in(bench, folder), _network(on=False) if offline else open_, writes]


def inner_facts(bench: Workbench, folder: str, project: str, *, network: bool) -> list[Fact]:
    # Translators: what a command writes to, and how. Please use no marks here that a command line
    # does not know, such as full-width ones: beside a path they are shown by their number.
    text = _("{folder}, playground: at once, and not recorded")
    writes = writes_fact(text.format(folder=bench.shown(project)))
    return [_in(bench, folder), _network(on=network), writes]


def writes_fact(value: str) -> Fact:
    # Translators: names a line of the card: "writes   ~/src/parser, playground"
    return Fact(pgettext("permission card", "writes"), value)


def _in(bench: Workbench, folder: str) -> Fact:
    # Translators: names a line of the card, the folder a command starts in: "in   ~/src/parser"
    return Fact(pgettext("permission card", "in"), bench.shown(folder))


def _network(*, on: bool) -> Fact:
    # Translators: the network; it stands beside "network"
    off = pgettext("permission card", "off")
    return Fact(_network_label(), _("ON for this command") if on else off, is_said=True)


def _network_label() -> str:
    # Translators: names a line of the card: "network   off"
    return pgettext("permission card", "network")


def inner_sandbox(*, network: bool) -> list[str]:
    """What a Flatpak's inner sandbox means."""
    return [
        _("The network is open.") if network else _("The network is cut off."),
        _(
            "This runs in a sandbox of its own, which the Flatpak portal started: the programs of "
            "this Flatpak are there, the project and the playground, and nothing else of yours."
        ),
        _(
            "What it changes in them is changed at once. It is not recorded and cannot be undone "
            "here."
        ),
    ]


def without_sandbox(found: Capabilities, meaning: str) -> list[str]:
    """What that means, which is marked for translation, and why it is so."""
    return [_(meaning), *(found.translated(miss).cause for miss in found.missing)]


def denial(verdict: Verdict, what: str) -> str:
    """For the model."""
    if verdict.source is Source.NOBODY:
        return f"ERROR: {what} was not allowed: nobody was there to ask. Nothing was done."
    return (
        f"ERROR: {what} was denied by the person. Nothing was done. "
        "Do not try the same again; go on without it, or ask what to do instead."
    )
