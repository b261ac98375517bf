# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run`"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import OllmSandboxError, SandboxError
from ..sandbox.host import below
from ..sandbox.starter_client import shared_starter
from . import FAILED

if TYPE_CHECKING:
    from ..sandbox.result import Result

# After that an interrupted run is left, even if nobody takes the last of its output.
_PATIENCE = 2.0


def run(given: argparse.Namespace) -> int:
    # Nothing of what is loaded now is garbage; looking for it takes a while.
    gc.disable()
    _open_standard_streams()
    # It comes up while the larger libraries are loaded.
    shared_starter()
    from ..loop import run_bare

    try:
        result: Result | None = run_bare(_Run(given).exec(_command(given)))
        error = ""
    except OllmSandboxError as caught:
        if not given.json:
            raise
        result, error = None, str(caught)
    if given.json:
        print(json.dumps(_document(result, error)))
    elif result is not None and result.stop is not None and not given.quiet:
        print(f"ollmsandbox: The command was ended. {result.stop.value}", file=sys.stderr)
    return FAILED if result is None else result.exit_code


class _Run:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._signal = 0

    async def exec(self, command: str | Sequence[str]) -> Result:
        import asyncio

        from ..paths import Paths
        from ..sandbox import profile_file
        from ..sandbox.bubble import Bubble
        from ..sandbox.process import Sinks
        from .streams import Writer, stdin_for

        gc.enable()
        given = self._given
        paths = Paths.from_environ(os.environ)
        project = given.project if given.project is not None else default_project(os.environ)
        bubble = Bubble(
            project,
            allow_network=given.network,
            working_dir=_working_dir(given, project),
            profile=profile_file.load(
                given.profile or profile_file.DEFAULT, paths.profiles, paths.cache
            ),
            timeout=given.timeout,
            # What streams through is not needed again.
            capture=1 << 20 if given.json else 1 << 12,
        )
        loop = asyncio.get_running_loop()

        def interrupted(number: int) -> None:
            self._signal = number
            bubble.stop()
            loop.call_later(_PATIENCE, os._exit, 128 + number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupted, number)
        stdout, stderr = Writer(1), Writer(2)
        sinks = Sinks() if given.json else Sinks(stdout, stderr)
        with stdin_for(0) as stdin:
            try:
                result = await bubble.exec(command, sinks=sinks, stdin=stdin)
                await stdout.flush()
                await stderr.flush()
            except BrokenPipeError:
                # Who read the output has gone; as a program does that SIGPIPE ends.
                raise SystemExit(128 + signal.SIGPIPE) from None
        if self._signal:
            return replace(result, exit_code=128 + self._signal)
        return result


def _open_standard_streams() -> None:
    """A stream that is closed would be taken by the next thing that is opened."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _working_dir(given: argparse.Namespace, project: str) -> str | None:
    """As for every program: the current folder, if it is one of the project's."""
    if given.working_dir is not None:
        return str(given.working_dir)
    try:
        current = os.getcwd()
    except FileNotFoundError:
        return None
    return current if below(os.path.realpath(current), os.path.realpath(project)) else None


def default_project(environ: Mapping[str, str]) -> str:
    """The git checkout around the current folder, else the current folder.

    Found by looking, not by asking git: that would run what the project's configuration names.
    """
    try:
        current = os.getcwd()
    except FileNotFoundError as error:
        raise SandboxError(
            "The current folder does not exist any more.", "Go to another one."
        ) from error
    home = os.path.realpath(environ.get("HOME") or "/")
    folder = current
    while folder not in ("/", home):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = os.path.dirname(folder)
    return current


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


def _document(result: Result | None, error: str) -> dict[str, object]:
    """The same keys whatever happened."""
    return {
        "run_id": _run_id(),
        "exit_code": result.exit_code if result else FAILED,
        "signal": result.signal if result else None,
        "timed_out": result.timed_out if result else False,
        "stopped": result.stop.name.lower() if result and result.stop else None,
        "stdout": result.stdout.text if result else "",
        "stderr": result.stderr.text if result else "",
        "truncated": result.truncated if result else False,
        "duration": round(result.duration, 6) if result else 0.0,
        "errors": [error] if error else [],
    }


def _run_id() -> str:
    import secrets
    import time

    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
