# SPDX-License-Identifier: GPL-3.0-or-later
"""Words all permission questions, from the plans of runs and from what calls are about.

The front ends add how long each answer applies, and what can be pressed.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from .. import N_
from ..engine.executor import Executor, Run
from ..engine.run import PreparedRun
from ..errors import DeniedError, in_lines
from ..i18n import _, pgettext
from ..permission.request import REACH_HOST, RUN_COMMAND, Fact, PermissionRequest, Source, Verdict
from ..sandbox.network.hosts import HostUse, parse_hosts
from ..sandbox.network.proxy import Proxy
from ..sandbox.plan.mounts import Device, OverlaidFolder, WritableFolder
from ..sandbox.plan.plan import Plan
from ..sandbox.rootfs.paths import PLAYGROUND
from ..sandbox.spec import RunSpec
from ..sandbox.unsandboxed.runner import Confinement
from ..text.ansi import escape_line
from .base import RequestBase, Watcher
from .context import ToolContext
from .roots import ClosedFolder, approve_root

WITH_NETWORK = N_("Run command with network access: {command}?")
_PROJECT_CHANGED = N_(
    "The project, the playground or a cache changed while this question was open."
)
_UNSANDBOXED_COMMAND = N_(
    "This is not sandboxed: the command can do everything you can, and its changes are not "
    "recorded."
)
_OFFLINE_COMMAND = N_(
    "This is not sandboxed: the command can do everything this Flatpak can, except use the "
    "network, and its changes are not recorded."
)
_UNSANDBOXED_READING = N_("This is not sandboxed: the file is read with your full permissions.")
_UNSANDBOXED_CHANGE = N_(
    "This is not sandboxed: the file is changed directly. Changes in the project are "
    "recorded, and you can undo them."
)


async def ask(context: ToolContext, watcher: Watcher, request: PermissionRequest) -> Verdict:
    """Ask the user, unless a rule answers."""
    watcher.asking(request)
    verdict = await context.permissions.decide(request)
    watcher.answered(verdict)
    return verdict


async def ask_or_end(
    context: ToolContext, watcher: Watcher, call: RequestBase, request: PermissionRequest, what: str
) -> None:
    """Ask the user about a call, and raise DeniedError if it is denied. `what` names what the call
    needs, for the model."""
    call.verdict = await ask(context, watcher, request)
    if call.verdict.allowed:
        return
    why = (
        "denied by the user. Nothing was done. "
        "Do not try the same again; continue without it, or ask what to do instead."
    )
    if call.verdict.source is Source.NOBODY:
        why = "not allowed: nobody could be asked. Nothing was done."
    raise DeniedError(in_lines(f"{what} was {why}"))


async def ask_about_folder(
    context: ToolContext,
    watcher: Watcher,
    call: RequestBase,
    closed: ClosedFolder,
    first: str,
    call_id: str,
) -> None:
    """Ask about a folder outside that a call needs, and open it to commands. `first` is the command
    or change that needs it."""
    question = folder_question(context, closed, first, call_id)
    await ask_or_end(context, watcher, call, question, f"Writing to {closed.path}")
    await asyncio.to_thread(approve_root, context, context.folder(), closed.path)


def command_question(
    context: ToolContext,
    executor: Executor,
    run: Run,
    spec: RunSpec,
    hosts: str,
    *,
    again: bool = False,
) -> PermissionRequest:
    """Return the question about a command. `hosts` are those that it names, as text; `again` if the
    project changed before the answer."""
    network, folder = spec.network, spec.working_dir or spec.project
    request = partial(
        _request,
        context,
        RUN_COMMAND,
        subject=spec.command,
        call_id=spec.call_id,
        notice=_PROJECT_CHANGED if again else "",
    )
    if isinstance(run, PreparedRun):
        return request(
            question=WITH_NETWORK if network else N_("Run command?"),
            heading=N_("Run command with network access?") if network else "",
            # A rule is for one command in one folder.
            target="" if network else run.plan.working_dir,
            network=network,
            facts=_plan_facts(context, run.plan, hosts, spec.hosts),
            sees=run.plan.describe(),
        )
    if run.confinement is Confinement.INNER:
        heading = N_("Run command in the Flatpak's inner sandbox, with network access?")
        return request(
            question=WITH_NETWORK if network else N_("Run command in the Flatpak's inner sandbox?"),
            heading=heading if network else "",
            network=network,
            facts=_inner_facts(context, folder, spec.project, network=network),
            sees=_inner_sandbox(network=network),
        )
    is_offline = run.confinement is Confinement.OFFLINE
    offline = N_("Run command without a sandbox, and without network access?")
    sees = _without_sandbox(executor, _OFFLINE_COMMAND if is_offline else _UNSANDBOXED_COMMAND)
    return request(
        question=offline if is_offline else N_("Run command without a sandbox?"),
        sandboxed=False,
        network=not is_offline,
        facts=_unsandboxed_facts(context, folder, offline=is_offline),
        sees=[*sees, run.why.translated(_)] if run.why else sees,
    )


def host_question(
    context: ToolContext, command: str, host: str, port: int, address: str, call_id: str
) -> PermissionRequest:
    """Return the question about a host that a running command tries to reach; with an `address`,
    about its being in a private network."""
    for_session = context.session_hosts
    # Translators: names a line of the card: "Host   example.org"
    facts = [Fact(pgettext("permission card", "Host"), host)]
    # Translators: names a line of the card: "Port   443"
    facts.append(Fact(pgettext("permission card", "Port"), str(port)))
    facts += _proxies(context, [f"{host}:{port}"])
    if address:
        # Translators: names a line of the card: "Private address   10.1.2.3"
        facts.append(Fact(pgettext("permission card", "Private address"), address))
    return _request(
        context,
        REACH_HOST,
        N_("Let the command reach {host} in your private network?")
        if address
        else N_("Let the command reach {host}?"),
        command,
        host=str(HostUse(host, port)),
        target=" ".join(filter(None, (f"{host}:{port}", address))) if for_session else "",
        for_session=for_session,
        network=True,
        facts=facts,
        call_id=call_id,
    )


def folder_question(
    context: ToolContext, closed: ClosedFolder, first: str, call_id: str
) -> PermissionRequest:
    """Return the question about a folder outside; `first` is the command that needs it."""
    return _request(
        context,
        "agree_root",
        N_("Let this project's commands change a folder outside the project?"),
        closed.path,
        for_project=True,
        facts=[
            # Translators: names a line of the card: "Linked from   ~/src/parser/data"
            Fact(pgettext("permission card", "Linked from"), context.paths.shown(closed.link)),
            Fact(
                # Translators: names a line of the card: "Applies to   All commands of this ..."
                pgettext("permission card", "Applies to"),
                _("All commands of this project, until you remove the folder"),
                is_wording=True,
            ),
            # Translators: names a line of the card: "First command   make test"
            Fact(pgettext("permission card", "First command"), escape_line(first)),
        ],
        call_id=call_id,
    )


def reading_question(
    context: ToolContext, executor: Executor, path: str, call_id: str
) -> PermissionRequest:
    """Return the question about reading a file, which is asked without a sandbox only."""
    return _request(
        context,
        "read_file",
        N_("Read a file without a sandbox?"),
        path,
        sandboxed=False,
        sees=_without_sandbox(executor, _UNSANDBOXED_READING),
        call_id=call_id,
    )


def change_question(
    context: ToolContext, executor: Executor, path: str, preview: Sequence[str], call_id: str
) -> PermissionRequest:
    """Return the question about a change to a file; lines show the change."""
    is_sandboxed = executor.is_recorded
    return _request(
        context,
        # A saved answer is for a file, however that is changed.
        "edit_file",
        N_("Change a file?") if is_sandboxed else N_("Change a file without a sandbox?"),
        "\n".join([path, *preview]),
        target=os.path.realpath(path) if is_sandboxed else "",
        sandboxed=is_sandboxed,
        facts=[_writes(context.paths.shown(path))],
        sees=() if is_sandboxed else _without_sandbox(executor, _UNSANDBOXED_CHANGE),
        call_id=call_id,
    )


def page_question(
    context: ToolContext, address: str, host: str, came_from: str, call_id: str
) -> PermissionRequest:
    """Return the question about a web page; the host `came_from` may have redirected to it."""
    # Translators: names a line of the card: "Host   example.org"
    facts = [Fact(pgettext("permission card", "Host"), host)]
    if came_from:
        # Translators: names a line of the card, the host whose page redirects to this one.
        facts.append(Fact(pgettext("permission card", "Redirected by"), came_from))
    return _request(
        context,
        "web_fetch",
        N_("Fetch a web page from {host}?"),
        address,
        host=host,
        target=host,
        network=True,
        facts=facts,
        sees=[_("Only this page is fetched. The host sees the requested address.")],
        call_id=call_id,
    )


def decision_question(
    context: ToolContext, question: str, lines: Sequence[str], call_id: str, *, again: bool
) -> PermissionRequest:
    """Return the question about recorded changes; `lines` list them. `question` is marked for
    translation; `again` if the changes are not what they were when it was asked first."""
    return _request(
        context,
        "decide_changes",
        question,
        "\n".join(lines),
        facts=[_writes(context.paths.shown(context.project or ""))],
        call_id=call_id,
        notice=_PROJECT_CHANGED if again else "",
    )


def every_time() -> Fact:
    # Translators: names a line of the card: "Asked   Every time"
    return Fact(pgettext("permission card", "Asked"), _("Every time"), is_wording=True)


def _request(
    context: ToolContext,
    tool: str,
    question: str,
    subject: str,
    *,
    heading: str = "",
    host: str = "",
    target: str = "",
    for_project: bool = False,
    for_session: bool = False,
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
        for_session=for_session,
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


def _plan_facts(context: ToolContext, plan: Plan, hosts: str, named: Sequence[str]) -> list[Fact]:
    writes = [m.folder for m in plan.mounts if isinstance(m, OverlaidFolder | WritableFolder)]
    playground = (f"{context.paths.real_home}/playground", PLAYGROUND)
    # The project first; the plan lists mounts in the order of mounting.
    writes.sort(key=lambda folder: folder in playground)
    names = [
        _("Playground") if folder in playground else context.paths.shown(folder)
        for folder in writes
    ]
    network = _hosts(hosts) if plan.by_host else _network(on=plan.network)
    folder = _folder(context, plan.working_dir)
    return [
        *((network, *folder) if plan.by_host else (*folder, network)),
        *_proxies(context, named),
        *_keys(plan),
        _writes(", ".join(names)),
        *_devices(plan),
    ]


def _unsandboxed_facts(context: ToolContext, folder: str, *, offline: bool = False) -> list[Fact]:
    network = _network(on=not offline, how=_("On: it cannot be turned off or limited here"))
    writes = replace(_writes(_("Everything you can write to")), is_wording=True)
    return [*_folder(context, folder), network, writes]


def _inner_facts(context: ToolContext, folder: str, project: str, *, network: bool) -> list[Fact]:
    # Translators: what a command writes to, and how. Please use only ASCII punctuation: beside a
    # path, full-width characters are shown by their number.
    text = _("{folder}, playground: right away, and not recorded")
    writes = _writes(text.format(folder=context.paths.shown(project)))
    return [*_folder(context, folder), _network(on=network, how=_("On, to all hosts")), writes]


def _writes(value: str) -> Fact:
    # Translators: names a line of the card: "Can write   ~/src/parser, Playground"
    return Fact(pgettext("permission card", "Can write"), value)


def _devices(plan: Plan) -> list[Fact]:
    """Return the devices of this computer that the command can use, if there are any."""
    found = [mount.path for mount in plan.mounts if isinstance(mount, Device)]
    # Translators: names a line of the card: "Devices   /dev/dri/renderD128"
    return [Fact(pgettext("permission card", "Devices"), ", ".join(found))] if found else []


def _folder(context: ToolContext, folder: str) -> list[Fact]:
    """Return the folder that the command starts in, unless it is the project."""
    if folder == context.folder():
        return []
    # Translators: names a line of the card, the folder a command starts in: "Folder   ~/parser"
    return [Fact(pgettext("permission card", "Folder"), context.paths.shown(folder))]


def _network(*, on: bool, how: str = "") -> Fact:
    # Translators: the network; it stands beside "Network"
    off = pgettext("permission card", "Off")
    # Translators: names a line of the card: "Network   Off"
    label = pgettext("permission card", "Network")
    return Fact(label, (how or _("On, for this command")) if on else off, is_wording=True)


def _hosts(hosts: str) -> Fact:
    fact = _network(on=True, how=_("You are asked about each host"))
    return replace(fact, value=hosts, is_wording=False, is_emphasized=True) if hosts else fact


def _proxies(context: ToolContext, hosts: Sequence[str]) -> list[Fact]:
    """Return the proxies of the user's environment that lead to these hosts."""
    rules = [rule for rule in parse_hosts(hosts) if not rule.is_local]
    found = {Proxy.find(rule.host, rule.port or 443, context.environ) for rule in rules} - {None}
    if not found:
        return []
    # Translators: names a line of the card: "Through   proxy.example.org:3128", which is a proxy
    label = pgettext("permission card", "Through")
    return [Fact(label, ", ".join(sorted(map(str, found))))]


def _keys(plan: Plan) -> list[Fact]:
    if not plan.ssh_agent:
        return []
    # Translators: names a line of the card: "SSH keys   Your ssh-agent signs for this command"
    label = pgettext("permission card", "SSH keys")
    return [Fact(label, _("Your ssh-agent signs for this command"), is_wording=True)]


def _inner_sandbox(*, network: bool) -> list[str]:
    """Return sentences that explain a Flatpak's inner sandbox."""
    on = _("Network access is on, to all hosts: it cannot be limited to some of them here.")
    return [
        on if network else _("Network access is off."),
        _(
            "The Flatpak portal starts a separate sandbox for this command. It contains this "
            "Flatpak's programs, the project and the playground, and no other files of yours."
        ),
        _("Changes are made right away. They are not recorded and cannot be undone here."),
    ]


def _without_sandbox(executor: Executor, meaning: str) -> list[str]:
    """Return sentences that explain what it means to have no sandbox, and why there is none.

    `meaning` is marked for translation.
    """
    found = executor.found
    return [_(meaning), *(found.translated(miss).cause for miss in found.missing)]
