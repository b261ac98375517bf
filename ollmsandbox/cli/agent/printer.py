# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints a conversation: the answer to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from typing import TextIO

from ...chat import events
from ...chat.events import ChatEvent
from ...chat.messages import Role
from ...permission.request import Source, Verdict
from ...project.change import Report
from ...sandbox.network.hosts import hosts_text
from ...text.ansi import LiveOutput, harmless
from ...text.visible import visible_line
from ...tools.base import Outcome
from ...tools.todo import NAME as PLAN
from ...tools.todo import TodoState, read_steps
from ..changes import note_report, summary
from ..streams import wants_colour
from .card import question_line

_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_MOST_SHOWN = 2000
_MARKS = {
    TodoState.PENDING.value: "[ ]",
    TodoState.DOING.value: "[>]",
    TodoState.DONE.value: "[x]",
}


class Printer:
    def __init__(self, project: str) -> None:
        self.project = project
        self._colour = wants_colour(sys.stdout, sys.stderr)
        self._is_holding = False
        self._held: list[tuple[TextIO, str]] = []
        self._held_size = 0
        self._in_line = False
        self._is_thinking = False
        self._live: dict[str, LiveOutput] = {}
        # The id of the call whose output was printed last.
        self._shown = ""
        self._reports: list[Report] = []
        # What the answers of this turn cost.
        self._cost = 0.0

    def hear(self, event: ChatEvent) -> None:
        match event:
            case events.TextGrew(text):
                self._grow(text, thinking=False)
            case events.ThinkingGrew(text):
                self._grow(text, thinking=True)
            case events.ReplyWithdrawn():
                self._print("(empty answer; asking again)")
            case events.MessageAdded(message) if message.partial:
                self._print("(interrupted)")
            case events.MessageAdded(message) if message.role is Role.SUMMARY:
                self._print("Earlier messages no longer fit. The model goes on from this summary:")
                self._print(harmless(message.text))
            case events.Retrying(wait, why):
                self._print(
                    f"{harmless(why)} Trying again in {max(1, round(wait))} s; Ctrl+C stops."
                )
            case events.TokensUsed(cost=cost) if cost is not None:
                self._cost += cost
            case events.Notice(text):
                self._print(harmless(text))
            case events.InstructionsRead(files):
                names = ", ".join(visible_line(file.path) for file in files)
                self._print(f"(the model reads the project's instructions: {names})")
            case events.QueueChanged(texts) if texts:
                self._print("(the model reads this with its next step)")
            case events.TurnEnded():
                self._turn_ended(event)
            case _:
                self._hear_of_call(event)

    def _hear_of_call(self, event: ChatEvent) -> None:
        match event:
            case events.CallBegan(call, description):
                name = _short(visible_line(f"{call.name}: {description}"))
                self._print(name, bold=True)
                self._live[call.id] = LiveOutput(name, colour=self._colour)
                self._shown = call.id
            case events.PermissionAnswered(_, verdict):
                if text := _verdict_text(verdict):
                    self._print(text)
            case events.CommandOutput(call_id, _, data):
                if live := self._live.get(call_id):
                    self._name(call_id)
                    self._out(live.feed(data))
            case events.QuestionAnswered(_, None):
                self._print("  Nobody could be asked.")
            case events.CallEnded(call, outcome):
                self._ended(call.id, outcome)
                if call.name == PLAN and outcome.ok:
                    for step in read_steps(call.arguments):
                        self._print(f"  {_MARKS[step.state]} {_short(visible_line(step.text))}")
            case events.CallSettled(_, report):
                self._print_reports([report])

    def hold(self) -> None:
        """Hold all output back while a question is on the screen."""
        self._end_line()
        self._is_holding = True

    def go_on(self) -> None:
        self._is_holding = False
        held, self._held, self._held_size = self._held, [], 0
        for stream, text in held:
            self._write(stream, text)

    def write(self, text: str) -> None:
        """Print at once, even while output is held back."""
        sys.stdout.flush()
        sys.stderr.write(text)
        sys.stderr.flush()

    def _grow(self, text: str, *, thinking: bool) -> None:
        stream = sys.stderr if thinking else sys.stdout
        shown = harmless(text)
        if thinking != self._is_thinking:
            self._end_line()
            self._is_thinking = thinking
        self._write(stream, f"{_DIM}{shown}{_RESET}" if thinking and self._colour else shown)
        self._in_line = not shown.endswith("\n")

    def _print(self, text: str, *, bold: bool = False) -> None:
        """Print a line, which must have no control characters."""
        self._end_line()
        is_bold = bold and self._colour
        self._write(sys.stderr, f"{_BOLD}{text}{_RESET}\n" if is_bold else f"{text}\n")

    def _out(self, text: str) -> None:
        if text:
            self._end_line()
            self._write(sys.stderr, text)

    def _end_line(self) -> None:
        if self._in_line:
            self._in_line = False
            self._write(sys.stdout if not self._is_thinking else sys.stderr, "\n")

    def _name(self, call_id: str) -> None:
        """Print the name of the call that the next lines belong to, if several run at once."""
        if call_id != self._shown and call_id in self._live:
            if before := self._live.get(self._shown):
                self._out(before.pause())
            self._shown = call_id
            self._print(self._live[call_id].name)

    def _ended(self, call_id: str, outcome: Outcome) -> None:
        result = outcome.result
        tail = self._live[call_id].end() if call_id in self._live else ""
        remarks = [*result.remarks] if result is not None else []
        remarks += filter(None, [hosts_text(outcome.hosts)])
        says_more = remarks or (result is not None and result.exit_code != 0)
        if tail or says_more or not outcome.ok:
            self._name(call_id)
        self._live.pop(call_id, None)
        self._out(tail)
        if result is not None and result.stop is not None:
            self._print(f"  The command did not finish. {result.stop.sentence}.")
        elif result is not None and result.exit_code != 0:
            self._print(f"  exit status {result.exit_code}")
        elif result is None and not outcome.ok:
            self._print(f"  {harmless(outcome.text[:_MOST_SHOWN])}")
        for remark in remarks:
            self._print(f"  {harmless(remark)}")
        if outcome.report is not None:
            self._reports.append(outcome.report)

    def _turn_ended(self, ended: events.TurnEnded) -> None:
        self._end_line()
        self.print_changes()
        if self._cost:
            self._print(f"Cost: {self._cost:.4f}")
            self._cost = 0.0
        if text := " ".join(part for part in (ended.end.value, ended.why) if part):
            self._print(harmless(text))

    def print_changes(self) -> None:
        """Print what calls have changed since the last time."""
        reports, self._reports = self._reports, []
        self._print_reports(reports)

    def _print_reports(self, reports: list[Report]) -> None:
        for report in reports:
            for line in summary(report, self.project):
                self._print(line)
            note_report(report, self.project)

    def _write(self, stream: TextIO, text: str) -> None:
        if self._is_holding:
            self._held_size += len(text)
            # A command may print very much.
            if self._held_size < 1 << 20:
                self._held.append((stream, text))
            return
        stream.write(text)
        stream.flush()


def _short(line: str) -> str:
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}… ({len(line):,} characters)"


def _verdict_text(verdict: Verdict) -> str:
    """Return a line about a verdict; "" if the user has just given the answer."""
    if verdict.source is Source.NOBODY:
        return f"Denied, because nobody could be asked: {question_line(verdict.request)}"
    if verdict.source is Source.PERSON:
        return ""
    rule = "answer for this session" if verdict.source is Source.SESSION else "saved answer"
    return f"{'Allowed' if verdict.allowed else 'Denied'} by your {rule}."
