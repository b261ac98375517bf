# SPDX-License-Identifier: GPL-3.0-or-later
"""A permission question, and the answer to it. `tools/questions.py` words it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ..errors import OllmSandboxError
from ..i18n import _
from .shell import UnparsedCommand, read_command_line

# The tool whose rules are found by the words of a command.
RUN_COMMAND = "run_command"
# Questions about a host that a running command tries to reach. No answer to them is ever saved.
REACH_HOST = "reach_host"


# After so many denials in a row, nothing is asked for so many seconds.
_MOST_DENIALS, _REST = 5, 600.0


class Answer(Enum):
    DENY_ALWAYS = "deny always"
    DENY = "deny"
    ALLOW = "allow"
    ALLOW_SESSION = "allow for this session"
    ALLOW_PROJECT = "allow for this project"
    ALLOW_ALWAYS = "allow always"

    @property
    def allows(self) -> bool:
        return self not in (Answer.DENY_ALWAYS, Answer.DENY)


class Source(Enum):
    """Who or what answered."""

    PERSON = "person"
    SESSION = "session"
    SAVED = "saved"
    # Nobody could be asked, or nobody answered.
    NOBODY = "nobody"


@dataclass(frozen=True)
class Fact:
    """A line of the card, in the user's language: `Folder  ~/src/parser`."""

    label: str
    value: str
    # Whether the value is our own wording, and not a path, host or command.
    is_wording: bool = False
    # Whether it stands out.
    is_emphasized: bool = False


@dataclass(frozen=True)
class PermissionRequest:
    """Everything the user is shown, as plain text. Exactly what is approved is done."""

    id: str
    tool: str
    # The folder that a rule would belong to; "" without a project.
    project: str
    # The whole question, such as "Run command with network access: npm install?". In English, as it
    # is recorded.
    question: str
    # The whole command, address or path.
    subject: str
    # What a rule is for: the file or host; for a command, the folder it starts in. A unique text
    # if no rule may apply.
    target_path: str
    one_time_only: bool
    # Whether "Allow" is stored with the project, and not as a rule.
    for_project: bool = False
    # Whether "Allow" can also be for the session, but never be saved.
    for_session: bool = False
    sandboxed: bool = True
    network: bool = False
    facts: tuple[Fact, ...] = ()
    # The plan in sentences: what a command can see and write, in the user's language.
    sees: tuple[str, ...] = ()
    # The question in the user's language. With a heading, {command} stands for the subject.
    translated: str = ""
    # The question without the subject, for a card that shows the subject below. "" if the question
    # does not contain it.
    heading: str = ""
    # Why it is asked again, in the user's language.
    notice: str = ""
    session_id: str = ""
    call_id: str = ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers that the user can choose from."""
        if self.for_project:
            return (Answer.DENY, Answer.ALLOW_PROJECT)
        if self.is_once_only:
            return (Answer.DENY, Answer.ALLOW)
        if self.for_session:
            return (Answer.DENY, Answer.ALLOW, Answer.ALLOW_SESSION)
        if self.why_not_remembered:
            return (Answer.DENY_ALWAYS, Answer.DENY, Answer.ALLOW)
        return tuple(answer for answer in Answer if answer is not Answer.ALLOW_PROJECT)

    @property
    def is_once_only(self) -> bool:
        """Whether no rule may answer or be made: always for commands with network access, without
        a sandbox, or in an unknown folder."""
        return self.one_time_only or (
            self.tool == RUN_COMMAND
            and (self.network or not self.sandboxed or not self.target_path.startswith("/"))
        )

    @property
    def why_not_remembered(self) -> str:
        """Why "Allow" cannot be saved; "" if it can."""
        if self.is_once_only:
            return _("You will be asked every time.")
        try:
            if self.tool == RUN_COMMAND:
                read_command_line(self.subject)
        except UnparsedCommand as error:
            # Translators: {why} is the rest of the sentence, such as "redirects output".
            text = _("This command cannot always be allowed, because it {why}.")
            return text.format(why=_(error.why))
        return ""


@dataclass(frozen=True)
class Verdict:
    """The answer to a request, and who or what gave it."""

    request: PermissionRequest
    answer: Answer
    source: Source
    at: float

    @property
    def allowed(self) -> bool:
        return self.answer.allows


class Unanswered(OllmSandboxError):
    """Nobody is there to answer, or they have left."""


class DenialCount:
    """Counts the denials in a row, to spare a user who denies one question after the other: whoever
    is asked again and again allows anything in the end."""

    def __init__(self) -> None:
        self._denials = 0
        self._denied_at = 0.0

    @property
    def calls_for_rest(self) -> bool:
        """Whether nothing should be asked for now."""
        return self._denials >= _MOST_DENIALS and time.monotonic() - self._denied_at < _REST

    def note(self, answer: Answer) -> None:
        """Count an answer of the user."""
        self._denials = 0 if answer.allows else self._denials + 1
        self._denied_at = time.monotonic()


class Asker(Protocol):
    """Asks the user: in a terminal, a window or another program.

    Several calls may run at once; the asker asks one question after the other. A call is cancelled
    when its answer is no longer needed. It raises Unanswered if nobody answers.
    """

    async def ask(self, request: PermissionRequest) -> Answer: ...


class Audit(Protocol):
    """Records every question and every answer."""

    def asked(self, request: PermissionRequest) -> None:
        """The user is being asked. Questions that a rule answers are not asked."""

    def answered(self, verdict: Verdict) -> None: ...
