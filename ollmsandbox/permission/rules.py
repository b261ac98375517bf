# SPDX-License-Identifier: GPL-3.0-or-later
"""A rule: what somebody said once and meant for the next time, too."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import shell
from .request import RUN_COMMAND, Answer, PermissionRequest


@dataclass(frozen=True)
class Command:
    """By its words, all of them and no others, in the folder where it starts."""

    words: tuple[str, ...]
    folder: str

    @property
    def text(self) -> str:
        return shell.quote(self.words)


@dataclass(frozen=True)
class Text:
    """A command that was not read, to the letter."""

    text: str
    folder: str


@dataclass(frozen=True)
class Target:
    """The file, the host."""

    name: str


What = Command | Text | Target


@dataclass(frozen=True)
class Key:
    """All that has to be the same for a rule to answer a request."""

    tool: str
    # The folder itself, links resolved: not one whose name only begins so. Empty without a project.
    project: str
    what: What

    @property
    def allowed_answers(self) -> tuple[Answer, ...]:
        """Of those that last. What was not read can be forbidden but never allowed unseen."""
        if isinstance(self.what, Text):
            return (Answer.DENY_ALWAYS,)
        return (Answer.DENY_ALWAYS, Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS)


@dataclass(frozen=True)
class Rule:
    key: Key
    # ALLOW_ALWAYS or DENY_ALWAYS.
    answer: Answer


def key_of(request: PermissionRequest) -> Key | None:
    """None where no rule may ever be looked for, nor made."""
    if request.is_once_only:
        return None
    project = os.path.realpath(request.project) if request.project else ""
    if request.tool != RUN_COMMAND:
        return Key(request.tool, project, Target(request.target_path))
    return Key(request.tool, project, command(request.subject, request.target_path))


def command(text: str, folder: str) -> Command | Text:
    reading = shell.read(text)
    if isinstance(reading, shell.Simple):
        return Command(reading.words, folder)
    return Text(text, folder)
