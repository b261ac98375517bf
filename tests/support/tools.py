# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted user, a recorder of events, and a model's tools between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.permission.provider import Provider
from ollmsandbox.permission.request import Answer, PermissionRequest, Verdict
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.sandbox.monitor import FileEvent
from ollmsandbox.sandbox.network.publish import CommandPorts
from ollmsandbox.sandbox.plan.plan import Plan
from ollmsandbox.sandbox.process import Result, Sinks
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.sandbox.unsandboxed.runner import UnsandboxedRunner
from ollmsandbox.tools.base import Outcome, RequestBase, Stream, Tool, UserQuestion
from ollmsandbox.tools.context import ToolContext
from ollmsandbox.tools.files.edit_file import EditFile
from ollmsandbox.tools.files.read_file import ReadFile
from ollmsandbox.tools.files.write_file import WriteFile
from ollmsandbox.tools.run_command import RunCommand

# The same examples every time, however slow the machine is.
FUZZED = settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Answering:
    """Give the scripted answers, and record the questions."""

    answer: Answer | Callable[[PermissionRequest], Answer] = Answer.DENY
    asked: list[PermissionRequest] = field(default_factory=list)

    async def ask(self, request: PermissionRequest) -> Answer:
        self.asked.append(request)
        return self.answer if isinstance(self.answer, Answer) else self.answer(request)


@dataclass
class Looking:
    """A watcher that records what it sees."""

    requests: list[PermissionRequest] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    starts: list[tuple[int, Plan | None]] = field(default_factory=list)
    printed: dict[Stream, bytes] = field(default_factory=lambda: dict.fromkeys(Stream, b""))
    events: list[FileEvent] = field(default_factory=list)
    questions: list[UserQuestion] = field(default_factory=list)
    replies: list[str | None] = field(default_factory=list)

    def asking(self, request: PermissionRequest) -> None:
        self.requests.append(request)

    def answered(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)

    def questioned(self, question: UserQuestion) -> None:
        self.questions.append(question)

    def replied(self, answer: str | None) -> None:
        self.replies.append(answer)

    def started(self, pid: int, plan: Plan | None, ports: CommandPorts | None = None) -> None:
        self.starts.append((pid, plan))

    def output(self, stream: Stream, data: bytes) -> None:
        self.printed[stream] += data

    def changed(self, event: FileEvent) -> None:
        self.events.append(event)


async def until(condition: Callable[[], bool], task: asyncio.Future[Outcome]) -> None:
    """Wait for a condition while the task runs; fail if the task ends before."""
    while not condition() and not task.done():  # noqa: ASYNC110 - it may be a file's being there
        await asyncio.sleep(0.01)
    assert condition()


async def yes() -> bool:
    return True


@dataclass
class Asking:
    """Prepares a runner, asks the user, and runs a command."""

    runner: UnsandboxedRunner
    ask: Callable[[], Awaitable[bool]] = yes

    async def exec(self, command: str | Sequence[str], *, sinks: Sinks | None = None) -> Result:
        with closing(self.runner):
            await self.runner.prepare()
            if await self.ask():
                self.runner.approve()
            return await self.runner.exec(command, sinks=sinks or Sinks())

    def stop(self) -> None:
        self.runner.stop()


class Agent:
    """Make calls as a model does."""

    def __init__(self, person: Person, **options: Any) -> None:
        self.person = person
        person._copy_probe()
        self.asker = Answering()
        # The machine's own proxies have nothing to do with a test.
        environ = {k: v for k, v in person.environ.items() if not k.lower().endswith("_proxy")}
        environ |= options.pop("environ", {})
        options.setdefault("project", str(person.project))
        options.setdefault("own_limits", Limits(time=60))
        self.tool_context = ToolContext(
            paths=person.paths,
            environ=environ,
            permissions=Provider(self.asker, RuleStore(person.paths), None),
            session_id="the-session",
            **options,
        )
        self.looking = Looking()

    @property
    def asked(self) -> list[PermissionRequest]:
        return self.asker.asked

    def call(self, tool: Tool, **arguments: object) -> Outcome:
        return loop.run(tool.read(arguments, "the-call").execute(self.looking))

    def stop(
        self,
        request: RequestBase,
        when: Callable[[], bool],
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Execute a request, and stop it as soon as the condition holds."""

        async def main() -> None:
            task = asyncio.ensure_future(request.execute(self.looking))
            await until(when, task)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            then()

        loop.run(main())

    def run(self, command: str, **arguments: object) -> Outcome:
        return self.call(RunCommand(self.tool_context), command=command, **arguments)

    def read(self, path: str, **arguments: object) -> Outcome:
        return self.call(ReadFile(self.tool_context), path=path, **arguments)

    def edit(self, path: str, **arguments: object) -> Outcome:
        return self.call(EditFile(self.tool_context), path=path, **arguments)

    def write(self, path: str, content: str) -> Outcome:
        return self.call(WriteFile(self.tool_context), path=path, content=content)
