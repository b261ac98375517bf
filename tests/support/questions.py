# SPDX-License-Identifier: GPL-3.0-or-later
"""Permission requests, and a scripted user who answers them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from support.timing import until

from ollmsandbox.permission.request import Answer, PermissionRequest, Verdict


def command(text: str, project: str, **options: object) -> PermissionRequest:
    return _request(
        {
            "tool": "run_command",
            "project": project,
            "question": "Run command?",
            "subject": text,
            "target_path": project,
            **options,
        }
    )


def other(tool: str, target: str, project: str, **options: object) -> PermissionRequest:
    return _request(
        {
            "tool": tool,
            "project": project,
            "question": f"{tool}?",
            "subject": target,
            "target_path": target,
            **options,
        }
    )


def _request(options: dict[str, object]) -> PermissionRequest:
    return PermissionRequest(**{"id": "q", "one_time_only": False, **options})  # type: ignore[arg-type]


@dataclass
class ScriptedUser:
    """Gives the answers in this order; leaves further questions open."""

    says: list[Answer] = field(default_factory=list)
    cards: list[tuple[PermissionRequest, asyncio.Future[Answer]]] = field(default_factory=list)
    asked: list[PermissionRequest] = field(default_factory=list)

    async def ask(self, request: PermissionRequest) -> Answer:
        self.asked.append(request)
        if self.says:
            return self.says.pop(0)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.cards.append((request, answer))
        try:
            return await answer
        finally:
            self.cards.remove((request, answer))

    async def cards_shown(self, count: int) -> None:
        await until(lambda: len(self.cards) == count)

    def answer(self, at: int, answer: Answer) -> None:
        self.cards[at][1].set_result(answer)


@dataclass
class VerdictRecorder:
    """The audit trail."""

    asked_of: list[PermissionRequest] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def asked(self, request: PermissionRequest) -> None:
        self.asked_of.append(request)

    def answered(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
