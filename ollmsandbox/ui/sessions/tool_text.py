# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts on the card of a tool call."""

from __future__ import annotations

import locale
import os
import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from ...i18n import _, localized, ngettext
from ...permission.request import Source
from ...sandbox.network.hosts import HostUse
from ...sandbox.process import Stop
from ...text.visible import visible_line
from ...tools.base import FILLED_SCREEN
from ...tools.todo import count_done
from ..terminal.usage import amount
from ..widgets.readable import ignored_files, more_characters, number
from .entries import CallEntry, Stage

# Longer than a label can be laid out in a moment.
_MOST_SHOWN = 10_000
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def title(entry: CallEntry) -> str:
    """Return the command, or a description of the call in one line."""
    if steps := entry.steps:
        done = count_done(steps)
        text = ngettext("{done} of {count} step done", "{done} of {count} steps done", len(steps))
        return text.format(done=done, count=len(steps))
    # The label is ellipsized; laying out more would only take time.
    text = visible_line(entry.description[:500])
    if entry.call.name == "ask":
        # These are not code.
        text = text.replace("`", "")
    return f"$ {text}" if entry.call.name == "run_command" else text


def bounded(text: str) -> str:
    left_out = len(text) - _MOST_SHOWN
    if left_out <= 0:
        return text
    return text[:_MOST_SHOWN] + more_characters(left_out)


def tool(entry: CallEntry) -> str:
    if entry.own:
        return _("Your command")
    return {
        "run_command": "",  # its line begins with "$"
        "edit_file": "",  # its line counts say that
        "write_file": "",
        "read_file": _("Read a file"),
        "search": _("Search"),
        "web_fetch": _("Read a web page"),
        "plan": _("Plan"),
        "ask": _("Question"),
    }.get(entry.call.name, visible_line(entry.call.name))


def mark(entry: CallEntry) -> tuple[str, str]:
    """Return an icon name, and the style class of its colour or ""."""
    if entry.stage is not Stage.DONE:
        return "content-loading-symbolic", ""
    if entry.stop is Stop.PERSON:
        return "media-playback-stop-symbolic", ""
    if is_denied(entry):
        return "action-unavailable-symbolic", ""
    if count_done(entry.steps) < len(entry.steps):
        return "view-list-symbolic", ""
    if succeeded(entry):
        return "object-select-symbolic", "success"
    # A test that fails is everyday work, not a danger.
    return "window-close-symbolic", "dim-label"


def duration(seconds: float) -> str:
    if seconds < 0.1:
        # Translators: {} is a number of milliseconds.
        return _("{} ms").format(max(1, round(seconds * 1000)))
    return clock(seconds)


def clock(seconds: float) -> str:
    """Format how long a call has been running."""
    if seconds < 60:
        return _("{} s").format(locale.format_string("%.1f", seconds))
    minutes, rest = divmod(int(seconds), 60)
    return _("{} min {} s").format(minutes, rest)


def status(entry: CallEntry) -> str:
    if entry.stage is not Stage.DONE:
        return _(entry.stage.value)
    if entry.is_interrupted:
        return _("Interrupted when the program ended")
    if entry.stop is Stop.PERSON:
        return localized(Stop.PERSON.sentence)
    if is_denied(entry):
        source = entry.record.source if entry.record is not None else None
        if source is Source.NOBODY:
            return _("No answer, did not run")
        is_saved = source is Source.SAVED
        return _("Always denied, did not run") if is_saved else _("Denied, did not run")
    if entry.stop is not None:
        return localized(entry.stop.sentence)
    if entry.record is not None and entry.record.exit_code is not None:
        return exit_words(entry.record.exit_code)
    if succeeded(entry) and entry.steps:
        return ""  # the list says what is done
    return _("Done") if succeeded(entry) else _("Failed")


def exit_words(code: int) -> str:
    if code == 0:
        return _("Succeeded")
    if code == 127:
        return _("Command not found")
    if code == 126:
        return _("Cannot be run")
    ended_by = code - 128
    if ended_by in set(signal.Signals):
        return _("Killed by {}").format(signal.Signals(ended_by).name)
    return _("Failed with status {}").format(code)


def is_denied(entry: CallEntry) -> bool:
    """Return whether the call did not run because the user or a rule denied it."""
    record = entry.record
    return record is not None and record.was_denied and record.exit_code is None


def succeeded(entry: CallEntry) -> bool:
    record = entry.record
    return record is not None and record.ok and not record.exit_code


def has_changes(entry: CallEntry) -> bool:
    """Return whether the call changed something besides files that git ignores."""
    return entry.record is not None and bool(entry.record.changes)


def printed_nothing(entry: CallEntry) -> bool:
    record = entry.record
    return record is not None and record.output_end == record.output_start


def has_output(entry: CallEntry) -> bool:
    """Return whether there is something to show of what a call printed or returned."""
    has_text = bool(entry.printed or entry.shown_text)
    return has_text and not printed_nothing(entry) and not entry.fills_screen


def remarks(entry: CallEntry) -> list[str]:
    """Return what the user should know about a finished command, besides its output."""
    record = entry.record
    if record is None:
        return []
    found = [localized(refusal) for refusal in record.refusals]
    if record.left_running:
        text = ngettext(
            "{count} process was still running and was ended.",
            "{count} processes were still running and were ended.",
            record.left_running,
        )
        found.insert(0, text.format(count=number(record.left_running)))
    if record.filled_screen:
        found.append(_(FILLED_SCREEN))
    if entry.is_interrupted and entry.run_id:
        found.append(_("What it changed before that is in the list of changes."))
    return [visible_line(text) for text in found]


def hosts_summary(uses: Sequence[HostUse]) -> str:
    """Return how many hosts a command reached, and how many were refused."""
    reached = sum(bool(use.allowed) for use in uses)
    refused = len(uses) - reached
    parts = []
    if reached:
        text = ngettext("{} host allowed", "{} hosts allowed", reached)
        parts.append(text.format(number(reached)))
    if refused:
        text = ngettext("{} host refused", "{} hosts refused", refused)
        parts.append(text.format(number(refused)))
    return ", ".join(parts)


def host_lines(uses: Sequence[HostUse], most: int) -> list[str]:
    """Return what up to `most` hosts were sent and sent back, and how many others there are."""
    # Translators: {host} is a name such as example.org; the sizes are such as "1.2 kB".
    allowed = _("{host}: {sent} sent, {received} received")
    refused = _("{host}: refused")
    lines = [
        (allowed if use.allowed else refused).format(
            host=visible_line(str(use)), sent=amount(use.sent), received=amount(use.received)
        )
        for use in uses[:most]
    ]
    left_out = len(uses) - len(lines)
    return [*lines, _("and {} more").format(number(left_out))] if left_out else lines


def live_changes(count: int, last: str, project: str | None) -> str:
    if not count:
        return ""
    shown = visible_line(os.path.relpath(last, project) if project and last else last)
    return ngettext(
        "{count} file changed, last: {last}", "{count} files changed, last: {last}", count
    ).format(count=count, last=shown)


def ignored(entry: CallEntry) -> str:
    """Return how many of the changed files git ignores, in one line."""
    count = entry.record.ignored if entry.record else 0
    return ignored_files(count) if count else ""


class SmallDiff(NamedTuple):
    """The changed lines of an edit: number, sign and text of each."""

    lines: tuple[tuple[int, str, str], ...]

    def count(self, sign: str) -> int:
        return sum(line[1] == sign for line in self.lines)


def edit_diff(entry: CallEntry) -> SmallDiff | None:
    """Return the changed lines of an edited file, from the diff in the call's result."""
    is_edit = entry.call.name in ("edit_file", "write_file")
    if not is_edit or not succeeded(entry) or not has_changes(entry):
        return None
    lines: list[tuple[int, str, str]] = []
    old = new = 0
    # A diff that was cut ends with another line, which is not counted.
    for line in entry.text.split("\n"):
        if found := _HUNK.match(line):
            old, new = int(found[1]), int(found[2])
        elif not new and not old:
            continue
        elif line.startswith("-"):
            lines.append((old, "-", line[1:]))
            old += 1
        elif line.startswith("+"):
            lines.append((new, "+", line[1:]))
            new += 1
        elif line.startswith(" "):
            old, new = old + 1, new + 1
    return SmallDiff(tuple(lines)) if lines else None
