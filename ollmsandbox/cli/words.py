# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes in words, and as JSON: what is gone or replaced comes first, and in full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from ..project.apply.recorder import Report
from ..project.changes.change import Flag, Kind, Recorded, Skipped, State, Type

_ORDER = (Kind.DELETED, Kind.REPLACED, Kind.MODIFIED, Kind.ADDED)
# Of these everything is listed, whatever the number.
_IN_FULL = (Kind.DELETED, Kind.REPLACED)
_MOST = 20
_FLAGS = {
    Flag.LATER: "acts later, outside the sandbox",
    Flag.EXECUTABLE: "can be run",
    Flag.OUTSIDE: "leads out of the project",
    Flag.STRIPPED: "its setuid or setgid bit was removed",
    Flag.HELD: "waits for your yes",
}


def plain(text: str) -> str:
    """As a terminal may show it: on one line, without any effect, and nothing left out."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else _escaped(c) for c in shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shown_path(item: Recorded | Skipped, project: str) -> str:
    root, path = (
        (item.root, item.path)
        if isinstance(item, Skipped)
        else (item.change.root, item.change.path)
    )
    return path if root == project else f"{root}/{path}"


def document(item: Recorded, project: str) -> dict[str, object]:
    change = item.change
    return {
        "path": shown_path(item, project),
        "kind": change.kind.value,
        "type": change.type.value,
        "mode": None if change.mode is None else f"{change.mode & 0o7777:04o}",
        "target": change.target,
        "flags": [flag.value for flag in change.flags],
        "state": item.state.value,
        "note": item.note,
    }


def report_document(report: Report | None, project: str) -> dict[str, object]:
    """The same keys whatever happened."""
    items = report.changes if report else ()
    return {
        "changes": [document(item, project) for item in in_order(items)],
        "conflicts": [shown_path(i, project) for i in items if i.state is State.CONFLICT],
        "skipped": [
            {"path": shown_path(item, project), "what": item.what}
            for item in (report.skipped if report else ())
        ],
    }


def in_order(items: Iterable[Recorded]) -> list[Recorded]:
    return sorted(items, key=lambda item: _ORDER.index(item.change.kind))


def listing(items: Sequence[Recorded], project: str, *, whole: bool = False) -> Iterator[str]:
    """A line for each change; of many modified or added ones, the first."""
    for kind in _ORDER:
        of_kind = [item for item in items if item.change.kind is kind]
        most = len(of_kind) if whole or kind in _IN_FULL else _MOST
        # What a person should look at twice is never among the rest.
        listed = [i for n, i in enumerate(of_kind) if n < most or i.note or marks(i)]
        for item in listed:
            yield _line(item, project)
        if len(of_kind) > len(listed):
            yield f"  {kind.value:9} and {len(of_kind) - len(listed):,} more"


def _line(item: Recorded, project: str) -> str:
    change = item.change
    name = plain(shown_path(item, project))
    if change.type is Type.FOLDER:
        name += "/"
    if change.target is not None:
        name += f" -> {plain(change.target)}"
    if change.kind is Kind.MODIFIED and change.type is Type.FOLDER:
        name += f" (mode {change.old_mode or 0:04o} to {change.mode or 0:04o})"
    if change.kind is Kind.REPLACED and change.old_type:
        name += f" (was a {change.old_type.value})"
    remarks = [*marks(item)]
    if item.state not in (State.APPLIED, State.PENDING):
        remarks.insert(0, item.state.value)
    if item.note:
        remarks.append(item.note.rstrip("."))
    return f"  {change.kind.value:9} {name}" + (f"  [{'; '.join(remarks)}]" if remarks else "")


def marks(item: Recorded) -> list[str]:
    """What a person should look at twice, in words."""
    flags = [flag for flag in item.change.flags if flag is not Flag.HELD]
    words = [_FLAGS[flag] for flag in flags]
    if item.is_held and item.state is State.PENDING:
        words.append(_FLAGS[Flag.HELD])
    return words


def summary(report: Report, project: str) -> Iterator[str]:
    """What a person reads after a run."""
    count = len(report.changes)
    if count:
        waiting = sum(item.state is State.PENDING for item in report.changes)
        what = f"{count:,} {'change' if count == 1 else 'changes'}"
        if waiting == count:
            what += ", waiting for you"
        elif waiting:
            what += f", {waiting:,} of them waiting for you"
        if all(item.state is State.DISCARDED for item in report.changes):
            what += ", not kept"
        yield f"{what} (run {report.run_id})"
        yield from listing(report.changes, project)
    for item in report.skipped:
        yield f"  left out  {plain(shown_path(item, project))}  [it is {item.what}]"
    yield from advice(report)


def advice(report: Report) -> Iterator[str]:
    """What can be done next."""
    states = {item.state for item in report.changes}
    run = report.run_id
    if State.CONFLICT in states:
        yield "Somebody else changed the same files. Yours are untouched. See both with"
        yield f"  ollmsandbox changes {run} --diff"
        yield f"and take the command's with `apply {run} PATH`, or drop it with"
        yield f"`discard {run} PATH`."
    elif State.PENDING in states:
        yield f"See them with `ollmsandbox changes {run} --diff`; then `apply {run}` or"
        yield f"`discard {run}`, also with single paths."
    failed = [item for item in report.changes if item.state is State.FAILED]
    if any(not item.is_lost for item in failed):
        yield f"What failed is kept; try again with `ollmsandbox apply {run}`."
    if any(item.is_lost for item in failed):
        yield "What is no longer kept cannot be applied. Take it off the list with"
        yield f"`ollmsandbox discard {run} PATH`."


def tell(lines: Iterable[str]) -> None:
    """To the person, beside a command's own output."""
    for number, line in enumerate(lines):
        print(f"ollmsandbox: {line}" if number == 0 else line, file=sys.stderr)


def full_paths(given: Sequence[str], project: str) -> list[str]:
    """As typed: from the current folder, or from the project if only that has it."""
    found = []
    for path in given:
        here = os.path.normpath(os.path.join(os.path.realpath(os.getcwd()), path))
        inside = here == project or here.startswith(f"{project}/")
        there = os.path.normpath(os.path.join(project, path))
        found.append(here if inside or os.path.isabs(path) else there)
    return found
