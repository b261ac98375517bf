# SPDX-License-Identifier: GPL-3.0-or-later
"""A question to the person, and what they said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from gettext import gettext as _
from typing import Protocol

from ..errors import OllmSandboxError
from .shell import CannotSay, read

# The one tool whose rules are found by the words of its command.
RUN_COMMAND = "run_command"


class Answer(Enum):
    DENY_ALWAYS = "deny always"
    DENY = "deny"
    ALLOW = "allow"
    ALLOW_SESSION = "allow for this session"
    ALLOW_ALWAYS = "allow always"

    @property
    def allows(self) -> bool:
        return self in (Answer.ALLOW, Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS)


class Source(Enum):
    """Who or what answered."""

    PERSON = "person"
    SESSION = "session"
    SAVED = "saved"
    # Nobody was there to ask, or they left before they answered.
    NOBODY = "nobody"


@dataclass(frozen=True)
class Fact:
    """A line of the card, in the person's language: `in  ~/src/parser`."""

    label: str
    value: str
    # Whether the value is words of this program, and no path, host or command.
    is_said: bool = False


@dataclass(frozen=True)
class PermissionRequest:
    """All that a person is shown. Plain text, never markup; what is approved is what is done."""

    id: str
    tool: str
    # The folder the rule would belong to; empty without a project.
    project: str
    # One line, such as "Run command with network access?". In English, as it is recorded.
    question: str
    # The whole command, address or path.
    subject: str
    # What a rule is found by: the file, the host; for a command, the folder it starts in. Unique
    # where it must never be found again.
    target_path: str
    one_time_only: bool
    sandboxed: bool = True
    network: bool = False
    facts: tuple[Fact, ...] = ()
    # Sentences made from the plan: what a command can see and write, in the person's language.
    sees: tuple[str, ...] = ()
    # The question in the person's language, if that is another.
    translated: str = ""
    session_id: str = ""
    call_id: str = ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What the person can say and will be held to."""
        if self.is_once_only:
            return (Answer.DENY, Answer.ALLOW)
        if self.why_not_remembered:
            return (Answer.DENY_ALWAYS, Answer.DENY, Answer.ALLOW)
        return tuple(Answer)

    @property
    def is_once_only(self) -> bool:
        """Asked for each time, whatever was said before. A command always is beyond the wall, and
        where it is not known in which folder it starts."""
        return self.one_time_only or (
            self.tool == RUN_COMMAND
            and (self.network or not self.sandboxed or not self.target_path.startswith("/"))
        )

    @property
    def why_not_remembered(self) -> str:
        """Why a yes cannot outlast this question; empty if it can."""
        if self.is_once_only:
            return _("This is asked each time.")
        if self.tool == RUN_COMMAND and isinstance(reading := read(self.subject), CannotSay):
            # Translators: {why} is the rest of the sentence, such as "redirects output"; "this" is
            # a command.
            text = _("A yes cannot be remembered, because this {why}.")
            return text.format(why=_(reading.why))
        return ""


@dataclass(frozen=True)
class Verdict:
    request: PermissionRequest
    answer: Answer
    source: Source
    at: float

    @property
    def allowed(self) -> bool:
        return self.answer.allows


class Unanswered(OllmSandboxError):
    """An asker found that nobody is there to answer, or that they have gone."""


class Asker(Protocol):
    """Who brings a question to the person: a terminal, a window, another program.

    Several may be asked at once; the asker puts them in a row. Cancelled when nobody needs the
    answer any more: a rule answered meanwhile, or the turn was stopped. Raises Unanswered.
    """

    async def ask(self, request: PermissionRequest) -> Answer: ...


class Audit(Protocol):
    """Remembers every question and every answer."""

    def asked(self, request: PermissionRequest) -> None:
        """The person is asked now. What a rule answers is never asked."""

    def answered(self, verdict: Verdict) -> None: ...
