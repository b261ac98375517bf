# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a run as text for the model: the output, then the changes, shortened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..project import short_list
from ..project.change import Flag, Recorded, Report, State
from ..sandbox.output import Capture
from ..sandbox.process import Result
from ..text.ansi import escape_line

# Bytes to keep of each stream, at its beginning and at its end.
_OUTPUT = 12_000
# The earlier states of a progress bar.
_DRAWN_OVER = re.compile(r"^[^\n]*\r(?!\n)", re.MULTILINE)
_STATES = {
    State.CONFLICT: "NOT applied: someone else has changed it, too",
    State.FAILED: "NOT applied",
}


_RISKY = frozenset((Flag.LATER, Flag.OPENING, Flag.TOOL, Flag.BUILD))


def output_text(result: Result) -> tuple[str, int]:
    """Return standard output, standard error, and the exit status if it is not 0; and where in this
    text the output ends."""
    small = result._replace(stdout=_shortened(result.stdout), stderr=_shortened(result.stderr))
    return small.for_model() or "The command printed nothing.", len(small.printed())


def _shortened(capture: Capture) -> Capture:
    small = Capture(_OUTPUT, _OUTPUT)
    small.feed(_DRAWN_OVER.sub("", capture.text).encode("utf-8"))
    if small.truncated:
        small.total = max(small.total, capture.total)
    return small


def changes_text(report: Report | None, project: str) -> str:
    """Return the number of changes, then their paths; "" if nothing changed."""
    if report is None:
        return ""
    return "\n".join(_lines(report, project))


def _lines(report: Report, project: str) -> Iterator[str]:
    items = report.changes
    short = short_list.short_list(items)
    counts = short_list.count_kinds(short_list.split_ignored(items)[0])
    if counts:
        totals = ", ".join(f"{count:,} {kind.value}" for kind, count in counts.items())
        yield f"Changes: {totals}."
        yield from short_list.short_lines(short, project, _remarks)
    elif short.ignored:
        yield f"Changes: {short_list.ignored_text(short.ignored)}."
    yield from short_list.skipped_lines(report, project)
    if short.left_out:
        more = short_list.counted(short.left_out, "more change")
        yield f"{more}: the user sees them all with `ollmsandbox changes {report.run_id}`."
    yield from (f"Problem: {error}" for error in report.errors)
    yield from _explanations(items)


def _remarks(item: Recorded) -> list[str]:
    found = [_STATES[item.state]] if item.state in _STATES else []
    if item.state is State.PENDING and item.is_held:
        is_risky = not _RISKY.isdisjoint(item.change.flags)
        why = "" if is_risky else ": the command deleted too much"
        found.append(f"needs the user's approval{why}")
    found += [short_list.FLAG_LABELS[flag] for flag in item.change.flags if flag is not Flag.HELD]
    if item.note:
        found.append(escape_line(item.note.sentence.rstrip(".")))
    return found


def _explanations(items: Iterable[Recorded]) -> Iterator[str]:
    changes = list(items)
    states = [item.state for item in changes]
    if State.CONFLICT in states:
        yield (
            "Files in conflict were left as the other side made them, and your version is kept "
            "for the user to choose. Your next commands see your version."
        )
    if State.PENDING in states:
        yield (
            "Pending changes are not in the project's folder yet: the user reviews them first. "
            "Your next commands see them as if they were."
        )
    if State.DISCARDED in states:
        yield "This was a dry run: nothing was kept."


def together(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
