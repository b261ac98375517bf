# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run`"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import OllmSandboxError, SandboxError, in_words
from ...paths import Paths, is_inside
from ...sandbox.starter.client import shared_starter
from ..streams import give_up
from ..types import FAILED, default_project

if TYPE_CHECKING:
    from ...project.changes.change import Report
    from ...sandbox.output import Sink
    from ...sandbox.process import Result, Sinks
    from ...sandbox.rootfs.paths import Renamed

# After that an interrupted run is left, even if nobody takes the last of its output.
_PATIENCE = 2.0
# Or even if what it changed could not be looked at, since there is much, or others are at work.
_PATIENCE_TO_LOOK = 4.0
# By what was to become of the changes.
_LEFT_TO_WAIT = (
    "What the command changed is kept. The next ollmsandbox lists it, and it waits until you"
    " apply or discard it."
)
_LEFT = {
    "auto": f"Nothing was applied. {_LEFT_TO_WAIT}",
    "review": _LEFT_TO_WAIT,
    "never": "What the command changed is dropped, and was not listed.",
}


_MAKE_ROOM = "There is no room left on the disk. Make some."


def run(given: argparse.Namespace) -> int:
    # Nothing of what is loaded now is garbage; looking for it takes a while.
    gc.disable()
    # It comes up while the larger libraries are loaded.
    shared_starter()
    from ...loop import run_bare

    job = _Run(given)
    try:
        result: Result | None = run_bare(job.exec(_command(given)))
        error = ""
    except (OllmSandboxError, OSError) as caught:
        told = job.explained(caught)
        # What ended all is told by who catches it; once is enough.
        job.errors = [one for one in job.errors if one != str(caught)]
        if not given.json:
            job.tell_changes()
            raise told from caught
        result, error = None, in_words(told)
    if given.json:
        print(json.dumps(_document(result, job, error)))
    else:
        try:
            if result is not None and result.stop is not None and not given.quiet:
                print(f"ollmsandbox: The command was ended. {result.stop.value}", file=sys.stderr)
            job.tell_changes()
        except OSError:
            # The exit status of a command that ran is its own, whether anybody reads this or not.
            give_up()
    code = FAILED if result is None else result.exit_code
    if job.report is None:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """At once: nothing is open that has to be closed, and taking the interpreter apart takes longer
    than the sandbox did."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError:
        return  # what to say to that is not decided here
    os._exit(code)


def _say_at_last(text: str) -> None:
    """Who does not read it is not waited for, and who has gone is no reason to stay."""

    def say() -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"ollmsandbox: {text}\n".encode())

    saying = threading.Thread(target=say, daemon=True)
    saying.start()
    saying.join(_PATIENCE)


class _Run:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._signal = 0
        self.run_id = ""
        self.project = ""
        # The one that the command runs in, if it is not the machine's own.
        self.system = ""
        self.report: Report | None = None
        self.notices: list[str] = []
        # Of what was left by earlier runs.
        self.errors: list[str] = []
        # The command has ended, and what it changed could not be recorded.
        self._is_left = False

    async def exec(self, command: str | Sequence[str]) -> Result:
        import asyncio

        from ...project.apply.recorder import Recorder, needs_care
        from ...project.changes.change import Mode
        from ...project.settings import System, system_of
        from ...sandbox.bubble import Bubble
        from ...sandbox.plan.folders import find_project
        from ...sandbox.process import Sinks
        from ...sandbox.profile import file
        from ..streams import Writer, stdin_for

        gc.enable()
        given = self._given
        paths = Paths.from_environ(os.environ)
        if needs_care(paths):
            self._care(paths)
        named = given.project if given.project is not None else default_project(os.environ)
        project = self.project = find_project(named, paths)
        rootfs = None
        if given.rootfs or (given.rootfs is None and system_of(paths, project) is System.ALPINE):
            from ...sandbox.rootfs.store import need

            rootfs = need(paths, os.environ)
            self.system = rootfs.title
        recorder = Recorder(project, paths, mode=Mode(given.apply), command=_text(command))
        bubble = Bubble(
            project,
            allow_network=given.network,
            working_dir=_working_dir(given, project),
            profile=file.load(given.profile or file.DEFAULT, paths.profiles, paths.cache),
            timeout=given.timeout,
            keeper=recorder,
            # What streams through is not needed again.
            capture=1 << 20 if given.json else 1 << 12,
            rootfs=rootfs,
        )
        self.run_id = bubble.overlay.run_id
        self.notices += bubble.plan.notices()
        loop = asyncio.get_running_loop()

        def interrupted(number: int) -> None:
            self._signal = number
            bubble.stop()
            loop.call_later(_PATIENCE, leave, loop.time() + _PATIENCE_TO_LOOK)

        def leave(give_up: float) -> None:
            # What has begun is done to its end. Before that the project is as it was, and after
            # that there is only something to remove, which the next start does as well.
            is_waiting = bubble.is_settling and recorder.report is None
            has_begun = is_waiting and recorder.has_begun(bubble.overlay)
            if bubble.is_settling and (has_begun or loop.time() < give_up):
                loop.call_later(_PATIENCE, leave, give_up)
                return
            try:
                if is_waiting:
                    _say_at_last(_LEFT[given.apply])
            finally:
                os._exit(128 + self._signal)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupted, number)
        stdout, stderr = Writer(1), Writer(2)
        shown: list[Renamed] = []
        sinks = Sinks() if given.json else Sinks(stdout, stderr)
        if rootfs is not None and not given.json:
            sinks, shown = _renamed(stdout, stderr, project)
        with stdin_for(0) as stdin:
            try:
                result = await bubble.exec(command, sinks=sinks, stdin=stdin)
                for one in shown:
                    await one.end()
                await stdout.flush()
                await stderr.flush()
            except BrokenPipeError:
                # Who read the output has gone; as a program does that SIGPIPE ends.
                raise SystemExit(128 + signal.SIGPIPE) from None
            except (OllmSandboxError, OSError):
                with contextlib.suppress(FileNotFoundError):  # it was removed, as nobody needs it
                    self._is_left = not bubble.overlay.is_untouched()
                raise
            finally:
                self.report = recorder.report
        if self._signal:
            result = replace(result, exit_code=128 + self._signal)
        recorder.note_exit(result.exit_code)
        if result.hint:
            self.notices.append(result.hint)
        return result

    def explained(self, error: OllmSandboxError | OSError) -> OllmSandboxError | OSError:
        """If the command has ended by then, what becomes of its work."""
        if not self._is_left or self._given.apply == "never":
            return error
        return OllmSandboxError(
            "The command has ended, but what it changed could not be recorded. It is kept.",
            "{why}\nAs soon as that is mended, the next ollmsandbox command goes on with it: see "
            "`ollmsandbox history`.",
            why=_MAKE_ROOM if _is_full(error) else in_words(error),
        )

    def tell_changes(self) -> None:
        """To the person; what is printed by the command stays apart from it."""
        for error in self.errors:
            # Some of them are told only once.
            print(f"ollmsandbox: {error}", file=sys.stderr)
        if self._given.quiet:
            return
        for notice in self.notices:
            print(f"ollmsandbox: {notice}", file=sys.stderr)
        if self.report is not None:
            from ..change_text import summary, tell

            tell(summary(self.report, self.project))

    def _care(self, paths: Paths) -> None:
        """What was cut off is finished, and what is old goes, before anything new begins."""
        from ...project.recovery.recover import take_care
        from ..change_text import summary

        care = take_care(paths)
        for report in care.finished:
            self.notices.append("An earlier run was cut off and has been finished:")
            self.notices += summary(report, self.project)
        self.notices += care.notices
        self.errors += care.errors


def _is_full(error: BaseException | None) -> bool:
    """Also as the database says it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "disk is full" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _renamed(stdout: Sink, stderr: Sink, project: str) -> tuple[Sinks, list[Renamed]]:
    """What a person or an editor reads names the files as they are named here. What is piped on
    stays byte for byte what the command printed."""
    from ...sandbox.process import Sinks
    from ...sandbox.rootfs.paths import Renamed

    errors = Renamed(stderr, project)
    if not os.isatty(1):
        return Sinks(stdout, errors), [errors]
    output = Renamed(stdout, project)
    return Sinks(output, errors), [output, errors]


def _working_dir(given: argparse.Namespace, project: str) -> str | None:
    """As for every program: the current folder, if it is one of the project's."""
    if given.working_dir is not None:
        return str(given.working_dir)
    try:
        current = os.getcwd()
    except FileNotFoundError:
        return None
    return current if is_inside(os.path.realpath(current), os.path.realpath(project)) else None


def _command(given: argparse.Namespace) -> str | list[str]:
    words: list[str] = given.command
    if words and words[0] == "--":
        words = words[1:]
    if given.text is not None and words:
        raise SandboxError("There are two commands.", "Use either -c TEXT or -- COMMAND.")
    if given.text is not None:
        return str(given.text)
    if not words:
        raise SandboxError("There is no command.", "Use: ollmsandbox run -- COMMAND")
    return words


def _text(command: str | Sequence[str]) -> str:
    """As a person would type it."""
    if isinstance(command, str):
        return command
    import shlex

    return shlex.join(command)


def _document(result: Result | None, job: _Run, error: str) -> dict[str, object]:
    """The same keys whatever happened."""
    from ..change_text import report_document

    seen = {"system": job.system, "seen_as": {job.project: "/workspace"}} if job.system else {}
    return {
        **seen,
        "run_id": job.run_id,
        "exit_code": result.exit_code if result else FAILED,
        "signal": result.signal if result else None,
        "timed_out": result.timed_out if result else False,
        "stopped": result.stop.name.lower() if result and result.stop else None,
        "stdout": result.stdout.text if result else "",
        "stderr": result.stderr.text if result else "",
        "truncated": result.truncated if result else False,
        "duration": round(result.duration, 6) if result else 0.0,
        **report_document(job.report, job.project),
        "notices": job.notices,
        "errors": [*job.errors, *([error] if error else [])],
    }
