# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run`"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import OllmSandboxError, SandboxError
from ..sandbox.starter_client import shared_starter

if TYPE_CHECKING:
    from ..sandbox.result import Result

# After that an interrupted run is left, even if nobody takes the last of its output.
_PATIENCE = 2.0


def run(given: argparse.Namespace) -> int:
    # It comes up while the larger libraries are loaded.
    _open_standard_streams()
    shared_starter()
    from ..loop import run_bare

    if not given.json:
        command = _command(given)
        result = run_bare(_Run(given).exec(command))
        if result.stop is not None and not given.quiet:
            print(f"ollmsandbox: The command was ended. {result.stop.value}", file=sys.stderr)
        return result.exit_code
    try:
        result = run_bare(_Run(given).exec(_command(given)))
    except OllmSandboxError as error:
        print(json.dumps({"run_id": _run_id(), "exit_code": 125, "errors": [str(error)]}))
        return 125
    print(json.dumps(_document(result)))
    return result.exit_code


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

        given = self._given
        paths = Paths.from_environ(os.environ)
        project = given.project if given.project is not None else default_project(os.environ)
        bubble = Bubble(
            project,
            allow_network=given.network,
            working_dir=given.working_dir,
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
            except OSError as error:
                raise SandboxError(f"The output cannot be written: {error.strerror}.") from error
        if self._signal:
            raise SystemExit(128 + self._signal)
        return result


def _open_standard_streams() -> None:
    """A stream that is closed would be taken by the next thing that is opened."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


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


def _document(result: Result) -> dict[str, object]:
    return {
        "run_id": _run_id(),
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "stopped": result.stop.name.lower() if result.stop is not None else None,
        "stdout": result.stdout.text,
        "stderr": result.stderr.text,
        "truncated": result.truncated,
        "duration": round(result.duration, 6),
        "errors": [],
    }


def _run_id() -> str:
    import secrets
    import time

    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
