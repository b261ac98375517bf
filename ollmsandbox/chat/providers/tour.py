# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted model that plays a small session on the sample project: all that the program does can
be seen, and tested, with no AI at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from ..messages import Message, Role, ToolCall, ToolSpec
from .base import Called, Finished, ModelInfo, Piece, Text, Thinking
from .tour_sample import MARK, RIGHT, WRONG, make_sample, unused_folder

__all__ = ["NAME", "TourModel", "TourServer", "make_sample", "unused_folder"]

NAME = "Tour (scripted, no AI)"

_FIX = r"sed -i 's/for item in basket)/for item, number in basket.items())/; "
_FIX += r"s/sum(prices\[item\] for/sum(prices[item] * number for/' basket.py"
_OUTSIDE = "echo 'The tour was here.' > ~/ollm-tour.txt && echo 'It was written.'"


@dataclass(frozen=True)
class _Step:
    # What is said, given what the step before brought.
    say: Callable[[str], str]
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()


def _run(command: str, *, network: bool = False) -> tuple[str, Mapping[str, object]]:
    return (
        "run_command",
        {"command": command, "network": True} if network else {"command": command},
    )


def _denied(result: str) -> bool:
    lower = result.lower()
    return lower.startswith("error") and ("denied" in lower or "not allowed" in lower)


def _hello(_result: str) -> str:
    return (
        "Hello! I am the tour: a script, not an AI. I show you how an agent works here.\n\n"
        "This is a small sample project, so nothing can break. First I look around. The command "
        "runs in a sandbox and needs no permission: it can read this machine, but not your "
        "secrets, and it has no network."
    )


def _read(_result: str) -> str:
    return "A small shop. I read the code and its tests; these two commands run side by side."


def _test(_result: str) -> str:
    return "Now I run the tests."


def _fix(result: str) -> str:
    found = "One test fails" if "FAILED" in result else "That did not show me a failing test"
    return (
        f"{found}: `total` forgets how many there are of each item. I correct that line in "
        "`basket.py`. You will see the change below, line by line, and can undo it."
    )


def _test_again(result: str) -> str:
    if _denied(result):
        return "You did not want that, which is fine: the file is as it was. I run the tests again."
    return "And the tests once more."


def _try_outside(result: str) -> str:
    tests = "they fail, as before" if "FAILED" in result else "all tests pass"
    return (
        f"This time {tests}.\n\nNow something an agent should not do: I try to write a file into "
        "your home folder, outside the project."
    )


def _ask_network(result: str) -> str:
    if "It was written." in result:
        outside = (
            "It was written, because there is no sandbox on this machine: `ollmsandbox doctor` "
            "says what is missing. You can delete `~/ollm-tour.txt`."
        )
    elif _denied(result):
        outside = "You said no, so nothing ran."
    else:
        outside = "Refused: outside the project everything is read-only. Nothing was written."
    return (
        f"{outside}\n\nNext I ask for the network, to look up one name. That needs your "
        "permission, every time; try Deny or Allow as you like."
    )


def _delete(result: str) -> str:
    if _denied(result):
        network = "You said no, and nothing ran. That is fine: an agent has to live with it."
    elif re.search(r"example\.org", result):
        network = "Thank you: with your permission, the command reached the network."
    else:
        network = "The command was allowed, but the network did not answer. Never mind."
    return (
        f"{network}\n\nLast, I delete an old file. Deletions are always listed first, and the file "
        "is kept so that you can have it back."
    )


def _goodbye(result: str) -> str:
    last = "You kept the old file. " if _denied(result) else ""
    return (
        f"{last}That was all. What I did:\n\n"
        "- corrected `basket.py`, so that the tests pass\n"
        "- tried to write outside the project\n"
        "- asked for the network\n"
        "- deleted `old-notes.txt`\n\n"
        "Look at the changes: each can be reviewed and undone, file by file or all at once. To "
        "work on a project of your own, connect a model and open the project."
    )


def _afterwards(_result: str) -> str:
    return (
        "The tour is over, and I am only a script, so I cannot answer that. Connect a model to "
        "go on, or begin the tour anew with a new sample project."
    )


def _not_here(result: str) -> str:
    if _denied(result):
        return "You did not let me look around, so the tour ends here. You can begin it anew."
    return (
        "I only know my way around the sample project, and this is another one, so I do not touch "
        "anything. Take the tour from the start page, or connect a model to work here."
    )


def _steps(tools: Sequence[ToolSpec]) -> list[_Step]:
    if any(tool.name == "edit_file" for tool in tools):
        given = {"path": "basket.py", "old_text": WRONG, "new_text": RIGHT}
        fix: tuple[str, Mapping[str, object]] = ("edit_file", given)
    else:
        fix = _run(_FIX)
    tests = "python3 -B -m unittest"
    return [
        _Step(_hello, (_run("ls -l; cat README.md"),)),
        _Step(_read, (_run("cat basket.py"), _run("cat test_basket.py prices.csv"))),
        _Step(_test, (_run(tests),)),
        _Step(_fix, (fix,)),
        _Step(_test_again, (_run(f"{tests} --verbose"),)),
        _Step(_try_outside, (_run(_OUTSIDE),)),
        _Step(_ask_network, (_run("getent hosts example.org", network=True),)),
        _Step(_delete, (_run("rm old-notes.txt"),)),
        _Step(_goodbye),
    ]


class TourServer:
    # Seconds between two words, as if somebody thought about them.
    delay = 0.02

    @property
    def address(self) -> str:
        return ""

    async def models(self) -> list[ModelInfo]:
        return [ModelInfo(NAME, can_call_tools=True, is_loaded=True)]

    def model(self, name: str) -> TourModel:
        return TourModel(delay=self.delay)


class TourModel:
    """Knows where it is from what was said, and from nothing else: it goes on after a restart."""

    def __init__(self, *, delay: float) -> None:
        self._delay = delay

    @property
    def name(self) -> str:
        return NAME

    async def context_length(self) -> int | None:
        return None

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        number, step, result = _next_step(messages, _steps(tools))
        if number == 0:
            yield Thinking("I am a script, so there is not much to think about.")
        for word in re.findall(r"\s*\S+", step.say(result)):
            await asyncio.sleep(self._delay)
            yield Text(word)
        used = {call.id for message in messages for call in message.calls}
        for part, (name, arguments) in enumerate(step.calls, 1):
            id_ = f"tour-{number + 1}-{part}"
            while id_ in used:
                id_ += "x"
            yield Called(ToolCall(id_, name, arguments))
        yield Finished()


def _next_step(messages: Sequence[Message], steps: Sequence[_Step]) -> tuple[int, _Step, str]:
    """With its number, and what the step before brought."""
    for position in reversed(range(len(messages))):
        number = _which(messages[position], steps)
        if number is None:
            continue
        after = messages[position + 1 :]
        ids = {call.id for call in messages[position].calls}
        result = "\n".join(m.text for m in after if m.role is Role.TOOL and m.call_id in ids)
        if number == 0 and MARK not in result:
            return len(steps), _Step(_not_here), result
        told = any(m.role is Role.ASSISTANT and not m.calls and not m.partial for m in after)
        if number + 2 == len(steps) and told:
            return len(steps), _Step(_afterwards), ""
        return number + 1, steps[number + 1], result
    return 0, steps[0], ""


def _which(message: Message, steps: Sequence[_Step]) -> int | None:
    if message.role is not Role.ASSISTANT or not message.calls:
        return None
    calls = tuple((call.name, call.arguments) for call in message.calls)
    return next((number for number, step in enumerate(steps) if step.calls == calls), None)
