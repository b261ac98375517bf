# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox agent`"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass

from ...chat.conversation import TurnLimits
from ...chat.sessions import SessionFactory
from ...errors import OllmSandboxError
from ...loop import new_loop
from ...paths import Paths
from ...permission.provider import NobodyAsks
from ...project.opening import check_links
from ...project.records.folder import Folder
from ...sandbox.plan.folders import find_project
from ...sandbox.profile.file import read_profile
from ...sandbox.profile.profile import DEFAULT_PROFILE
from ...sandbox.spec import Mode
from ..arguments import default_project
from ..changes import finish_earlier_runs, print_notice
from .asker import TerminalAsker
from .client import JsonClient, has_client
from .events import JsonPrinter
from .keyboard import TypedLines
from .printer import Printer
from .prompt import Prompt
from .turns import Turns

_NO_MODEL = OllmSandboxError(
    "No model is set up.",
    "Find one on this computer with `ollmsandbox connections find`, or add one with "
    "`ollmsandbox connections add`. `ollmsandbox tour` shows everything without a model.",
)
_NO_CHOICE = OllmSandboxError(
    "There are several connections, and none of them is the default.",
    "Choose one with `ollmsandbox connections default NAME`, or use --connection.",
)


@dataclass(frozen=True)
class OutputMode:
    as_json: bool
    # Whether the user can be asked.
    asks: bool
    # Whether another program can write answers and messages to standard input.
    is_served: bool


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
            "No text was given.",
            'Use: ollmsandbox agent "TEXT". Without TEXT it needs a terminal, and no --json.',
        )
    output = OutputMode(
        given.json,
        asks=is_terminal and not given.json and not given.yes_to_nothing,
        is_served=given.text is not None and not given.yes_to_nothing and has_client(),
    )
    if not output.asks and not given.json and not given.yes_to_nothing:
        print(
            "ollmsandbox: Nobody can be asked here. What needs permission is denied.",
            file=sys.stderr,
        )
    paths = Paths.from_environ(os.environ)
    finish_earlier_runs(paths)
    if given.project is not None or given.session is None:
        named = given.project if given.project is not None else default_project(os.environ)
        check_links(named, paths)
        project = find_project(named, paths)
    else:
        project = ""
    if given.profile is not None:
        # Report a mistake now, and not to the model at its first command.
        read_profile(given.profile, paths.profiles, paths.cache)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return _talk(given, text, output, runner, paths, project)


def _talk(
    given: argparse.Namespace,
    text: str | None,
    output: OutputMode,
    runner: asyncio.Runner,
    paths: Paths,
    project: str,
) -> int:
    printer = JsonPrinter(project) if output.as_json else Printer(project)
    asker: TerminalAsker | JsonClient | None = None
    typed = TypedLines()
    if output.asks and isinstance(printer, Printer):
        asker = _terminal_asker(printer, typed)
    elif isinstance(printer, JsonPrinter) and output.is_served:
        asker = JsonClient(printer.write)
    factory = SessionFactory(paths, os.environ, asker or NobodyAsks(), questions=asker)
    try:
        session_id = _session(factory, given, project)
        opening = factory.open(
            project or None,
            session_id=session_id,
            connection=given.connection,
            model_name=given.model,
            mode=Mode(given.apply),
            profile_name=given.profile or DEFAULT_PROFILE,
            ask_every_command=given.ask_every_command,
            allow_private=given.allow_private,
            limits=TurnLimits(
                given.max_turns,
                given.max_tokens,
                None if given.max_minutes is None else given.max_minutes * 60,
            ),
        )
        conversation = runner.run(opening)
        if conversation.tool_context is not None:
            printer.project = conversation.tool_context.project or ""
        turns = Turns(runner, conversation)
        turns.listen(printer.hear)
        meanwhile = contextlib.ExitStack()
        try:
            if printer.project:
                folder = Folder(printer.project, factory.manager)
                meanwhile.enter_context(folder.scan_meanwhile(lambda error: print_notice((error,))))
            no_model = _NO_CHOICE if factory.connections.all() else _NO_MODEL
            if conversation.model is None and (text is not None or not output.asks):
                raise no_model
            if text is not None and isinstance(asker, JsonClient):
                return turns.serve(asker, text)
            if text is not None:
                return turns.say(text)
            assert isinstance(printer, Printer)
            return Prompt(factory, turns, printer, typed, no_model=str(no_model)).go()
        finally:
            turns.close()
            meanwhile.close()
    finally:
        for notice in (*factory.manager.store.notices, *factory.connections.take_notices()):
            print(f"ollmsandbox: {notice}", file=sys.stderr)
        factory.close()


def _terminal_asker(printer: Printer, typed: TypedLines) -> TerminalAsker:
    def hold() -> None:
        typed.pause()
        printer.hold()

    def go_on() -> None:
        printer.go_on()
        typed.resume()

    return TerminalAsker(printer.write, hold, go_on)


def _session(factory: SessionFactory, given: argparse.Namespace, project: str) -> str | None:
    if given.session is not None:
        return factory.history.find(given.session).id
    if given.go_on:
        last = factory.history.sessions(project, limit=1, only_said=True)
        if not last:
            raise OllmSandboxError("This project has no sessions yet.")
        return last[0].id
    return None
