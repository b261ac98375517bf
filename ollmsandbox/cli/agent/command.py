# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox agent`"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass

from ...chat.conversation import TurnLimits
from ...chat.sessions import SessionFactory
from ...errors import OllmSandboxError
from ...loop import new_loop
from ...paths import Paths
from ...permission.provider import NobodyAsks
from ...permission.request import Asker
from ...project.apply.recorder import needs_care
from ...project.changes.change import Mode
from ...project.recovery.recover import take_care
from ...sandbox.plan.folders import find_project
from ...sandbox.profile import file
from ..change_text import summary, tell
from ..types import default_project
from .asker import TerminalAsker
from .json_events import JsonPrinter
from .printer import Printer
from .prompt import Loop
from .turns import Turns

_NO_MODEL = OllmSandboxError(
    "No model is set up.",
    "Find one on this machine with `ollmsandbox connections find`, or name one with "
    "`ollmsandbox connections add`. `ollmsandbox tour` shows everything without any model.",
)


_NO_CHOICE = OllmSandboxError(
    "There are several connections to model servers, and none is chosen.",
    "Choose one with `ollmsandbox connections default NAME`, or for once with --connection.",
)


@dataclass(frozen=True)
class Manner:
    """How to talk to the person."""

    as_json: bool
    # Whether somebody is there who can be asked.
    asks: bool


def agent(given: argparse.Namespace) -> int:
    try:
        return _agent(given)
    except OllmSandboxError as error:
        if given.json:
            JsonPrinter("").write({"event": "error", "text": str(error)})
        print(f"ollmsandbox: {error}", file=sys.stderr)
        return 1


def _agent(given: argparse.Namespace) -> int:
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    text = given.text
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not text.strip() if text is not None else given.json:
        raise OllmSandboxError(
            "There is nothing to do.",
            'Use: ollmsandbox agent "TEXT". Without a text it needs a terminal, and no --json.',
        )
    manner = Manner(given.json, is_terminal and not given.json and not given.yes_to_nothing)
    if not manner.asks and not given.json and not given.yes_to_nothing:
        print("ollmsandbox: Nobody can be asked here; what needs a yes is denied.", file=sys.stderr)
    paths = Paths.from_environ(os.environ)
    _care(paths)
    if given.project is not None or given.session is None:
        named = given.project if given.project is not None else default_project(os.environ)
        project = find_project(named, paths)
    else:
        project = ""
    if given.profile is not None:
        # Told now, not to the model at its first command.
        file.load(given.profile, paths.profiles, paths.cache)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return _talk(given, text, manner, runner, paths, project)


def _talk(
    given: argparse.Namespace,
    text: str | None,
    manner: Manner,
    runner: asyncio.Runner,
    paths: Paths,
    project: str,
) -> int:
    printer = JsonPrinter(project) if manner.as_json else Printer(project)
    asker: Asker = NobodyAsks()
    if manner.asks and isinstance(printer, Printer):
        asker = TerminalAsker(printer.write, printer.hold, printer.go_on)
    desk = SessionFactory(paths, os.environ, asker)
    try:
        session_id = _session(desk, given, project)
        opening = desk.open(
            project or None,
            session_id=session_id,
            connection=given.connection,
            model_name=given.model,
            mode=Mode(given.apply),
            profile_name=given.profile or file.DEFAULT,
            ask_every_command=given.ask_every_command,
            allow_private=given.allow_private,
            limits=TurnLimits(
                given.max_turns,
                given.max_tokens,
                None if given.max_minutes is None else given.max_minutes * 60,
            ),
        )
        conversation = runner.run(opening)
        if conversation.bench is not None:
            printer.project = conversation.bench.project or ""
        turns = Turns(runner, conversation)
        turns.listen(printer.hear)
        try:
            no_model = _NO_CHOICE if desk.connections.all() else _NO_MODEL
            if conversation.model is None and (text is not None or not manner.asks):
                raise no_model
            if text is not None:
                return turns.say(text)
            assert isinstance(printer, Printer)
            return Loop(desk, turns, printer, no_model=str(no_model)).go()
        finally:
            turns.close()
    finally:
        for notice in (*desk.manager.notices, *desk.connections.take_notices()):
            print(f"ollmsandbox: {notice}", file=sys.stderr)
        desk.close()


def _session(desk: SessionFactory, given: argparse.Namespace, project: str) -> str | None:
    if given.session is not None:
        return desk.history.find(given.session).id
    if given.go_on:
        last = desk.history.sessions(project, limit=1, only_said=True)
        if not last:
            raise OllmSandboxError("There is no session of this project yet.")
        return last[0].id
    return None


def _care(paths: Paths) -> None:
    """What was cut off is finished, and what is old goes, before anything new begins."""
    if not needs_care(paths):
        return
    care = take_care(paths)
    for report in care.finished:
        tell(("An earlier run was cut off and has been finished:", *summary(report, "")))
    for notice in (*care.notices, *care.errors):
        tell((notice,))
