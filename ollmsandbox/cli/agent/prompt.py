# SPDX-License-Identifier: GPL-3.0-or-later
"""The prompt of `ollmsandbox agent`, between two turns."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable

from ...chat.sessions import SessionFactory
from ...errors import OllmSandboxError
from ...paths import make_folder
from ...text.visible import visible_line
from ..commands import changes
from .keyboard import KeyboardReader, TypedLines
from .printer import Printer
from .turns import Turns

_HELP = """\
  TEXT              send a message to the model; also while it works
  !COMMAND          run a command of yours in the sandbox; the model sees its output
  /changes [RUN]    show what the last run, or RUN, changed; with --diff line by line
  /apply [RUN]      put pending or undone changes into the project
  /discard [RUN]    drop pending changes
  /undo [RUN]       undo applied changes; these three also take paths after RUN
  /retry            try the last turn again, after an error or a stop
  /model [NAME]     list the models, or use another one
  /help             show this list
  /quit             quit; so do Ctrl+D, and Ctrl+C twice
"""


class Prompt:
    def __init__(
        self,
        factory: SessionFactory,
        turns: Turns,
        printer: Printer,
        typed: TypedLines,
        *,
        no_model: str,
    ) -> None:
        """`typed` hears what the user types during a turn."""
        self._factory = factory
        self._turns = turns
        self._conversation = turns.conversation
        self._printer = printer
        self._no_model = no_model
        self._typed = typed
        typed.heard = self._hear
        # Commands that were typed during a turn.
        self._later: list[str] = []
        self._lines = KeyboardReader(make_folder(factory.paths.data) / "agent-history")
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "/help": lambda _words: print(_HELP, end=""),
            "/changes": self._changes,
            "/apply": lambda words: self._act("apply", words),
            "/discard": lambda words: self._act("discard", words),
            "/undo": lambda words: self._act("undo", words),
            "/retry": lambda _words: self._say(None),
            "/model": self._model,
        }

    def go(self) -> int:
        model = self._conversation.model
        if model is None:
            print(self._no_model, file=sys.stderr)
        else:
            name = visible_line(model.name)
            print(f"You are talking to {name}. /help lists what you can type.", file=sys.stderr)
        was_interrupted = False
        try:
            while not self._turns.leave:
                try:
                    line = self._turns.read(lambda: self._lines.read("> ")).strip()
                except EOFError:
                    print(file=sys.stderr)
                    return 0
                except KeyboardInterrupt:
                    if was_interrupted:
                        print(file=sys.stderr)
                        return 0
                    print("\nPress Ctrl+C again to quit.", file=sys.stderr)
                    was_interrupted = True
                    continue
                was_interrupted = False
                if line == "/quit":
                    return 0
                if line:
                    self._do(line)
                while self._later and not self._turns.leave:
                    self._do(self._later.pop(0))
        finally:
            self._lines.save()
        return self._turns.leave

    def _do(self, line: str) -> None:
        try:
            if line == "!":
                raise OllmSandboxError("No command was given.", "Use: !COMMAND")
            if line.startswith("!"):
                self._turns.run(lambda: self._conversation.run(line[1:].strip()))
                self._printer.print_changes()
                return
            first, *words = line.split()
            if first in self._commands:
                self._commands[first](words)
            elif first.startswith("/") and "/" not in first[1:]:
                raise OllmSandboxError(f"Unknown command {first}.", "/help lists all commands.")
            else:
                self._say(line)
        except OllmSandboxError as error:
            print(f"ollmsandbox: {error}", file=sys.stderr)

    def _say(self, text: str | None) -> None:
        """Send a message, or try the last turn again without one."""
        if self._conversation.model is None:
            raise OllmSandboxError(self._no_model)
        if self._turns.say(text, self._typed) and self._conversation.owes_reply:
            print("/retry tries this turn again.", file=sys.stderr)
        for left in self._conversation.take_queued():
            print(f"Not sent: {visible_line(left.text)}", file=sys.stderr)

    def _hear(self, line: str) -> None:
        """Send what was typed during a turn with the next step; keep commands for its end."""
        if line.startswith(("!", "/")):
            print("(runs when the model is done)", file=sys.stderr)
            self._later.append(line)
        elif self._conversation.is_in_turn:
            self._conversation.queue(line)

    @property
    def _project(self) -> str:
        tool_context = self._conversation.tool_context
        return (tool_context.project if tool_context else None) or os.getcwd()

    def _changes(self, words: list[str]) -> None:
        names = [word for word in words if word != "--diff"]
        if len(names) > 1:
            raise OllmSandboxError("/changes shows one run.", "Name one, or none for the last.")
        changes.changes(self._given(names, diff="--diff" in words))

    def _act(self, action: str, words: list[str]) -> None:
        changes.act_on_changes(
            self._given(words, action=action, path=words[1:], both=False, later=False)
        )

    def _given(self, words: list[str], **more: object) -> argparse.Namespace:
        return argparse.Namespace(
            run=words[0] if words else None,
            all=False,
            json=False,
            project=self._project,
            **more,
        )

    def _model(self, words: list[str]) -> None:
        if words:
            self._turns.run(lambda: self._use(" ".join(words)))
        else:
            self._turns.run(self._list)

    async def _models(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the connection and the name of each model; print which servers do not answer."""
        for connection in self._factory.connections.all():
            try:
                models = await self._factory.connections.server(connection).models()
            except OllmSandboxError as error:
                print(f"{connection.name}: {error.message}", file=sys.stderr)
                continue
            for model in models:
                yield connection.name, model.name

    async def _list(self) -> None:
        current = self._conversation.model
        async for connection, name in self._models():
            mark = "*" if current is not None and name == current.name else " "
            print(f"{mark} {visible_line(name)}  ({connection})")
        if not self._factory.connections.all():
            print(self._no_model, file=sys.stderr)

    async def _use(self, wanted: str) -> None:
        async for connection, name in self._models():
            if name == wanted:
                chosen = await self._factory.choose(connection, name)
                if chosen is not None:
                    self._conversation.use_model(chosen.model, connection)
                    print(f"You are now talking to {name}.", file=sys.stderr)
                return
        raise OllmSandboxError(f"There is no model {wanted}.", "/model lists all models.")
