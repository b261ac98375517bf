# SPDX-License-Identifier: GPL-3.0-or-later
"""Base classes of the tools: a tool, one call of it, and its outcome."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from .. import N_
from ..errors import OllmSandboxError, Sentence, WorkingDirError, in_words

if TYPE_CHECKING:
    from ..permission.request import PermissionRequest, Verdict
    from ..project.change import Report
    from ..sandbox.monitor import FileEvent
    from ..sandbox.network.hosts import HostUse
    from ..sandbox.network.publish import CommandPorts
    from ..sandbox.plan.plan import Plan
    from ..sandbox.process import Result, Stop
    from ..sandbox.terminal import CommandTerminal


class ToolError(OllmSandboxError):
    """The call is wrong or impossible. The message tells the model what to do instead."""


class Stream(Enum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True)
class UserQuestion:
    """A question of the model to the user. The answer is text, and grants nothing."""

    id: str
    text: str
    # What the user can choose from; any other answer can be typed.
    choices: tuple[str, ...] = ()
    session_id: str = ""
    call_id: str = ""


class Watcher(Protocol):
    """Hears what happens during a call, on the loop's own thread."""

    def asking(self, request: PermissionRequest) -> None: ...

    def answered(self, verdict: Verdict) -> None: ...

    def questioned(self, question: UserQuestion) -> None: ...

    def replied(self, answer: str | None) -> None:
        """The user answered the question; None if nobody did."""

    def started(self, pid: int, plan: Plan | None, ports: CommandPorts | None = None) -> None:
        """The command is running; it is not sandboxed if `plan` is None. The user can have `ports`
        of it published."""

    def output(self, stream: Stream, data: bytes) -> None: ...

    def changed(self, event: FileEvent) -> None: ...


# Bytes. Servers refuse larger pictures.
LARGEST_PICTURE = 3 << 20


@dataclass(frozen=True)
class Picture:
    """A picture for the model, as it is in its file."""

    media_type: str
    data: bytes
    # Of one that the user attached.
    name: str = ""

    @property
    def in_base64(self) -> str:
        return base64.b64encode(self.data).decode("ascii")


FILLED_SCREEN = N_("The program used the whole screen. What it showed there is not kept.")


@dataclass(frozen=True)
class Outcome:
    """The result of a call."""

    # The text for the model.
    text: str
    ok: bool
    result: Result | None = None
    report: Report | None = None
    verdict: Verdict | None = None
    # Who or what stopped the call from outside.
    cancelled: Stop | None = None
    # Pictures that the model sees beside the text.
    pictures: tuple[Picture, ...] = ()
    # The hosts that a command tried to reach.
    hosts: tuple[HostUse, ...] = ()
    # Where the output of a command ends in the text; None for other tools.
    output_end: int | None = None
    # The user's answer to a question of the model.
    reply: str | None = None
    # Whether a command drew on the whole screen of its terminal, which the text does not contain.
    filled_screen: bool = False

    @classmethod
    def failed(
        cls, why: str | Exception, *, report: Report | None = None, verdict: Verdict | None = None
    ) -> Outcome:
        """Return the outcome of a call that failed. The text for the model says that `why` is an
        error."""
        what = in_words(why) if isinstance(why, Exception) else why
        # The words of this one are prescribed, and say so already.
        is_marked = isinstance(why, WorkingDirError)
        text = what if is_marked else Sentence(N_("ERROR: {what}"), what=what)
        return cls(text, ok=False, report=report, verdict=verdict)

    @property
    def stop(self) -> Stop | None:
        """Why the call, or its command, was ended early."""
        return self.cancelled or (self.result.stop if self.result else None)

    @property
    def was_denied(self) -> bool:
        return self.verdict is not None and not self.verdict.allowed

    @property
    def run_id(self) -> str:
        return self.report.run_id if self.report else ""


class RequestBase(ABC):
    """One call with valid arguments. It can be executed once."""

    # The last answer that the call depended on.
    verdict: Verdict | None = None
    # The outcome of a cancelled call so far.
    partial: Outcome | None = None
    # The rows and columns of a terminal that the command gets; None without one.
    terminal_size: tuple[int, int] | None = None
    # That terminal, while the command runs.
    terminal: CommandTerminal | None = None

    async def execute(self, watcher: Watcher) -> Outcome:
        """Execute the call, asking for permission first. Cancelling stops all its processes."""
        try:
            return await self.perform(watcher)
        except (OllmSandboxError, OSError) as error:
            return Outcome.failed(error, verdict=self.verdict)

    @abstractmethod
    async def perform(self, watcher: Watcher) -> Outcome:
        """Do what `execute` says. An error is the outcome of the call."""

    @abstractmethod
    def describe(self) -> str:
        """Return the call in one line for the user: the command, the address or the file."""


class Tool(ABC):
    """A tool as the model knows it."""

    name: str
    # Calls that can write run one after the other; neighbours that cannot, concurrently.
    can_write = True

    @property
    @abstractmethod
    def description(self) -> str: ...

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, object]:
        """The parameters as a JSON schema."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether calls run in a sandbox; without one, each call is asked about."""
        return True

    @abstractmethod
    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RequestBase:
        """Return the call for these arguments, or raise an error."""
