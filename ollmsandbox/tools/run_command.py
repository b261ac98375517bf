# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool run_command: a shell command in the sandbox, or as the user allows it without one."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from .. import N_
from ..engine.executor import Executor
from ..engine.run import PreparedRun, finish_interrupted_runs
from ..errors import OllmSandboxError, in_lines
from ..loop import on_this_loop
from ..paths import is_inside
from ..permission.request import Source
from ..sandbox.launch import text_shell
from ..sandbox.network.hosts import hosts_text
from ..sandbox.network.lists import HostListError, NamedHosts, load_host_lists
from ..sandbox.output import Capture
from ..sandbox.plan.folders import EMPTY_FOLDERS
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.plan.plan import Plan
from ..sandbox.process import Result, Sinks
from ..sandbox.profile.profile import Limits
from ..sandbox.refusals import find_refusals, links_in_the_way
from ..sandbox.rootfs.packages import KNOWN_PROGRAMS, programs_in
from ..sandbox.rootfs.paths import rewrite_paths, skills_folder
from ..sandbox.spec import RunSpec
from ..sandbox.terminal import CommandTerminal
from ..sandbox.unsandboxed.runner import UnsandboxedRunner
from ..text.ansi import escape_line, without_screens
from . import questions
from .base import FILLED_SCREEN, Outcome, RequestBase, Stream, ToolError, Watcher
from .context import ToolContext
from .model_text import changes_text, output_text, together
from .parameters import DeclaredTool, parameter
from .roots import approve_root, closed_folder, closed_working_dir
from .shown_state import ShownState, shown_state

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
_TIME = "A command is stopped after {time:,} seconds, unless you set `timeout`{most}."
_SANDBOXED = """\
Each command runs in a sandbox of its own. /tmp is empty at the start and forgotten at the end, \
nothing goes on running after the command, and nobody can answer its questions: to try a server, \
start it, use it and stop it in one command. Rename a folder with `mv`, then `git add` it: \
`git mv` of a folder, and rename() in programs, fail with "Invalid cross-device link". \
Secrets of the user are hidden: keys, tokens, browser and mail data, shell histories. A file that \
seems to be missing there is hidden on purpose: do not look for a way around that. The user is \
asked about network access each time, and may deny it; name the hosts that the command needs. \
Caches of programs, such as ~/.npm, can be written, and are kept for this project. What changed in \
the project is listed after the output."""
_ALPINE = """\
Commands run in {system}, not in the system of this machine. There the project is /workspace, \
which is $HOME too, the playground is /playground, caches are in /run/caches, and nothing else \
can be written. What pip installs is kept in /workspace/.packages."""
_SKILLS = """\
/skills has the user's instructions for certain tasks: see whether one of them fits before you \
begin."""
_UNSANDBOXED = """\
There is no sandbox on this machine: the user is asked before each command, and it runs with all \
rights of the user. What commands change is not recorded and cannot be undone. Keep them few and \
careful."""

# What programs know the terminal of a command as.
_TERMINAL = "xterm-256color"
# After this many bytes of output at once, pause for this many seconds.
_MUCH, _PAUSE = 1 << 16, 0.002


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
    hosts: tuple[str, ...] = parameter(
        "The hosts that the command needs, such as example.org, *.example.org or example.org:8443; "
        "@NAME stands for a list of the user's. The user is asked about any other host when the "
        "command tries to reach it.",
        default=(),
        longest=253,
    )
    ssh_agent: bool = parameter(
        "Whether the command may log in with the user's ssh-agent, as `git push` over ssh does. "
        "Name the server in `hosts`. Defaults to false.",
        default=False,
    )
    timeout: int | None = parameter(
        "Stop the command after this many seconds. Set it for a command that takes long.",
        may_be_absent=True,
        smallest=1,
    )


class RunCommand(DeclaredTool[CommandParameters]):
    name = "run_command"
    declared = CommandParameters

    @property
    def description(self) -> str:
        context = self._context
        try:
            is_sandboxed = self.is_sandboxed
            rules = _SANDBOXED if is_sandboxed else _UNSANDBOXED
            rootfs = context.rootfs() if is_sandboxed else None
            if rootfs is not None:
                skills = _SKILLS if skills_folder(context.profile(), context.paths) else ""
                rules = together(rules, _ALPINE.format(system=rootfs.title), skills)
            shell = text_shell(rootfs.folder if rootfs is not None else "")
            limit = _time(context.profile().limits)
            rules = together(rules, f"Commands run in {shell}.", limit)
            found = _programs_of(context)
            named = _lists_text(context) if is_sandboxed else ""
        except OllmSandboxError:
            # Running a command reports the error; the description just says less.
            return _DESCRIPTION
        offers = f"Programs found here: {', '.join(found)}." if found else ""
        return f"{_DESCRIPTION}\n\n{together(rules, offers, named)}"

    @property
    def is_sandboxed(self) -> bool:
        return self._context.executor().is_recorded

    def request(self, given: CommandParameters, call_id: str) -> RunRequest:
        if not given.command.strip():
            raise ToolError(N_("Command cannot be empty"))
        hosts = NamedHosts(given.hosts, self._context.paths.config)
        return RunRequest(self._context, given, hosts, self._context.folder(), call_id)


@dataclass
class RunRequest(RequestBase):
    """One call of run_command. In the sandbox, it asks only about network access and folders
    outside the project."""

    context: ToolContext
    given: CommandParameters
    _hosts: NamedHosts
    project: str
    call_id: str
    # One question at a time.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._has_network = self.given.network or bool(self.given.hosts)
        # Even in the sandbox.
        self._asks = self._has_network or self.context.ask_every_command

    def describe(self) -> str:
        return escape_line(self.given.command)

    async def perform(self, watcher: Watcher) -> Outcome:
        executor = await self.context.ready_executor(self.project, watcher)
        errors: tuple[str, ...] = ()
        if executor.is_recorded:
            await self._ask_about_working_dir(watcher)
            # A full disk, for example, may have kept an earlier run from being finished.
            paths = self.context.paths
            care = await asyncio.to_thread(finish_interrupted_runs, paths, clean_up=False)
            errors = care.errors if care is not None else ()
        return await self._ask_and_run(executor, watcher, errors)

    async def _ask_about_working_dir(self, watcher: Watcher) -> None:
        """Ask about a folder outside the project, if the command starts there."""
        context, given = self.context, self.given
        closed = closed_working_dir(context, self.project, given.working_dir)
        if closed is not None:
            await questions.ask_about_folder(
                context, watcher, self, closed, given.command, self.call_id
            )

    async def _ask_and_run(
        self, executor: Executor, watcher: Watcher, errors: Sequence[str]
    ) -> Outcome:
        """Ask about the command; again as long as the project changes before the answer. Then run
        it."""
        context, is_again = self.context, False
        asks = self._asks or not executor.is_recorded
        has_network = executor.is_recorded and self._has_network
        what = "The command with network" if has_network else "The command"
        while True:
            shown = await self._shown_state() if asks else None
            spec = self.spec(by_host=executor.is_recorded)
            ask_user = partial(self._ask_about_host, watcher)
            async with executor.prepare(spec, watcher.changed, ask_user) as run:
                if shown is not None:
                    question = questions.command_question(
                        context, executor, run, spec, str(self._hosts), again=is_again
                    )
                    await questions.ask_or_end(context, watcher, self, question, what)
                # Only what the user has approved may run.
                if shown is None or not await self._is_changed_since(shown):
                    if isinstance(run, UnsandboxedRunner):
                        run.approve()
                        return await self._run_unsandboxed(run, watcher)
                    if not run.is_outdated():
                        return await self._run(run, watcher, errors)
            is_again = True

    async def _ask_about_host(self, watcher: Watcher, host: str, port: int, address: str) -> bool:
        async with self._turn:
            question = questions.host_question(
                self.context, self.given.command, host, port, address, self.call_id
            )
            # The verdict about the command itself is another one.
            return (await questions.ask(self.context, watcher, question)).allowed

    def spec(self, *, by_host: bool = False) -> RunSpec:
        given = self.given
        return self.context.spec(self.project)._replace(
            command=given.command,
            working_dir=given.working_dir or None,
            network=self._has_network,
            by_host=by_host and self._has_network,
            hosts=self._hosts.texts,
            ssh_agent=by_host and self._has_network and given.ssh_agent,
            timeout=self._timeout(),
            call_id=self.call_id,
        )

    def _timeout(self) -> float | None:
        """Return the seconds that the command may take; None for the profile's default."""
        wanted = self.given.timeout
        if wanted is None:
            return None
        return self.context.profile(self.given.command).limits.time_for(wanted)

    def _timeout_notice(self, result: Result) -> str:
        """Tell the model that the command did not get the time it asked for, if it needed it."""
        wanted, given = self.given.timeout, self._timeout()
        if not result.timed_out or wanted is None or given is None or given >= wanted:
            return ""
        return f"`timeout` was lowered to {round(given):,} seconds, the most that is allowed."

    async def _shown_state(self) -> ShownState:
        given = self.given
        return await asyncio.to_thread(
            shown_state, self.context, self.project, given.command, given.working_dir
        )

    async def _is_changed_since(self, shown: ShownState) -> bool:
        """Return whether the user allowed something else than what is there now. A rule is not
        for what was there."""
        is_users = self.verdict is not None and self.verdict.source is Source.PERSON
        return is_users and shown != await self._shown_state()

    async def _run_unsandboxed(self, run: UnsandboxedRunner, watcher: Watcher) -> Outcome:
        sinks = _sinks(watcher, lambda pid: watcher.started(pid, None))
        result = await run.exec(self.given.command, sinks=sinks)
        return self._outcome(result, None, self._timeout_notice(result))

    async def _run(self, run: PreparedRun, watcher: Watcher, errors: Sequence[str]) -> Outcome:
        plan = run.plan
        sinks = _sinks(watcher, lambda pid: watcher.started(pid, plan, run.ports))
        if run.rootfs is not None:
            # In Alpine the project has another path. The user sees the host's, the model the other.
            sinks = rewrite_paths(sinks, self.project)
        try:
            with self._open_terminal() as terminal:
                result = await run.exec(self.given.command, sinks=sinks, terminal=terminal)
        except asyncio.CancelledError:
            notices = ["The command was stopped."]
            self.partial = self._outcome(None, run, *notices)
            # The user who stopped it may want to know which hosts it has reached.
            await asyncio.shield(asyncio.to_thread(_record, run, None, notices))
            self.partial = self._outcome(None, run, *notices)
            raise
        except OllmSandboxError as error:
            return self._outcome(None, run, str(error))
        notices = [*errors, *plan.notices(), self._timeout_notice(result)]
        try:
            await asyncio.to_thread(_record, run, result.exit_code, notices)
            asked, declined = await self._open_folders(watcher, plan, result)
            return await asyncio.to_thread(self._outcome, asked, run, *notices, *declined)
        except asyncio.CancelledError:
            # The command's changes are in the project already.
            status = f"The command had just ended, with status {result.exit_code}."
            self.partial = self._outcome(None, run, status)
            raise

    @contextmanager
    def _open_terminal(self) -> Iterator[CommandTerminal | None]:
        if self.terminal_size is None:
            yield None
            return
        self.terminal = terminal = CommandTerminal(_TERMINAL)
        try:
            terminal.resize(self.terminal_size)
            yield terminal
        finally:
            self.terminal = None
            terminal.close()

    async def _open_folders(
        self, watcher: Watcher, plan: Plan, result: Result
    ) -> tuple[Result, list[str]]:
        """Ask about the folders outside that the command tried to write to, through links of the
        project; return the result with the answers, and what to tell the model besides."""
        context, declined = self.context, self.context.declined_folders
        command = self.given.command
        opened: set[str] = set()
        notices = []
        for link, folder in links_in_the_way(plan, [command], result):
            closed = await asyncio.to_thread(closed_folder, context, self.project, link)
            if closed is None or folder in declined:
                continue
            question = questions.folder_question(context, closed, command, self.call_id)
            # The verdict about the command itself is another one.
            verdict = await questions.ask(context, watcher, question)
            if verdict.allowed:
                await asyncio.to_thread(approve_root, context, self.project, folder)
                opened.add(folder)
            elif verdict.source is Source.PERSON:
                declined.add(folder)
                notices.append(f"The user does not let commands change {folder}.")
        if opened:
            refusals = find_refusals(plan, [command], result, opened)
            result = result._replace(refusals=refusals)
        return result, notices

    def _outcome(self, result: Result | None, run: PreparedRun | None, *notices: str) -> Outcome:
        report = run.report if run else None
        filled = False
        if result is not None and self.terminal_size is not None:
            result, filled = _without_screens(result)
        output, end = output_text(result) if result else ("", None)
        drawn = FILLED_SCREEN if filled else ""
        hosts = run.hosts if run else ()
        changed = changes_text(report, self.project)
        text = in_lines(output, drawn, hosts_text(hosts), changed, *notices)
        ok = result is not None and result.exit_code == 0 and result.stop is None
        return Outcome(
            text,
            ok,
            result,
            report,
            self.verdict,
            output_end=end,
            hosts=hosts,
            filled_screen=filled,
        )


def _without_screens(result: Result) -> tuple[Result, bool]:
    """Leave out what programs drew on the whole screen of a terminal; return whether any did."""
    was_stopped = result.stop is not None
    text = without_screens(before := result.stdout.text, was_stopped=was_stopped)
    if text == before:
        return result, False
    stdout = Capture()
    stdout.feed(text.encode())
    return result._replace(stdout=stdout), True


def _record(run: PreparedRun, exit_code: int | None, notices: list[str]) -> None:
    """Record how a run ended. If that fails, add a notice: its output and its changes matter
    more."""
    try:
        run.record_end(exit_code)
    except OllmSandboxError as error:
        notices.append(str(error))


def _programs_of(context: ToolContext) -> list[str]:
    """Return the programs in the system that the project's commands run in; in the host's own, in
    those folders of PATH that a command can see."""
    rootfs = context.rootfs()
    if rootfs is not None:
        return programs_in(rootfs)
    paths, profile = context.paths, context.profile()
    hidden = hidden_paths(profile, paths, context.environ)
    folders = []
    for folder in profile.environment(context.environ).get("PATH", os.defpath).split(":"):
        real = os.path.realpath(folder)
        in_project = context.project is not None and is_inside(real, context.project)
        is_empty = is_inside(real, *EMPTY_FOLDERS) and not is_inside(real, paths.real_home)
        is_seen = in_project or not (is_empty or is_inside(real, *hidden))
        if folder.startswith("/") and is_seen:
            folders.append(folder)
    path = ":".join(folders)
    return [name for name in KNOWN_PROGRAMS if shutil.which(name, path=path)]


def _lists_text(context: ToolContext) -> str:
    """Return the sentence about the user's lists of hosts; "" if there are none."""
    try:
        names = ", ".join(f"@{name}" for name in load_host_lists(context.paths.config))
    except HostListError:
        return ""  # using a list reports it
    return f"The user's lists of hosts: {names}." if names else ""


def _time(limits: Limits) -> str:
    """Return the sentence about the time limit, or "" if there is none."""
    if limits.time is None:
        return ""
    most = "" if limits.max_time is None else f" to at most {round(limits.max_time):,}"
    return _TIME.format(time=round(limits.time), most=most)


def _sinks(watcher: Watcher, started: Callable[[int], None]) -> Sinks:
    """Return sinks that have the loop tell the watcher, and wait for that."""

    @on_this_loop
    async def pass_on(stream: Stream, data: bytes) -> None:
        watcher.output(stream, data)
        # Give a window time to draw. A main loop draws when nothing else is ready; in a flood of
        # output something always is.
        if len(data) >= _MUCH:
            await asyncio.sleep(_PAUSE)

    @on_this_loop
    async def begin(pid: int) -> None:
        started(pid)

    return Sinks(partial(pass_on, Stream.STDOUT), partial(pass_on, Stream.STDERR), begin)
