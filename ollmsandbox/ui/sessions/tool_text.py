# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts on the card of a tool call."""

from __future__ import annotations

import locale
import os
import re
import signal
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gi.repository import GLib

from ...i18n import _, localized, ngettext
from ...project.change import Kind, Recorded, Report, State, Type
from ...project.short_list import GitLine, Line, count_files, short_list, split_ignored
from ...sandbox.network.hosts import HostUse
from ...sandbox.process import Stop
from ...text.visible import visible_line, visible_path
from ...tools.todo import count_done
from ..terminal.usage import amount
from ..widgets.readable import ignored_files, more_characters, number
from .entries import CallEntry, Stage

_SIGNS = {Kind.ADDED: "+", Kind.MODIFIED: "~", Kind.DELETED: "-", Kind.REPLACED: "±"}
# Longer than a label can be laid out in a moment.
_MOST_SHOWN = 10_000
# Seconds; shorter times are shown in milliseconds.
_BRIEF = 0.1
_EDITS = ("edit_file", "write_file")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WAITS = (State.PENDING, State.CONFLICT, State.FAILED)


def title(entry: CallEntry) -> str:
    """Return the command, or a description of the call in one line."""
    if steps := entry.steps:
        done = count_done(steps)
        text = ngettext("{done} of {count} step done", "{done} of {count} steps done", len(steps))
        return text.format(done=done, count=len(steps))
    # The label is ellipsized; laying out more would only take time.
    text = visible_line(entry.description[:500])
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
        "run_command": _("Command"),
        "read_file": _("Read a file"),
        "search": _("Search"),
        "edit_file": _("Edit a file"),
        "write_file": _("Write a file"),
        "web_fetch": _("Read a web page"),
        "plan": _("Plan"),
        "ask": _("Question"),
    }.get(entry.call.name, visible_line(entry.call.name))


def mark(entry: CallEntry) -> tuple[str, str]:
    """Return an icon name, and the style class of its colour or ""."""
    if entry.stage is not Stage.DONE:
        return "content-loading-symbolic", ""
    if is_stopped(entry):
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
    """Format how long a call took."""
    if seconds < _BRIEF:
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
    """Describe the state of a call."""
    if entry.stage is not Stage.DONE:
        return {
            Stage.WAITING: _("Waiting"),
            Stage.ASKING: _("Needs your answer"),
            Stage.RUNNING: _("Running"),
        }[entry.stage]
    if entry.is_interrupted:
        return _("Interrupted when the program ended")
    if is_stopped(entry):
        return localized(Stop.PERSON.sentence)
    if is_denied(entry):
        return _("Did not run") if entry.asked else _("Denied, did not run")
    if entry.stop is not None:
        return localized(entry.stop.sentence)
    result = entry.outcome.result if entry.outcome else None
    if result is not None:
        return exit_words(result.exit_code)
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


def is_stopped(entry: CallEntry) -> bool:
    """Return whether the user stopped the call, before or after it started."""
    return entry.stop is Stop.PERSON


def is_denied(entry: CallEntry) -> bool:
    if entry.verdict is not None:
        return not entry.verdict.allowed
    return entry.record is not None and entry.record.was_denied


def succeeded(entry: CallEntry) -> bool:
    if entry.outcome is not None:
        result = entry.outcome.result
        return entry.outcome.ok and (result is None or result.exit_code == 0)
    record = entry.record
    return record is not None and record.ok and not record.exit_code


def has_changes(entry: CallEntry) -> bool:
    """Return whether the call changed something besides files that git ignores."""
    if entry.report is not None:
        return bool(entry.split_changes[0])
    return entry.record is not None and bool(entry.record.changes)


def call_duration(entry: CallEntry) -> float | None:
    if entry.outcome is not None and entry.outcome.result is not None:
        return entry.outcome.result.duration
    return entry.record.duration if entry.record else None


def printed_nothing(entry: CallEntry) -> bool:
    """Return whether a command ran without any output."""
    outcome = entry.outcome
    return outcome is not None and outcome.result is not None and not entry.printed


def remarks(entry: CallEntry) -> list[str]:
    """Return what the user should know about a finished command, besides its output."""
    result = entry.outcome.result if entry.outcome else None
    if result is None:
        return []
    found = [localized(refusal) for refusal in result.refusals]
    if result.left_running:
        text = ngettext(
            "{count} process was still running and was ended.",
            "{count} processes were still running and were ended.",
            result.left_running,
        )
        found.insert(0, text.format(count=number(result.left_running)))
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
    """Return a line for each host with what was sent and received: up to `most`, and how many they
    omit."""
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
    """Describe the changes of a running command."""
    if not count:
        return ""
    shown = visible_line(os.path.relpath(last, project) if project and last else last)
    return ngettext(
        "{count} file changed, last: {last}", "{count} files changed, last: {last}", count
    ).format(count=count, last=shown)


def changed(report: Report, states: frozenset[State] | None = None) -> str:
    """Describe the changes of a finished command; `states` are their later states, if known."""
    shown, _ignored = split_ignored(report.changes)
    # A folder counts by its files, as in the list of changes.
    items = [item for item in shown if item.change.type is not Type.FOLDER] or shown
    count = len(items)
    if not count:
        return ""
    text = ngettext("{} file changed", "{} files changed", count).format(count)
    if states == frozenset({State.DISCARDED}):
        return text + _("; discarded")
    if states is not None and not states & set(_WAITS):
        return text
    now = [item.state for item in items]
    waiting, conflicts = sum(map(now.count, _WAITS)), now.count(State.CONFLICT)
    if conflicts:
        return text + ngettext(
            "; {} conflicts with your edits", "; {} conflict with your edits", conflicts
        ).format(conflicts)
    if waiting == count:
        # Some may have been applied since.
        is_begun = states is not None and bool(states - set(_WAITS))
        some = _("; some are still pending")
        return text + (some if is_begun else _("; pending your review"))
    if waiting:
        return text + ngettext(
            "; {} needs your approval", "; {} need your approval", waiting
        ).format(waiting)
    return text


def ignored(entry: CallEntry) -> str:
    """Return how many of the changed files git ignores, in one line."""
    if entry.report is None:
        count = entry.record.ignored if entry.record else 0
        return ignored_files(count) if count else ""
    shown, items = entry.split_changes
    if not items:
        return ""
    text = ignored_files(count_files(items))
    states = entry.states or {item.state for item in items}
    return text + _("; pending your review") if not shown and states <= set(_WAITS) else text


def stored_changes(entry: CallEntry) -> str:
    """Describe the changes of a stored call; their later states are in the list of changes."""
    counts = entry.record.changes if entry.record else {}
    if entry.is_interrupted and entry.run_id:
        return _("What it changed before that is in the list of changes.")
    if not counts:
        return ""
    return _("Changes: {}").format(", ".join(_counted(*each) for each in counts.items()))


def _counted(kind: Kind, count: int) -> str:
    return {
        Kind.ADDED: ngettext("{count} added", "{count} added", count),
        Kind.MODIFIED: ngettext("{count} modified", "{count} modified", count),
        Kind.DELETED: ngettext("{count} deleted", "{count} deleted", count),
        Kind.REPLACED: ngettext("{count} replaced", "{count} replaced", count),
    }[kind].format(count=number(count))


def change_lines(report: Report, most: int) -> list[str]:
    """Return a short list of the changes: up to `most` lines, and how many changes they omit."""
    short = short_list(report.changes).cut(most)
    lines = [_change_line(line) for line in short.lines]
    if short.flagged:
        # Translators: the files that follow can run code, are held for approval, or failed.
        lines += [_("Worth a second look:"), *map(_change_line, short.flagged)]
    if short.left_out:
        lines.append(_("and {} more").format(number(short.left_out)))
    return lines


def _change_line(line: Line) -> str:
    if isinstance(line, GitLine):
        sign = _SIGNS[Kind.DELETED if line.is_deleted else Kind.MODIFIED]
        name = f"git ({visible_path(line.folder)})" if line.folder else "git"
        return f"{sign} {name}: {', '.join(_git_parts(line))}"
    if isinstance(line, Recorded):
        return f"{_SIGNS[line.change.kind]} {visible_path(line.change.path)}"
    change = line.folder.change
    name = visible_path(change.path) + ("/" if change.type is Type.FOLDER else "")
    # Translators: {name} is a folder with this number of files.
    text = ngettext("{name} ({count} file)", "{name} ({count} files)", line.files)
    name = text.format(name=name, count=number(line.files)) if line.files else name
    return f"{_SIGNS[change.kind]} {name}"


def _git_parts(line: GitLine) -> Iterator[str]:
    """Yield what git wrote: the numbers of its objects and packs, and the names of other files."""
    if line.objects:
        text = ngettext("{count} object", "{count} objects", line.objects)
        yield text.format(count=number(line.objects))
    if line.packs:
        # Translators: a pack is a file in which git stores many objects.
        text = ngettext("{count} pack", "{count} packs", line.packs)
        yield text.format(count=number(line.packs))
    yield from map(visible_path, line.names)
    if line.refs:
        # Translators: a ref is a name in git, such as a branch or a tag.
        text = ngettext("{count} ref", "{count} refs", line.refs)
        yield text.format(count=number(line.refs))


class SmallDiff(NamedTuple):
    """The changed lines of an edit: number, sign and text of each."""

    lines: tuple[tuple[int, str, str], ...]

    def count(self, sign: str) -> int:
        return sum(line[1] == sign for line in self.lines)


def edit_diff(entry: CallEntry) -> SmallDiff | None:
    """Return the changed lines of an edited file, from the diff in the call's result."""
    if entry.call.name not in _EDITS or not succeeded(entry) or not has_changes(entry):
        return None
    text = entry.stored_text or (entry.outcome.text if entry.outcome else "")
    lines: list[tuple[int, str, str]] = []
    old = new = 0
    # A diff that was cut ends with another line, which is not counted.
    for line in text.split("\n"):
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


def line_counts(diff: SmallDiff) -> str:
    counts = [(diff.count("+"), "+"), (diff.count("-"), "\N{MINUS SIGN}")]
    # The sign is before the number in right-to-left languages, too.
    mark = "\N{LEFT-TO-RIGHT MARK}"
    return " ".join(f"{mark}{sign}{number(count)}" for count, sign in counts if count)


def file_markup(path: str) -> str:
    """Return the name of a file, with its folder dimmed beside it."""
    folder, name = os.path.split(path)
    shown = GLib.markup_escape_text(visible_line(name))
    beside = GLib.markup_escape_text(visible_line(f"{folder}/")) if folder else ""
    return f'{shown}   <span alpha="60%">{beside}</span>' if beside else shown


def can_undo(entry: CallEntry) -> bool:
    """Return whether the undo button is shown; it also says that the call was undone."""
    if entry.states is not None:
        return State.APPLIED in entry.states or entry.is_undone
    report = entry.report
    return report is not None and any(item.state is State.APPLIED for item in report.changes)
