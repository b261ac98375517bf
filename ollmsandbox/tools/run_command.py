# SPDX-License-Identifier: GPL-3.0-or-later
"""run_command: a shell command in the sandbox, or where there is none, as the person allows it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from gettext import gettext as _
from gettext import pgettext

from .. import N_
from ..errors import DeniedError, OllmSandboxError, Sentence, in_lines
from ..permission.request import Fact, PermissionRequest, Verdict
from ..project.apply.recorder import Recorder, needs_care
from ..sandbox.bubble import Bubble
from ..sandbox.flatpak.portal import PortalError
from ..sandbox.flatpak.runner import InnerRunner, NotHandedOnError
from ..sandbox.plain.runner import PlainRunner
from ..sandbox.plan.plan import Plan
from ..sandbox.process import Result, Sinks
from ..sandbox.rootfs.paths import renamed
from . import questions
from .base import Outcome, RequestBase, Stream, Tool, ToolError, Watcher
from .context import Workbench, loop_has_glib
from .linked_roots import agree, new_root
from .model_text import changes_text, output_text, plain, together
from .parameters import Parameters, parameter
from .programs import programs_of

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
_SANDBOXED = """\
Each command runs in a sandbox of its own with /bin/sh. /tmp is empty at the start and forgotten \
at the end, nothing goes on running after the command, and there is no terminal to answer \
questions. Secrets and other programs of the user are not there. What changed in the project is \
listed after the output."""
_ALPINE = """\
Commands run in {system}, not in the system of this machine. There the project is /workspace, \
which is $HOME too, the playground is /playground, and nothing else can be written. What pip \
installs is kept in /workspace/.packages."""
_PLAIN = """\
There is no sandbox on this machine: the user is asked before each command, and it runs with all \
rights of the user. Keep commands few and careful."""

# Bytes that come at once, and seconds of pause after them.
_MUCH, _PAUSE = 1 << 16, 0.002

_MEANING = N_(
    "This is not sandboxed: it can do all that you can, and what it changes is not recorded."
)
_OFFLINE_MEANING = N_(
    "This is not sandboxed: it can do all that this Flatpak may, but for the network, and what it "
    "changes is not recorded."
)


@dataclass(frozen=True)
class Given:
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


class RunCommand(Tool):
    name = NAME

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._parameters = Parameters(NAME, Given)

    @property
    def description(self) -> str:
        bench = self._bench
        try:
            rules = _SANDBOXED if bench.can_wrap() else _PLAIN
            rootfs = bench.rootfs() if bench.can_wrap() else None
            if rootfs is not None:
                rules = together(rules, _ALPINE.format(system=rootfs.title))
            found = programs_of(bench)
        except OllmSandboxError:
            # It is told to who runs a command; the description has less to say.
            return _DESCRIPTION
        offers = f"Programs found here: {', '.join(found)}." if found else ""
        return f"{_DESCRIPTION}\n\n{together(rules, offers)}"

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters.schema()

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RunRequest:
        given = self._parameters.read(arguments)
        if not given.command.strip():
            raise ToolError(N_("The command is empty."), N_("Name a command to run."))
        return RunRequest(self._bench, given, self._bench.folder(), call_id)


class RunRequest(RequestBase):
    def __init__(self, bench: Workbench, given: Given, project: str, call_id: str) -> None:
        self._bench = bench
        self._given = given
        self._project = project
        self._call_id = call_id
        self._verdict: Verdict | None = None
        self.one_time_only = given.network
        if given.network:
            self.permission_question = f"Run command with network access: {given.command}?"
            self.permission_target_path = f"network:{uuid.uuid4().hex}"
        elif bench.ask_every_command:
            self.permission_question = f"Run command: {given.command}?"

    def describe(self) -> str:
        return plain(self._given.command)

    @property
    def is_independent(self) -> bool:
        # Each has a layer of its own over the same project, and no change is written over another.
        return self._bench.can_wrap()

    async def execute(self, watcher: Watcher) -> Outcome:
        try:
            if await asyncio.to_thread(self._bench.can_wrap):
                return await self._in_sandbox(watcher)
            return await self._without(watcher)
        except (OllmSandboxError, OSError) as error:
            return Outcome(str(error), ok=False, verdict=self._verdict)

    async def _in_sandbox(self, watcher: Watcher) -> Outcome:
        bench, given = self._bench, self._given
        rootfs = bench.rootfs()
        root = new_root(bench, self._project, given.working_dir)
        if root and not await self._allowed(watcher, self._root_question(root)):
            return self._denied(f"Writing to {root}")
        if root:
            await asyncio.to_thread(agree, bench, self._project, root)
        unfinished: list[str] = []
        if needs_care(bench.paths):
            # Something kept an earlier one from being finished, a full disk, perhaps.
            from ..project.recovery.recover import recover

            reports = await asyncio.to_thread(recover, bench.paths)
            unfinished = [error for report in reports for error in report.errors]
        recorder = Recorder(
            self._project,
            bench.paths,
            mode=bench.mode,
            command=given.command,
            session_id=bench.session_id,
            call_id=self._call_id,
        )
        bubble = Bubble(
            self._project,
            given.network,
            working_dir=given.working_dir or None,
            profile=bench.profile(),
            environ=bench.environ,
            keeper=recorder,
            live=watcher.changed if loop_has_glib() else None,
            rootfs=rootfs,
        )
        plan = self.plan = await asyncio.to_thread(lambda: bubble.plan)
        if self.permission_question and not given.network:
            # Where it runs is part of what is remembered.
            self.permission_target_path = plan.working_dir
        if self.permission_question and not await self._allowed(watcher, self._question(plan)):
            return self._denied("The command with network" if given.network else "The command")
        if list(bubble.overlay.roots) != recorder.roots():
            # What was approved is what runs, and nothing else does.
            text = N_("ERROR: What waits for review changed while the question waited. Try again.")
            return Outcome(Sentence(text), ok=False, verdict=self._verdict)
        sinks = _sinks(watcher, lambda pid: watcher.started(pid, plan))
        # Who watches knows the project by its own path; the model by the one that it has in there.
        seen = nullcontext(sinks) if rootfs is None else renamed(sinks, self._project)
        try:
            async with seen as shown:
                result = await bubble.exec(given.command, sinks=shown)
        except asyncio.CancelledError:
            self.partial = self._told(None, recorder, "The command was stopped.")
            raise
        except OllmSandboxError as error:
            return self._told(None, recorder, str(error))
        notices = [*unfinished, *plan.notices()]

        def ended() -> Outcome:
            try:
                recorder.note_exit(result.exit_code)
            except OllmSandboxError as error:
                # What it printed and changed is worth more than how its end is remembered.
                notices.append(str(error))
            return self._told(result, recorder, *notices)

        try:
            return await asyncio.to_thread(ended)
        except asyncio.CancelledError:
            # What it changed is in the project already.
            status = f"The command had just ended, with status {result.exit_code}."
            self.partial = self._told(None, recorder, status)
            raise

    async def _without(self, watcher: Watcher) -> Outcome:
        bench = self._bench
        self.one_time_only = True
        if not bench.environ.get("FLATPAK_ID"):
            return await self._plainly(watcher)
        try:
            return await self._in_flatpak(watcher)
        except NotHandedOnError as error:
            why = error.message.translated(_)
        except PortalError as error:
            return await self._plainly(watcher, error.message.translated(_))
        if not self._given.network:
            # What cannot be had either is asked about as without a portal.
            with suppress(PortalError):
                return await self._plainly(watcher, why, offline=True)
        return await self._plainly(watcher, why)

    async def _in_flatpak(self, watcher: Watcher) -> Outcome:
        bench, given, network = self._bench, self._given, self._given.network
        self.permission_question = f"{InnerRunner.question}: {given.command}?"
        self.permission_target_path = f"inner:{uuid.uuid4().hex}"

        async def ask(_question: str) -> bool:
            folder = given.working_dir or self._project
            request = questions.make_request(
                bench,
                NAME,
                N_("Run command in the Flatpak's inner sandbox, with network access?")
                if network
                else N_("Run command in the Flatpak's inner sandbox?"),
                given.command,
                network=network,
                facts=questions.inner_facts(bench, folder, self._project, network=network),
                sees=questions.inner_sandbox(network=network),
                call_id=self._call_id,
            )
            return await self._allowed(watcher, request)

        runner = InnerRunner(
            self._project,
            ask=ask,
            network=network,
            working_dir=given.working_dir or None,
            profile=bench.profile(),
            environ=bench.environ,
        )
        return await self._run_with(runner, watcher)

    async def _plainly(
        self, watcher: Watcher, no_portal: str = "", *, offline: bool = False
    ) -> Outcome:
        bench, given = self._bench, self._given
        self.permission_question = f"Run command without a sandbox: {given.command}?"
        self.permission_target_path = f"plain:{uuid.uuid4().hex}"
        found = await asyncio.to_thread(bench.capabilities)
        sees = questions.without_sandbox(found, _OFFLINE_MEANING if offline else _MEANING)

        async def ask(_question: str) -> bool:
            folder = given.working_dir or self._project
            request = questions.make_request(
                bench,
                NAME,
                N_("Run command without a sandbox, but with the network cut off?")
                if offline
                else N_("Run command without a sandbox?"),
                given.command,
                sandboxed=False,
                network=not offline,
                facts=questions.plain_facts(bench, folder, offline=offline),
                sees=[*sees, no_portal] if no_portal else sees,
                call_id=self._call_id,
            )
            return await self._allowed(watcher, request)

        make = partial(InnerRunner, tight=False) if offline else PlainRunner
        runner = make(
            self._project,
            ask=ask,
            working_dir=given.working_dir or None,
            profile=bench.profile(),
            environ=bench.environ,
        )
        return await self._run_with(runner, watcher)

    async def _run_with(self, runner: PlainRunner, watcher: Watcher) -> Outcome:
        sinks = _sinks(watcher, lambda pid: watcher.started(pid, None))
        try:
            result = await runner.exec(self._given.command, sinks=sinks)
        except DeniedError:
            return self._denied("The command")
        return Outcome(output_text(result), _went_well(result), result, verdict=self._verdict)

    async def _allowed(self, watcher: Watcher, request: PermissionRequest) -> bool:
        self._verdict = await questions.ask(self._bench, watcher, request)
        return self._verdict.allowed

    def _question(self, plan: Plan) -> PermissionRequest:
        network = plan.network
        return questions.make_request(
            self._bench,
            NAME,
            N_("Run command with network access?") if network else N_("Run command?"),
            self._given.command,
            target="" if network else self.permission_target_path,
            network=network,
            facts=questions.facts_of(self._bench, plan),
            sees=plan.describe(),
            call_id=self._call_id,
        )

    def _root_question(self, root: str) -> PermissionRequest:
        return questions.make_request(
            self._bench,
            "agree_root",
            N_("Let commands of this project change a folder outside it?"),
            root,
            facts=[
                # Translators: names a line of the card: "linked from   ~/src/parser"
                Fact(pgettext("permission card", "linked from"), self._bench.shown(self._project)),
                Fact(
                    # Translators: names a line of the card: "lasts   for this project, until ..."
                    pgettext("permission card", "lasts"),
                    _("for this project, until you take it back"),
                    is_said=True,
                ),
                # Translators: names a line of the card: "first command   make test"
                Fact(pgettext("permission card", "first command"), plain(self._given.command)),
            ],
            call_id=self._call_id,
        )

    def _denied(self, what: str) -> Outcome:
        assert self._verdict is not None
        return Outcome(questions.denial(self._verdict, what), ok=False, verdict=self._verdict)

    def _told(self, result: Result | None, recorder: Recorder, *notices: str) -> Outcome:
        text = in_lines(
            output_text(result) if result else "",
            changes_text(recorder.report, self._project),
            *notices,
        )
        ok = result is not None and _went_well(result)
        return Outcome(text, ok, result, recorder.report, self._verdict)


def _went_well(result: Result) -> bool:
    return result.exit_code == 0 and result.stop is None


def _sinks(watcher: Watcher, started: Callable[[int], None]) -> Sinks:
    async def stdout(data: bytes) -> None:
        watcher.output(Stream.STDOUT, data)
        await _let_others(data)

    async def stderr(data: bytes) -> None:
        watcher.output(Stream.STDERR, data)
        await _let_others(data)

    return Sinks(stdout, stderr, started)


async def _let_others(data: bytes) -> None:
    """A window has to show what was printed. In a flood a mere turn is not enough: a main loop
    draws when nothing else is ready, and the next piece always is."""
    await asyncio.sleep(_PAUSE if len(data) >= _MUCH else 0)
