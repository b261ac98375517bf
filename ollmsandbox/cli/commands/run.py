# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run`"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...errors import OllmSandboxError, SandboxError, WorkingDirError, in_words
from ...paths import Paths, is_inside
from ...sandbox.starter.client import shared_starter
from ..arguments import FAILED, find_given_project
from ..streams import Writer, briefly, give_up, print_notices, stdin_for
from ..waiter import Waiter

if TYPE_CHECKING:
    from ...engine.run import PreparedRun
    from ...project.change import Report
    from ...project.recover import RecoveryResult
    from ...sandbox.network.network import AskHost
    from ...sandbox.network.relay import Service
    from ...sandbox.output import Sink
    from ...sandbox.process import Result, Sinks
    from ...sandbox.rootfs.paths import PathRewriter
    from ...sandbox.spec import RunSpec
    from ..terminal import ScreenWriter, TerminalLink

# Seconds after a signal, until we exit even if nobody reads the rest of the output.
_PATIENCE = 2.0
# Seconds until we exit even if the changes are not settled, because there are many, or other
# programs hold the project's lock.
_PATIENCE_TO_SETTLE = 4.0
_KEPT = (
    "The command's changes are kept. The next ollmsandbox command lists them as pending, for you"
    " to apply or discard."
)
# Exit status of a shell.
_NOT_FOUND = 127
# The last message, by the value of --apply.
_LEFT = {
    "auto": f"Nothing was applied. {_KEPT}",
    "review": _KEPT,
    "never": "The command's changes are dropped. They were not listed.",
}


def run_in_sandbox(given: argparse.Namespace) -> int:
    # Starts in parallel, while we import the larger libraries.
    shared_starter()

    job = _Run(given)
    try:
        result: Result | None = job.run(_command(given))
        error = ""
    except (OllmSandboxError, OSError) as caught:
        explained = job.explain(caught)
        if not given.json:
            job.print_changes()
            raise explained from caught
        result, error = None, in_words(explained)
    if given.json:
        print(json.dumps(_document(result, job, error)))
    else:
        try:
            if result is not None and not given.quiet:
                print_notices(*_remarks(result, given.command))
            job.print_changes()
        except OSError:
            # The exit status is the command's, even if nobody reads our messages.
            give_up()
    code = FAILED if result is None else result.exit_code
    if job.report is None:
        _exit_now(code)
    return code


def run_agent_program(given: argparse.Namespace) -> int:
    """Run an agent by its name: `ollmsandbox claude`."""
    words: list[str] = given.command
    given.command = [given.program, *(words[1:] if words[:1] == ["--"] else words)]
    return run_in_sandbox(given)


def _exit_now(code: int) -> None:
    """Exit without cleaning up the interpreter: `run -- true` takes 170 ms this way, and 199 ms
    otherwise. Nothing is open that would have to be closed.
    """
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError:
        return  # main() reports it
    os._exit(code)


class _Run:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._waiter = Waiter()
        self._signal = 0
        self.run_id = ""
        self.project = ""
        # The root file system that the command runs in; "" for the host's own.
        self.system = ""
        self.report: Report | None = None
        self.notices: list[str] = []
        # Errors about earlier, interrupted runs.
        self.errors: list[str] = []
        # The command has ended, but its changes could not be recorded.
        self._has_unsettled_changes = False

    def _install_alpine(self, paths: Paths, project: str) -> None:
        """Install Alpine if the project uses it and this is its first command; show progress."""
        from ...engine.run import awaits_rootfs, prepare_rootfs

        if awaits_rootfs(paths, os.environ, project):
            from ... import loop
            from .rootfs import ProgressLine

            shown = ProgressLine(quiet=self._given.quiet)
            try:
                loop.run(prepare_rootfs(paths, os.environ, project, shown))
            finally:
                shown.end()

    def run(self, command: str | Sequence[str]) -> Result:
        from ...engine.run import finish_interrupted_runs, prepare_run

        given = self._given
        paths = Paths.from_environ(os.environ)
        if (recovered := finish_interrupted_runs(paths, clean_up=True)) is not None:
            self._note(recovered)
        project = self.project = find_given_project(given.project, paths)
        if given.rootfs is not False:
            self._install_alpine(paths, project)
        spec = _spec(given, project, command)
        services: dict[str, Service] = {}
        if given.profile or given.tools or given.connection:
            from ..agents import prepare_front

            spec, services = prepare_front(given, spec, paths, command)
        streams = _Streams(given, self._waiter)
        run = prepare_run(
            spec, paths, os.environ, ask_host=streams.host_asker(spec), services=services
        )
        if run.rootfs is not None:
            self.system = run.rootfs.title
        self.run_id = run.run_id
        self.notices += run.plan.notices()
        if spec.network and not spec.by_host:
            self.notices.append("The command could reach every service of this computer, too.")
        self._handle_signals(run, streams)
        sinks = streams.sinks(project if run.rootfs is not None else "")
        if spec.publish:
            sinks = self._naming_ports(sinks, run)
        with contextlib.closing(streams), stdin_for(0) as stdin:
            try:
                terminal = streams.link.theirs if streams.link is not None else None
                result = self._waiter.wait_for(
                    partial(run.run, command, sinks=sinks, stdin=stdin, terminal=terminal),
                    run.stop,
                )
            except BrokenPipeError:
                # Nobody reads the output any more: exit like a program that SIGPIPE kills.
                raise SystemExit(128 + signal.SIGPIPE) from None
            except (OllmSandboxError, OSError):
                self._has_unsettled_changes = run.has_unsettled_changes()
                raise
            finally:
                self.report = run.report
        if self._signal:
            result = result._replace(exit_code=128 + self._signal)
        run.record_end(result.exit_code)
        self.notices += [*result.remarks, *run.settings_notices]
        return result

    def _naming_ports(self, sinks: Sinks, run: PreparedRun) -> Sinks:
        """Say which published ports have another number here, when the command starts."""

        def started(pid: int) -> None:
            # Even with --quiet, since nobody could know.
            for one in run.ports.published:
                text = f"Port {one.port} is not free here. The command's is at {one.url}."
                if one.host_port != one.port and self._given.json:
                    self.notices.append(text)
                elif one.host_port != one.port:
                    print(f"ollmsandbox: {text}", file=sys.stderr, flush=True)
            if sinks.started is not None:
                sinks.started(pid)

        return sinks._replace(started=started)

    def _handle_signals(self, run: PreparedRun, streams: _Streams) -> None:
        """Stop the command at a signal, and exit even if the rest takes long."""
        waiter = self._waiter

        def interrupted(number: int) -> None:
            self._signal = number
            run.stop()
            waiter.call_later(_PATIENCE, partial(leave, time.monotonic() + _PATIENCE_TO_SETTLE))

        def leave(give_up: float) -> None:
            # Applying must not be interrupted. Before it the project is unchanged, and after it
            # there are only files to remove, which the next start does as well.
            is_unsettled = run.is_settling and run.report is None
            is_applying = is_unsettled and run.has_begun_to_apply()
            if run.is_settling and (is_applying or time.monotonic() < give_up):
                waiter.call_later(_PATIENCE, partial(leave, give_up))
                return
            try:
                streams.abandon()
                if is_unsettled:
                    left = f"ollmsandbox: {_LEFT[self._given.apply]}\n"
                    briefly(partial(os.write, 2, left.encode()))
            finally:
                os._exit(128 + self._signal)

        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        if streams.link is not None:
            numbers.append(signal.SIGQUIT)
        for number in numbers:
            waiter.add_signal_handler(number, partial(interrupted, number))

    def explain(self, error: OllmSandboxError | OSError) -> OllmSandboxError | OSError:
        """Return an error that also says what becomes of the command's changes, if it has ended."""
        if isinstance(error, WorkingDirError):
            return OllmSandboxError(_why_not_in(error.working_dir, self.project))
        if not self._has_unsettled_changes or self._given.apply == "never":
            return error
        return OllmSandboxError(
            "The command has ended, but its changes could not be recorded. They are kept.",
            "{why}\nOnce that is fixed, the next ollmsandbox command continues: see "
            "`ollmsandbox history`.",
            why=in_words(error),
        )

    def print_changes(self) -> None:
        """Print to standard error: standard output is the command's own."""
        # Even with --quiet: some errors are reported only once.
        print_notices(*self.errors)
        if self._given.quiet:
            return
        print_notices(*self.notices)
        if self.report is not None:
            from ..changes import note_report, print_notice, summary

            print_notice(summary(self.report, self.project))
            note_report(self.report, self.project)

    def _note(self, recovered: RecoveryResult) -> None:
        from ..changes import FINISHED_NOW, summary

        for report in recovered.finished:
            self.notices += [FINISHED_NOW, *summary(report, self.project)]
        self.notices += recovered.notices
        self.errors += recovered.errors


class _Streams:
    """Connects a command with our own streams, through a filter where they are terminals."""

    def __init__(self, given: argparse.Namespace, waiter: Waiter) -> None:
        self._given = given
        self._waiter = waiter
        self._writers = {number: Writer(number) for number in (1, 2)}
        self._screens: dict[int, ScreenWriter] = {}
        self._rewriters: list[PathRewriter] = []
        # Set if the command gets a terminal of its own.
        self.link: TerminalLink | None = None
        if given.json:
            return
        # Not imported for a pipe: `run -- true` has to start quickly.
        for number in filter(os.isatty, self._writers):
            from ..terminal import ScreenWriter

            self._screens[number] = ScreenWriter(self._writers[number], raw=given.raw)
        if _has_terminal(given):
            from ..terminal import TerminalLink

            self.link = TerminalLink(self._screens.get(1), waiter)

    def host_asker(self, spec: RunSpec) -> AskHost | None:
        """Return who asks about hosts that the command line does not name; raise if `--network`
        wants them to be asked about and nobody is there."""
        if not spec.by_host or self._given.network is None:
            return None
        from ..hosts import HostAsker

        if not self._given.json:
            asker = HostAsker.at_terminal(self._waiter, self.link)
            if asker is not None:
                return asker
        if spec.hosts:
            return None
        raise SandboxError(
            "Nobody can be asked which hosts the command may reach.",
            "Name them with --host, or open the whole network with --network=all.",
        )

    def sinks(self, project: str) -> Sinks:
        """Return the sinks for a command. Those for Alpine replace its paths by the host's in what
        a person or an editor reads, if the project is given; what is piped to another program stays
        byte for byte what the command printed."""
        from ...sandbox.process import Sinks

        if self._given.json:
            return Sinks()
        stdout: Sink = self._screens.get(1, self._writers[1])
        stderr: Sink = self._screens.get(2, self._writers[2])
        if project:
            stderr = self._rewriter(stderr, project)
            if 1 in self._screens:
                stdout = self._rewriter(stdout, project)
        return Sinks(stdout, stderr, self._start, self._end)

    def _rewriter(self, sink: Sink, project: str) -> Sink:
        from ...sandbox.rootfs.paths import PathRewriter

        made = PathRewriter(sink, project)
        self._rewriters.append(made)
        if self.link is None:
            return made
        from ...sandbox.terminal import LineSink

        return LineSink(made, sink, self.link.theirs)

    def _start(self, _pid: int) -> None:
        # Until now, Ctrl+C was for us.
        if self.link is not None:
            self._waiter.call(self.link.connect)

    def _end(self) -> None:
        for rewriter in self._rewriters:
            rewriter.end()
        for screen in self._screens.values():
            screen.end()
        if self.link is not None:
            self._waiter.call(self.link.disconnect)

    def abandon(self) -> None:
        """Give the user's terminal back, without waiting for it."""
        if self.link is not None:
            self.link.disconnect()
        for number, screen in self._screens.items():
            briefly(partial(os.write, number, screen.filter.reset()))

    def close(self) -> None:
        if self.link is not None:
            self.link.close()


def _has_terminal(given: argparse.Namespace) -> bool:
    """Return whether the command gets a terminal of its own."""
    if given.json or given.tty is not None:
        return bool(given.tty)
    return os.isatty(0) and os.isatty(1)


def _spec(given: argparse.Namespace, project: str, command: str | Sequence[str]) -> RunSpec:
    from ...sandbox.profile.profile import DEFAULT_PROFILE
    from ...sandbox.spec import Mode, RunSpec

    if given.publish and given.network == "all":
        raise SandboxError(
            "With --network=all, the command's ports are this computer's own.",
            "Leave --publish out.",
        )
    if given.ssh_agent and (given.network == "all" or not (given.hosts or given.network)):
        raise SandboxError(
            "--ssh-agent is for commands that reach single hosts.",
            "Name the server with --host.",
        )
    hosts = _hosts(given)
    for port in given.publish:
        if f"localhost:{port}" in hosts:
            # A connection would go round and round.
            raise SandboxError(
                f"Port {port} cannot be the command's and this computer's.",
                "Leave --publish or --host out.",
            )
    return RunSpec(
        project,
        given.title or _text(command),
        working_dir=_working_dir(given, project),
        network=given.network is not None or bool(given.hosts),
        by_host=given.network == "ask" or (given.network is None and bool(given.hosts)),
        hosts=hosts,
        ssh_agent=given.ssh_agent,
        publish=tuple(dict.fromkeys(given.publish)),
        mode=Mode(given.apply),
        profile=given.profile or DEFAULT_PROFILE,
        timeout=_timeout(given),
        use_rootfs=given.rootfs,
        # Output that streams through is not needed again.
        capture=1 << 20 if given.json else 1 << 12,
    )


def _hosts(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the hosts that the user named, also those of lists."""
    if not given.hosts:
        return ()
    from ...sandbox.network.lists import NamedHosts

    return NamedHosts(given.hosts, Paths.from_environ(os.environ).config).texts


def _timeout(given: argparse.Namespace) -> float | None:
    """Return the seconds that the command has, or None for those in the profile. At a terminal the
    user ends it."""
    if given.timeout is None and _has_terminal(given):
        return float("inf")
    return None if given.timeout is None else float(given.timeout)


def _working_dir(given: argparse.Namespace, project: str) -> str | None:
    """Return --working-dir, else the current folder if it is in the project."""
    if given.working_dir is not None:
        return str(given.working_dir)
    try:
        current = os.getcwd()
    except FileNotFoundError:
        return None
    return current if is_inside(os.path.realpath(current), os.path.realpath(project)) else None


def _why_not_in(working_dir: str, project: str) -> str:
    """Return why a command cannot start in a folder."""
    whole = os.path.join(project, os.path.expanduser(working_dir))
    if os.path.isdir(whole):
        return f"Commands cannot enter {working_dir}."
    is_there = os.path.exists(whole)
    return f"{working_dir} {'is not a folder' if is_there else 'does not exist'}."


def _command(given: argparse.Namespace) -> str | list[str]:
    words: list[str] = given.command
    if words and words[0] == "--":
        words = words[1:]
    if given.json and given.tty:
        raise SandboxError("--json and --tty exclude each other.", "Use one of them.")
    if given.text is not None and words:
        raise SandboxError("Two commands were given.", "Use either -c TEXT or -- COMMAND.")
    if given.text is not None:
        return str(given.text)
    if not words:
        raise SandboxError("No command was given.", "Use: ollmsandbox run -- COMMAND")
    return words


def _remarks(result: Result, command: Sequence[str]) -> Iterator[str]:
    """Yield remarks for the user about a command that was stopped or not found."""
    if result.stop is not None:
        yield f"The command did not finish. {result.stop.sentence}."
    words = [word for word in command if word != "--"]
    if result.exit_code == _NOT_FOUND and len(words) == 1 and " " in words[0]:
        yield "To run shell text, use -c TEXT."


def _text(command: str | Sequence[str]) -> str:
    """Return the command as a user would type it."""
    if isinstance(command, str):
        return command
    import shlex

    return shlex.join(command)


def _document(result: Result | None, job: _Run, error: str) -> dict[str, object]:
    """Return the document for --json. It always has the same keys."""
    from ..changes import note_report, report_document

    note_report(job.report, job.project)

    seen = {"system": job.system, "seen_as": {job.project: "/workspace"}} if job.system else {}
    return {
        **seen,
        "run_id": job.run_id,
        "exit_code": result.exit_code if result else FAILED,
        "signal": result.signal if result else None,
        "timed_out": result.timed_out if result else False,
        "stopped": result.stop.value if result and result.stop else None,
        "left_running": result.left_running if result else 0,
        "stdout": result.stdout.text if result else "",
        "stderr": result.stderr.text if result else "",
        "truncated": result.truncated if result else False,
        "duration": round(result.duration, 6) if result else 0.0,
        "hosts": [use.document() for use in result.hosts] if result else [],
        **report_document(job.report, job.project),
        "notices": job.notices,
        "errors": list(dict.fromkeys([*job.errors, *([error] if error else [])])),
    }
