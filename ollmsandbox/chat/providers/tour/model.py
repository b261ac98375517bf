# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted model for the tour: it plays a short session on the sample project, which shows (and
tests) what the program does without an AI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .... import N_
from ....errors import Sentence
from ...messages import Message, Role, ToolCall, ToolSpec
from ..base import CallPiece, FinishPiece, Model, ModelInfo, Piece, TextPiece, ThinkingPiece
from . import NAME
from .sample import LEFT, MARK, RIGHT, WRONG

_THOUGHT = Sentence(N_("I am a script, so there isn't much to think about."))

_FIX = r"sed -i 's/for item in basket)/for item, number in basket.items())/; "
_FIX += r"s/sum(prices\[item\] for/sum(prices[item] * number for/' basket.py"
# What the command prints where there is no sandbox.
_WRITTEN = "It was written."
_OUTSIDE = f"echo '{LEFT}' > ~/ollm-tour.txt && echo '{_WRITTEN}'"


@dataclass(frozen=True)
class _Result:
    """The combined result of a step's calls."""

    text: str = ""
    was_denied: bool = False


@dataclass(frozen=True)
class _Step:
    # Marked for translation. Its fields depend on the result of the step before.
    says: str
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    fields: Mapping[str, Callable[[_Result], Sentence]] = field(default_factory=dict)

    def text(self, result: _Result) -> Sentence:
        fields = {name: words(result) for name, words in self.fields.items()}
        return Sentence(self.says, **fields)


def _run(command: str, *, network: bool = False) -> tuple[str, Mapping[str, object]]:
    return "run_command", {"command": command, **({"network": True} if network else {})}


_HELLO = N_(
    "Hello! I am the tour: a script, not an AI. I will show you how an agent works "
    "here.\n\nThis is a small sample project, so nothing can break. First, I will "
    "look around. The command runs in a sandbox and needs no permission: it can read "
    "files on this computer, but not your secrets, and it has no network access."
)
_HELLO_ASKED = N_(
    "Hello! I am the tour: a script, not an AI. I will show you how an agent works "
    "here.\n\nThis is a small sample project, so nothing can break. First, I will "
    "look around. No sandbox is available here, so you will be asked before each "
    "command, and before a file is read or changed."
)
_READ = N_("A small shop. I will read the code and its tests.")
_TEST = N_("Now I will run the tests.")


_FIX_TEXT = N_(
    "{found}: `total` ignores the quantity of each item. I will correct that line in "
    "`basket.py`. You will see the change below, line by line, and can undo it."
)


def _about_first_test(result: _Result) -> Sentence:
    if "FAILED" in result.text:
        return Sentence(N_("One test fails"))
    return Sentence(N_("That did not show me a failing test"))


def _test_again(result: _Result) -> Sentence:
    if result.was_denied:
        return Sentence(
            N_("You denied that, which is fine: the file is unchanged. I will run the tests again.")
        )
    return Sentence(N_("Now I will run the tests again."))


_TRY_OUTSIDE = N_(
    "This time {tests}.\n\nNow for something an agent should not do: I will try to write "
    "a file to your home folder, outside the project."
)


def _about_tests(result: _Result) -> Sentence:
    # Translators: both stand in "This time {tests}."
    return Sentence(N_("they fail, as before") if "FAILED" in result.text else N_("all tests pass"))


_ASK_NETWORK = N_(
    "{outside}\n\nNext, I will ask for network access to look up a host name. That needs "
    "your permission every time. Choose Deny or Allow Once, as you like."
)


def _about_outside(result: _Result) -> Sentence:
    if _WRITTEN in result.text:
        return Sentence(
            N_(
                "It was written, because no sandbox is available here: `ollmsandbox doctor` tells "
                "you why. You can delete `~/ollm-tour.txt`."
            )
        )
    if result.was_denied:
        return Sentence(N_("You denied it, so nothing ran."))
    return Sentence(
        N_("It failed: everything outside the project is read-only. Nothing was written.")
    )


_DELETE = N_(
    "{network}\n\nFinally, I will delete an old file. Deletions are always listed first, "
    "and the file is kept so that you can restore it."
)
_DELETE_ASKED = N_("{network}\n\nFinally, I will delete an old file. Here, you cannot undo that.")


def _about_network(result: _Result) -> Sentence:
    if result.was_denied:
        return Sentence(
            N_("You denied it, and nothing ran. That's fine. The agent carries on without it.")
        )
    if re.search(r"example\.org", result.text):
        return Sentence(N_("Thank you. With your permission, the command used the network."))
    return Sentence(N_("You allowed the command, but the network did not respond. Never mind."))


_GOODBYE = N_(
    "{last}That was all. What I did:\n\n"
    "- corrected `basket.py`, so that the tests pass\n"
    "- tried to write outside the project\n"
    "- asked for the network\n"
    "- deleted `old-notes.txt`\n\n"
    "Look at the changes: you can review and undo them, file by file or all at once. To work "
    "on your own project, connect a model and open the project."
)
_GOODBYE_ASKED = N_(
    "{last}That was all. With a sandbox, commands run without questions, cannot write outside "
    "the project, and their changes can be undone.\n\n"
    "To work on your own project, connect a model and open the project."
)


def _about_file(result: _Result) -> Sentence:
    # Translators: another sentence follows, hence the space.
    return Sentence(N_("You kept the old file. ") if result.was_denied else "")


_AFTERWARDS = N_(
    "The tour is over, and I am only a script, so I cannot answer that. Connect a model "
    "to continue, or start the tour again with a new sample project."
)


def _not_here(result: _Result) -> Sentence:
    if result.was_denied:
        return Sentence(
            N_("You did not let me look around, so the tour ends here. You can start it again.")
        )
    return Sentence(
        N_(
            "I only know the sample project, and this is another one, so I do not touch anything. "
            "Start the tour from the start page, or connect a model to work here."
        )
    )


def _steps(tools: Sequence[ToolSpec]) -> list[_Step]:
    if any(tool.name == "edit_file" for tool in tools):
        given = {"path": "basket.py", "old_text": WRONG, "new_text": RIGHT}
        fix: tuple[str, Mapping[str, object]] = ("edit_file", given)
    else:
        fix = _run(_FIX)
    tests = "python3 -B -m unittest"
    asked = not all(tool.is_sandboxed for tool in tools)
    lookup, delete = "getent hosts example.org", _run("rm old-notes.txt")
    reading = (_run("cat basket.py"), _run("cat test_basket.py prices.csv"))
    return [
        _Step(_HELLO_ASKED if asked else _HELLO, (_run("ls -l; cat README.md"),)),
        _Step(_READ, reading),
        _Step(_TEST, (_run(tests),)),
        _Step(_FIX_TEXT, (fix,), {"found": _about_first_test}),
        _Step("{text}", (_run(f"{tests} --verbose"),), {"text": _test_again}),
        _Step(_TRY_OUTSIDE, (_run(_OUTSIDE),), {"tests": _about_tests}),
        _Step(_ASK_NETWORK, (_run(lookup, network=True),), {"outside": _about_outside}),
        _Step(_DELETE_ASKED if asked else _DELETE, (delete,), {"network": _about_network}),
        _Step(_GOODBYE_ASKED if asked else _GOODBYE, fields={"last": _about_file}),
    ]


class TourServer:
    """`say` translates texts into the user's language, in the window."""

    # Seconds between two words, as if the model was thinking.
    delay = 0.02

    def __init__(self, say: Callable[[str], str] = str) -> None:
        self._say = say

    async def models(self) -> list[ModelInfo]:
        return [ModelInfo(NAME, can_call_tools=True, is_loaded=True)]

    def model(self, name: str) -> TourModel:
        return TourModel(delay=self.delay, say=self._say)


class TourModel(Model):
    """Finds its next step from the messages alone, so it continues after a restart."""

    name = NAME
    # The steps before which it stops: an idea ends with each of them.
    stops: tuple[int, ...] = (2, 5, 6, 7, 8)

    def __init__(self, *, delay: float, say: Callable[[str], str] = str) -> None:
        self._delay = delay
        self._say = say
        # Waits until the user has seen enough of an idea; it gets the number of the stop, from 1.
        self.pause: Callable[[int], Awaitable[None]] | None = None

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        number, step, result = _next_step(messages, _steps(tools))
        if self.pause is not None and number in self.stops:
            await self.pause(self.stops.index(number) + 1)
        if number == 0:
            yield ThinkingPiece(_THOUGHT.translated(self._say))
        for word in re.findall(r"\s*\S+", step.text(result).translated(self._say)):
            await asyncio.sleep(self._delay)
            yield TextPiece(word)
        for name, arguments in step.calls:
            yield CallPiece(ToolCall("", name, arguments))
        yield FinishPiece()


def _next_step(messages: Sequence[Message], steps: Sequence[_Step]) -> tuple[int, _Step, _Result]:
    """Return the number of the next step, the step, and the result of the one before."""
    for position in reversed(range(len(messages))):
        number = _which(messages[position], steps)
        if number is None:
            continue
        after = messages[position + 1 :]
        ids = {call.id for call in messages[position].calls}
        answers = [m for m in after if m.role is Role.TOOL and m.call_id in ids]
        result = _Result("\n".join(m.text for m in answers), any(m.was_denied for m in answers))
        if number == 0 and MARK not in result.text:
            return len(steps), _Step(_not_here(result)), result
        is_over = any(m.role is Role.ASSISTANT and not m.calls and not m.partial for m in after)
        if number + 2 == len(steps) and is_over:
            return len(steps), _Step(_AFTERWARDS), _Result()
        return number + 1, steps[number + 1], result
    return 0, steps[0], _Result()


def _which(message: Message, steps: Sequence[_Step]) -> int | None:
    if message.role is not Role.ASSISTANT or not message.calls:
        return None
    calls = tuple((call.name, call.arguments) for call in message.calls)
    return next((number for number, step in enumerate(steps) if step.calls == calls), None)
