# SPDX-License-Identifier: GPL-3.0-or-later
"""What every tool has: a name, parameters, a permission to ask for, an outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ..errors import OllmSandboxError
from ..permission.request import PermissionRequest, Verdict
from ..project.changes.change import Report
from ..sandbox.monitor import FileEvent
from ..sandbox.plan.plan import Plan
from ..sandbox.process import Result


class ToolError(OllmSandboxError):
    """The call cannot be done; the message tells the model how to ask better."""


class Stream(Enum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Watcher(Protocol):
    """Who looks on while a call is carried out. All on the loop's own thread."""

    def asking(self, request: PermissionRequest) -> None: ...

    def answered(self, verdict: Verdict) -> None: ...

    def started(self, pid: int, plan: Plan | None) -> None:
        """The command runs; without a plan it is not sandboxed."""

    def output(self, stream: Stream, data: bytes) -> None: ...

    def changed(self, event: FileEvent) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What came of a call."""

    # For the model.
    text: str
    ok: bool
    result: Result | None = None
    report: Report | None = None
    verdict: Verdict | None = None

    @property
    def run_id(self) -> str:
        return self.report.run_id if self.report else ""


class RequestBase(ABC):
    """One call, read and found to be sound. Carried out once."""

    # What the person is asked; empty where nothing has to be asked.
    permission_question: str = ""
    permission_target_path: str = ""
    one_time_only: bool = False
    # Known once it is carried out; the one that was approved is the one that runs.
    plan: Plan | None = None
    # What a call had done by the time it was cancelled.
    partial: Outcome | None = None

    @abstractmethod
    async def execute(self, watcher: Watcher) -> Outcome:
        """Asks first where that is needed. Cancelling it ends everything it started."""

    @abstractmethod
    def describe(self) -> str:
        """The call in one line for a person: the command, the address, the file."""

    @property
    def is_independent(self) -> bool:
        """May run beside other calls of the same reply."""
        return False


class Tool(ABC):
    """A tool as the model knows it."""

    name: str

    @property
    @abstractmethod
    def description(self) -> str: ...

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, object]:
        """As JSON schema."""

    @abstractmethod
    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RequestBase:
        """Raises ToolError."""
