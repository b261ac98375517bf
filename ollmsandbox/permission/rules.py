# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules: saved answers, and which requests they answer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import shell
from .request import REACH_HOST, RUN_COMMAND, Answer, PermissionRequest


@dataclass(frozen=True)
class Command:
    """A command with exactly these words, started in this folder."""

    # With every word quoted alike; as it was typed if it cannot be parsed.
    text: str
    folder: str
    # Why it cannot be parsed, so that exactly this text is meant; "" if it can.
    why_unparsed: str = ""


@dataclass(frozen=True)
class Target:
    """A file or a host."""

    name: str


What = Command | Target


@dataclass(frozen=True)
class Key:
    """The fields in which a rule and a request must agree."""

    tool: str
    # The folder, with links resolved; "" without a project.
    project: str
    what: What

    @property
    def allowed_answers(self) -> tuple[Answer, ...]:
        """The answers that can be remembered. A command that cannot be parsed can only be denied,
        and no answer about a command's host can be saved."""
        if self.tool == REACH_HOST:
            return (Answer.ALLOW_SESSION,)
        if isinstance(self.what, Command) and self.what.why_unparsed:
            return (Answer.DENY_ALWAYS,)
        return (Answer.DENY_ALWAYS, Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS)


@dataclass(frozen=True)
class Rule:
    key: Key
    # ALLOW_ALWAYS or DENY_ALWAYS.
    answer: Answer


def key_of(request: PermissionRequest) -> Key | None:
    """Return the key of the request's rules; None if no rule may apply to it."""
    if request.is_once_only or request.for_project:
        return None
    project = os.path.realpath(request.project) if request.project else ""
    if request.tool != RUN_COMMAND:
        return Key(request.tool, project, Target(request.target_path))
    return Key(request.tool, project, command(request.subject, request.target_path))


def command(text: str, folder: str) -> Command:
    try:
        return Command(shell.quote(shell.read_command_line(text)), folder)
    except shell.UnparsedCommand as error:
        return Command(text, folder, error.why)
