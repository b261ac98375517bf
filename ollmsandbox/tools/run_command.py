# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool run_command: a shell command in the sandbox, or as the user allows it without one.

There are three flows, one class each: `_SandboxedFlow`, `_FlatpakFlow` (in a Flatpak's inner
sandbox) and `_PlainFlow` (no sandbox).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from .. import N_
from ..engine.run import Confinement, PreparedRun, finish_interrupted_runs
from ..errors import DeniedError, OllmSandboxError, in_lines
from ..i18n import _
from ..permission.request import PermissionRequest, Source, Verdict
from ..sandbox.flatpak.portal import PortalError
from ..sandbox.flatpak.runner import ProjectNotSharedError
from ..sandbox.launch import text_shell
from ..sandbox.plain.runner import Ask
from ..sandbox.plan.plan import Plan
from ..sandbox.process import Result, Sinks
from ..sandbox.profile.profile import Limits
from ..sandbox.refusals import NETWORK_OFF, find_refusals, links_in_the_way, misses_network
from ..sandbox.rootfs.paths import rewrite_paths, skills_folder
from ..text.ansi import escape_line
from . import questions
from .base import Outcome, RequestBase, Stream, Tool, ToolError, Watcher
from .context import ToolContext
from .model_text import changes_text, output_text, together
from .parameters import Parameters, parameter
from .programs import programs_of
from .roots import approve_root, closed_folder, closed_working_dir, root_question
from .shown_state import ShownState, shown_state

NAME = "run_command"

_DESCRIPTION = """\
Run a terminal command in the project's root directory (or specified working directory) and return \
the output.

File System Permissions:
- The Run command tool normally works in the project directory and has read-write access to:
  - The project directory
  - $HOME/playground (playground directory for experiments, where $HOME is the user's home \
directory)
- Everything else is read-only

Network Access:
- By default, this tool does not have access to the network.
- If you require access to the network, you must set the `network` parameter to `true`.
- For fetching websites or web content, you should use the `web_fetch` tool instead of this tool.

If the command fails, you should handle the error gracefully and provide a helpful error message \
to the user."""
_SHELL = "Commands run in {shell}."
_TIME = "A command is stopped after {time:,} seconds, unless you set `timeout`{most}."
_SANDBOXED = """\
Each command runs in a sandbox of its own. /tmp is empty at the start and forgotten at the end, \
nothing goes on running after the command, and nobody can answer its questions: to try a server, \
start it, use it and stop it in one command. Rename a folder with `mv`, then `git add` it: \
`git mv` of a folder, and rename() in programs, fail with "Invalid cross-device link". \
Secrets of the user are hidden: keys, tokens, browser and mail data, shell histories. A file that \
seems to be missing there is hidden on purpose: do not look for a way around that. The user is \
asked about network access each time, and may deny it. Caches of programs, such as ~/.npm, can be \
written, and are kept for this project. What changed in the project is listed after the output."""
_ALPINE = """\
Commands run in {system}, not in the system of this machine. There the project is /workspace, \
which is $HOME too, the playground is /playground, caches are in /run/caches, and nothing else \
can be written. What pip installs is kept in /workspace/.packages."""
_SKILLS = """\
/skills has the user's instructions for certain tasks: see whether one of them fits before you \
begin."""
_PLAIN = """\
There is no sandbox on this machine: the user is asked before each command, and it runs with all \
rights of the user. What commands change is not recorded and cannot be undone. Keep them few and \
careful."""

# After this many bytes of output at once, pause for this many seconds.
_MUCH, _PAUSE = 1 << 16, 0.002

_MEANING = N_(
    "This is not sandboxed: the command can do everything you can, and its changes are not "
    "recorded."
)
_OFFLINE_MEANING = N_(
    "This is not sandboxed: the command can do everything this Flatpak can, except use the "
    "network, and its changes are not recorded."
)

WITH_NETWORK = N_("Run command with network access: {command}?")
PROJECT_CHANGED = N_("The project, the playground or a cache changed while this question was open.")


@dataclass(frozen=True)
class CommandParameters:
    command: str = parameter("The terminal command to run.", longest=120_000)
    working_dir: str = parameter(
        "The working directory where the command will be executed. Should be an absolute path. "
        'Defaults to the project directory. Special case: "playground" is normalized to '
        "`$HOME/playground` (user's home directory).",
        default="",
        longest=4096,
    )
    network: bool = parameter(
        "Whether to allow network access. Defaults to false. For fetching websites or web "
        "content, use the `web_fetch` tool instead.",
        default=False,
    )
    timeout: int | None = parameter(
        "Stop the command after this many seconds. Set it for a command that takes long.",
        may_be_absent=True,
        smallest=1,
    )


class RunCommand(Tool):
    name = NAME

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._parameters = Parameters(NAME, CommandParameters)

    @property
    def description(self) -> str:
        context = self._context
        try:
            rules = _SANDBOXED if context.can_wrap() else _PLAIN
            rootfs = context.rootfs() if context.can_wrap() else None
            if rootfs is not None:
                skills = _SKILLS if skills_folder(context.profile(), context.paths) else ""
                rules = together(rules, _ALPINE.format(system=rootfs.title), skills)
            shell = text_shell(rootfs.folder if rootfs is not None else "")
            rules = together(rules, _SHELL.format(shell=shell), _time(context.profile().limits))
            found = programs_of(context)
        except OllmSandboxError:
            # Running a command reports the error; the description just says less.
            return _DESCRIPTION
        offers = f"Programs found here: {', '.join(found)}." if found else ""
        return f"{_DESCRIPTION}\n\n{together(rules, offers)}"

    @property
    def is_sandboxed(self) -> bool:
        return self._context.can_wrap()

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters.schema()

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RunRequest:
        given = self._parameters.read(arguments)
        if not given.command.strip():
            raise ToolError(N_("Command cannot be empty"))
        return RunRequest(self._context, given, self._context.folder(), call_id)


class RunRequest(RequestBase):
    """One call of run_command: chooses the flow, and asks for permission on its behalf."""

    def __init__(
        self, context: ToolContext, given: CommandParameters, project: str, call_id: str
    ) -> None:
        self.context = context
        self.given = given
        self.project = project
        self.call_id = call_id
        self.verdict: Verdict | None = None
        # Even in the sandbox.
        self.asks = given.network or context.ask_every_command

    def describe(self) -> str:
        return escape_line(self.given.command)

    async def execute(self, watcher: Watcher) -> Outcome:
        try:
            if await asyncio.to_thread(self.context.can_wrap):
                return await _SandboxedFlow(self, watcher).execute()
            if self.context.environ.get("FLATPAK_ID"):
                return await _FlatpakFlow(self, watcher).execute()
            return await _PlainFlow(self, watcher).execute()
        except (OllmSandboxError, OSError) as error:
            return Outcome.failed(error, verdict=self.verdict)

    def timeout(self) -> float | None:
        """Return the seconds that the command may take; None for the profile's default."""
        wanted = self.given.timeout
        return None if wanted is None else self._limits.time_for(wanted)

    @property
    def _limits(self) -> Limits:
        return self.context.profile(self.given.command).limits

    def timeout_notice(self, result: Result) -> str:
        """Tell the model that the command did not get the time it asked for, if it needed it."""
        wanted, given = self.given.timeout, self.timeout()
        if not result.timed_out or wanted is None or given is None or given >= wanted:
            return ""
        return f"`timeout` was lowered to {round(given):,} seconds, the most that is allowed."

    async def ask(self, watcher: Watcher, request: PermissionRequest) -> bool:
        self.verdict = await questions.ask(self.context, watcher, self, request)
        return self.verdict.allowed

    async def ask_until_unchanged(
        self, watcher: Watcher, question: Callable[[str], PermissionRequest]
    ) -> bool:
        """Ask about the command; again as long as the project changes before the answer.
        `question` takes the reason why it is asked again."""
        notice = ""
        while True:
            shown = await self.shown_state()
            if not await self.ask(watcher, question(notice)):
                return False
            if not await self.is_changed_since(shown):
                return True
            notice = PROJECT_CHANGED

    async def shown_state(self) -> ShownState:
        given = self.given
        return await asyncio.to_thread(
            shown_state, self.context, self.project, given.command, given.working_dir
        )

    async def is_changed_since(self, shown: ShownState) -> bool:
        """Return whether the user allowed something else than what is there now. A rule is not
        for what was there."""
        is_users = self.verdict is not None and self.verdict.source is Source.PERSON
        return is_users and shown != await self.shown_state()

    def denied(self, what: str) -> Outcome:
        assert self.verdict is not None
        return Outcome.failed(questions.denial(self.verdict, what), verdict=self.verdict)


class _SandboxedFlow:
    """Runs the command in the sandbox. Asks only about network access and linked folders."""

    def __init__(self, request: RunRequest, watcher: Watcher) -> None:
        self._request = request
        self._watcher = watcher
        self._context = request.context
        self._given = request.given
        self._project = request.project

    async def execute(self) -> Outcome:
        request, given = self._request, self._given
        await self._context.prepare_rootfs(self._project, self._watcher)
        closed = closed_working_dir(self._context, self._project, given.working_dir)
        if closed is not None:
            question = root_question(self._context, closed, given.command, request.call_id)
            if not await request.ask(self._watcher, question):
                return request.denied(f"Writing to {closed.path}")
            await asyncio.to_thread(approve_root, self._context, self._project, closed.path)
        # A full disk, for example, may have kept an earlier run from being finished.
        care = await asyncio.to_thread(finish_interrupted_runs, self._context.paths, clean_up=False)
        notice = ""
        while True:
            shown = await request.shown_state() if request.asks else None
            run, plan = await self._prepare()
            if request.asks and not await request.ask(self._watcher, self._question(plan, notice)):
                what = "The command with network" if given.network else "The command"
                return request.denied(what)
            # Only what the user has approved may run.
            is_changed = shown is not None and await request.is_changed_since(shown)
            if not is_changed and not run.is_outdated():
                break
            notice = PROJECT_CHANGED
        return await self._run(run, plan, care.errors if care is not None else ())

    async def _prepare(self) -> tuple[PreparedRun, Plan]:
        given = self._given
        run = self._context.prepare_run(
            self._project,
            command=given.command,
            call_id=self._request.call_id,
            network=given.network,
            working_dir=given.working_dir or None,
            timeout=self._request.timeout(),
            live=self._watcher.changed,
        )
        plan = await asyncio.to_thread(lambda: run.plan)
        self._request.plan = plan
        return run, plan

    async def _run(self, run: PreparedRun, plan: Plan, errors: tuple[str, ...]) -> Outcome:
        sinks = _sinks(self._watcher, lambda pid: self._watcher.started(pid, plan))
        # In Alpine the project has another path. The user sees the host's, the model the other.
        shown = nullcontext(sinks) if run.rootfs is None else rewrite_paths(sinks, self._project)
        try:
            async with shown as shown_sinks:
                result = await run.execute(self._given.command, sinks=shown_sinks)
        except asyncio.CancelledError:
            self._request.partial = self._outcome(None, run, "The command was stopped.")
            raise
        except OllmSandboxError as error:
            return self._outcome(None, run, str(error))
        notices = [*errors, *plan.notices(), self._request.timeout_notice(result)]

        def record() -> None:
            try:
                run.record_exit(result.exit_code)
            except OllmSandboxError as error:
                # The output and the changes matter more than the recorded exit status.
                notices.append(str(error))

        try:
            await asyncio.to_thread(record)
            asked, declined = await self._open_folders(plan, result)
            return await asyncio.to_thread(self._outcome, asked, run, *notices, *declined)
        except asyncio.CancelledError:
            # The command's changes are in the project already.
            status = f"The command had just ended, with status {result.exit_code}."
            self._request.partial = self._outcome(None, run, status)
            raise

    async def _open_folders(self, plan: Plan, result: Result) -> tuple[Result, list[str]]:
        """Ask about the folders outside that the command tried to write to, through links of the
        project; return the result with the answers, and what to tell the model besides."""
        context, declined = self._context, self._context.declined_folders
        command = self._given.command
        opened: set[str] = set()
        notices = []
        for link, folder in links_in_the_way(plan, [command], result):
            closed = await asyncio.to_thread(closed_folder, context, self._project, link)
            if closed is None or folder in declined:
                continue
            question = root_question(context, closed, command, self._request.call_id)
            # The verdict about the command itself is another one.
            verdict = await questions.ask(context, self._watcher, self._request, question)
            if verdict.allowed:
                await asyncio.to_thread(approve_root, context, self._project, folder)
                opened.add(folder)
            elif verdict.source is Source.PERSON:
                declined.add(folder)
                notices.append(f"The user does not let commands change {folder}.")
        if opened:
            refusals = find_refusals(plan, [command], result, opened)
            result = result._replace(refusals=refusals)
        return result, notices

    def _outcome(self, result: Result | None, run: PreparedRun, *notices: str) -> Outcome:
        text = in_lines(
            output_text(result) if result else "",
            changes_text(run.report, self._project),
            *notices,
        )
        ok = result is not None and _succeeded(result)
        return Outcome(text, ok, result, run.report, self._request.verdict)

    def _question(self, plan: Plan, notice: str) -> PermissionRequest:
        network = plan.network
        return questions.make_request(
            self._context,
            NAME,
            WITH_NETWORK if network else N_("Run command?"),
            self._given.command,
            heading=N_("Run command with network access?") if network else "",
            # A rule is for one command in one folder.
            target="" if network else plan.working_dir,
            network=network,
            facts=questions.facts_of(self._context, plan),
            sees=plan.describe(),
            call_id=self._request.call_id,
            notice=notice,
        )


class _PlainFlow:
    """Runs the command without a sandbox, after asking. Nothing is recorded.

    `offline` cuts off the network with the Flatpak portal's help; `no_portal` says why there is
    no better sandbox.
    """

    def __init__(
        self, request: RunRequest, watcher: Watcher, no_portal: str = "", *, offline: bool = False
    ) -> None:
        self._request = request
        self._watcher = watcher
        self._no_portal = no_portal
        self._offline = offline

    async def execute(self) -> Outcome:
        request, offline = self._request, self._offline
        context, given = request.context, request.given
        found = await asyncio.to_thread(context.capabilities)
        sees = questions.without_sandbox(found, _OFFLINE_MEANING if offline else _MEANING)

        def question(notice: str) -> PermissionRequest:
            return questions.make_request(
                context,
                NAME,
                N_("Run command without a sandbox, and without network access?")
                if offline
                else N_("Run command without a sandbox?"),
                given.command,
                sandboxed=False,
                network=not offline,
                facts=questions.plain_facts(
                    context, given.working_dir or request.project, offline=offline
                ),
                sees=[*sees, self._no_portal] if self._no_portal else sees,
                call_id=request.call_id,
                notice=notice,
            )

        async def ask() -> bool:
            return await request.ask_until_unchanged(self._watcher, question)

        confinement = Confinement.OFFLINE if offline else Confinement.NONE
        return await _run_unrecorded(confinement, request, self._watcher, ask)


class _FlatpakFlow:
    """Runs the command in a Flatpak's inner sandbox, after asking. Nothing is recorded.

    Where the portal does not offer that, falls back to the plain flow: offline if possible.
    """

    def __init__(self, request: RunRequest, watcher: Watcher) -> None:
        self._request = request
        self._watcher = watcher

    async def execute(self) -> Outcome:
        request, watcher = self._request, self._watcher
        try:
            return await self._in_inner_sandbox()
        except ProjectNotSharedError as error:
            why = error.message.translated(_)
        except PortalError as error:
            return await _PlainFlow(request, watcher, error.message.translated(_)).execute()
        if not request.given.network:
            with suppress(PortalError):
                return await _PlainFlow(request, watcher, why, offline=True).execute()
        return await _PlainFlow(request, watcher, why).execute()

    async def _in_inner_sandbox(self) -> Outcome:
        request = self._request
        context, given, network = request.context, request.given, request.given.network

        def question(notice: str) -> PermissionRequest:
            folder = given.working_dir or request.project
            return questions.make_request(
                context,
                NAME,
                WITH_NETWORK if network else N_("Run command in the Flatpak's inner sandbox?"),
                given.command,
                heading=N_("Run command in the Flatpak's inner sandbox, with network access?")
                if network
                else "",
                network=network,
                facts=questions.inner_facts(context, folder, request.project, network=network),
                sees=questions.inner_sandbox(network=network),
                call_id=request.call_id,
                notice=notice,
            )

        async def ask() -> bool:
            return await request.ask_until_unchanged(self._watcher, question)

        confinement = Confinement.INNER_WITH_NETWORK if network else Confinement.INNER
        return await _run_unrecorded(confinement, request, self._watcher, ask)


async def _run_unrecorded(
    confinement: Confinement, request: RunRequest, watcher: Watcher, ask: Ask
) -> Outcome:
    given = request.given
    run = request.context.prepare_unrecorded_run(
        request.project,
        confinement,
        ask,
        working_dir=given.working_dir or None,
        timeout=request.timeout(),
    )
    sinks = _sinks(watcher, lambda pid: watcher.started(pid, None))
    try:
        result = await run.exec(given.command, sinks=sinks)
    except DeniedError:
        return request.denied("The command")
    is_offline = confinement in (Confinement.OFFLINE, Confinement.INNER)
    if is_offline and misses_network(result):
        result = result._replace(refusals=(NETWORK_OFF,))
    text = together(output_text(result), request.timeout_notice(result))
    return Outcome(text, _succeeded(result), result, verdict=request.verdict)


def _time(limits: Limits) -> str:
    """Return the sentence about the time limit, or "" if there is none."""
    if limits.time is None:
        return ""
    most = "" if limits.max_time is None else f" to at most {round(limits.max_time):,}"
    return _TIME.format(time=round(limits.time), most=most)


def _succeeded(result: Result) -> bool:
    return result.exit_code == 0 and result.stop is None


def _sinks(watcher: Watcher, started: Callable[[int], None]) -> Sinks:
    async def stdout(data: bytes) -> None:
        watcher.output(Stream.STDOUT, data)
        await _yield_to_main_loop(data)

    async def stderr(data: bytes) -> None:
        watcher.output(Stream.STDERR, data)
        await _yield_to_main_loop(data)

    return Sinks(stdout, stderr, started)


async def _yield_to_main_loop(data: bytes) -> None:
    """Give a window time to draw. A main loop draws when nothing else is ready; in a flood of
    output something always is, so yielding once is not enough."""
    await asyncio.sleep(_PAUSE if len(data) >= _MUCH else 0)
