# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox agent` and `ollmsandbox tour`"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from ...chat.conversation import Conversation, TurnLimits
from ...chat.providers.connections_file import TOUR
from ...chat.providers.tour.sample import make_sample, unused_folder
from ...chat.sessions import SessionFactory
from ...errors import OllmSandboxError
from ...loop import new_loop
from ...paths import Paths
from ...permission.provider import NobodyAsks
from ...sandbox.profile.file import read_profile
from ...sandbox.profile.profile import DEFAULT_PROFILE
from ...sandbox.spec import Mode
from ...tools.context import ToolPreferences
from ..arguments import add_agent_arguments, find_given_project
from ..changes import finish_earlier_runs
from ..streams import print_notices
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


def agent(given: argparse.Namespace) -> int:
    try:
        return _agent(given)
    except OllmSandboxError as error:
        if given.json:
            JsonPrinter("").write({"event": "error", "text": str(error)})
        print_notices(str(error))
        return 1


def tour(given: argparse.Namespace) -> int:
    unused = unused_folder(Paths.from_environ(os.environ))
    folder = make_sample(Path(given.project) if given.project else unused)
    if not given.json:
        print_notices(f"The sample project is in {folder}.")
    words = ["Show me around.", f"--connection={TOUR.name}", f"--project={folder}"]
    words += ["--json"] * given.json + ["--yes-to-nothing"] * given.yes_to_nothing
    parser = argparse.ArgumentParser()
    add_agent_arguments(parser)
    return agent(parser.parse_args(words))


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
    asks = is_terminal and not given.json and not given.yes_to_nothing
    if not asks and not given.json and not given.yes_to_nothing:
        print_notices("Nobody can be asked here. What needs permission is denied.")
    paths = Paths.from_environ(os.environ)
    finish_earlier_runs(paths)
    project = ""
    if given.project is not None or given.session is None:
        project = find_given_project(given.project, paths)
    if given.profile is not None:
        # Report a mistake now, and not to the model at its first command.
        read_profile(given.profile, paths.profiles, paths.cache)
    printer = JsonPrinter(project) if given.json else Printer(project)
    asker: TerminalAsker | JsonClient | None = None
    typed = TypedLines()
    if isinstance(printer, Printer):
        asker = _terminal_asker(printer, typed) if asks else None
    elif given.text is not None and not given.yes_to_nothing and has_client():
        asker = JsonClient(printer.write)
    factory = SessionFactory(paths, os.environ, asker or NobodyAsks(), questions=asker)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            conversation = runner.run(_open(given, factory, project))
            if conversation.tool_context is not None:
                printer.project = conversation.tool_context.project or ""
            turns = Turns(runner, conversation)
            turns.listen(printer.hear)
            try:
                no_model = _NO_CHOICE if factory.connections.all() else _NO_MODEL
                if conversation.model is None and (text is not None or not asks):
                    raise no_model
                if text is not None and isinstance(asker, JsonClient):
                    return turns.serve(asker, text)
                if text is not None:
                    return turns.say(text)
                assert isinstance(printer, Printer)
                return Prompt(factory, turns, printer, typed, no_model=str(no_model)).go()
            finally:
                turns.close()
        finally:
            print_notices(*factory.manager.store.notices, *factory.connections.take_notices())
            factory.close()


async def _open(given: argparse.Namespace, factory: SessionFactory, project: str) -> Conversation:
    return await factory.open(
        project or None,
        session_id=_session(factory, given, project),
        connection=given.connection,
        model_name=given.model,
        preferences=ToolPreferences(
            mode=Mode(given.apply),
            profile_name=given.profile or DEFAULT_PROFILE,
            ask_every_command=given.ask_every_command,
        ),
        allow_private=given.allow_private,
        limits=TurnLimits(
            given.max_turns,
            given.max_tokens,
            None if given.max_minutes is None else given.max_minutes * 60,
        ),
    )


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
