# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool plan: the model's to-do list, which the user sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .. import N_
from ..text.ansi import escape_line
from .base import Outcome, RequestBase, ToolError, Watcher
from .parameters import DeclaredTool, Parameters, parameter

NAME = "plan"

_MOST_STEPS = 50


class TodoState(Enum):
    PENDING = "pending"
    DOING = "in_progress"
    DONE = "done"


@dataclass(frozen=True)
class TodoStep:
    text: str = parameter("What to do, in a few words.", longest=1000)
    state: str = parameter(
        "How far it is.",
        default=TodoState.PENDING.value,
        choices=tuple(state.value for state in TodoState),
    )


@dataclass(frozen=True)
class TodoParameters:
    steps: tuple[TodoStep, ...] = parameter(
        "All steps in their order, also those that are done. They replace the plan before."
    )

    def __post_init__(self) -> None:
        if len(self.steps) > _MOST_STEPS:
            raise ToolError(
                N_("There are {count} steps, and {most} are allowed."),
                count=len(self.steps),
                most=_MOST_STEPS,
            )
        if not all(step.text.strip() for step in self.steps):
            raise ToolError(N_("A step has no text."))


_PARAMETERS = Parameters(NAME, TodoParameters)


def read_steps(arguments: Mapping[str, object] | str) -> tuple[TodoStep, ...]:
    """Return the steps of a call, or raise ToolError."""
    return _PARAMETERS.read(arguments).steps


def count_done(steps: Sequence[TodoStep]) -> int:
    return sum(step.state == TodoState.DONE.value for step in steps)


class TodoTool(DeclaredTool[TodoParameters]):
    name = NAME
    declared = TodoParameters
    can_write = False
    description = (
        "Set your plan: a short list of steps, which the user sees. Use it for work of three "
        "steps or more. Send it again, with all steps, whenever one begins or is done; have "
        "exactly one in progress while you work."
    )

    def request(self, given: TodoParameters, call_id: str) -> TodoRequest:
        return TodoRequest(given.steps)


@dataclass
class TodoRequest(RequestBase):
    _steps: tuple[TodoStep, ...]

    def describe(self) -> str:
        doing = [step.text for step in self._steps if step.state == TodoState.DOING.value]
        counts = f"{count_done(self._steps)}/{len(self._steps)}"
        return escape_line(" · ".join([counts, *doing[:1]]))

    async def perform(self, watcher: Watcher) -> Outcome:
        done = count_done(self._steps)
        return Outcome(f"The user sees the plan: {done} of {len(self._steps)} done.", ok=True)
