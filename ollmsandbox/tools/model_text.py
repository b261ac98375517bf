# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model is told of a run: what was printed, then what changed, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..project.changes.change import Flag, Kind, Recorded, Report, State, Type
from ..sandbox.output import Capture
from ..sandbox.process import Result

# Bytes of each stream, at its beginning and at its end.
_OUTPUT = 12_000
_ORDER = (Kind.DELETED, Kind.REPLACED, Kind.MODIFIED, Kind.ADDED)
# A model has to know of these, but not of a hundred thousand.
_IN_FULL = (Kind.DELETED, Kind.REPLACED)
_MANY, _FEW = 400, 40
_STATES = {
    State.CONFLICT: "NOT applied: somebody else changed it meanwhile",
    State.FAILED: "NOT applied",
}
_FLAGS = {
    Flag.OUTSIDE: "leads out of the project",
    Flag.STRIPPED: "its setuid or setgid bit was removed",
}


def output_text(result: Result) -> str:
    """Standard output, then errors, then the status if it is not 0."""
    small = replace(result, stdout=_shortened(result.stdout), stderr=_shortened(result.stderr))
    return small.for_model() or "The command printed nothing."


def _shortened(capture: Capture) -> Capture:
    small = Capture(_OUTPUT, _OUTPUT)
    small.feed(capture.text.encode("utf-8"))
    if small.truncated:
        small.total = max(small.total, capture.total)
    return small


def changes_text(report: Report | None, project: str) -> str:
    """Counts, then paths: what is gone or replaced first. Empty if nothing changed."""
    if report is None:
        return ""
    return "\n".join(_lines(report, project))


def _lines(report: Report, project: str) -> Iterator[str]:
    items = report.changes
    # Counted in a list, which does without a call for each of a hundred thousand.
    kinds = [item.change.kind for item in items]
    counts = {kind: count for kind in _ORDER if (count := kinds.count(kind))}
    if counts:
        told = ", ".join(f"{count:,} {kind.value}" for kind, count in counts.items())
        yield f"Changes: {told}."
    for kind in counts:
        of_kind = [item for item in items if item.change.kind is kind]
        yield from _listed(of_kind, project, _MANY if kind in _IN_FULL else _FEW)
    for skip in report.skipped[:_FEW]:
        name = skip.path if skip.root == project else f"{skip.root}/{skip.path}"
        yield f"  left out {plain(name)} (it is {skip.what})"
    yield from (f"Problem: {error}" for error in report.errors)
    yield from _afterwards(items)


def _listed(items: Sequence[Recorded], project: str, most: int) -> Iterator[str]:
    """The first and the last of them, and between them those with something special."""
    half = most // 2
    left_out = special = 0
    applied = State.APPLIED
    for number, item in enumerate(items):
        is_near = number < half or number >= len(items) - half
        is_plain = item.state is applied and not item.change.flags and not item.note
        remarks = [] if is_plain else _remarks(item)
        special += bool(remarks)
        if is_near or len(items) <= most or (remarks and special <= _MANY):
            if left_out:
                yield f"  ... {left_out:,} more {item.change.kind.value} ..."
                left_out = 0
            yield _line(item, project, remarks)
        else:
            left_out += 1


def _line(item: Recorded, project: str, remarks: Sequence[str]) -> str:
    change = item.change
    name = change.path if change.root == project else f"{change.root}/{change.path}"
    name = plain(name) + ("/" if change.type is Type.FOLDER else "")
    if change.target is not None:
        name += f" -> {plain(change.target)}"
    return f"  {change.kind.value} {name}" + (f" [{'; '.join(remarks)}]" if remarks else "")


def _remarks(item: Recorded) -> list[str]:
    found = [_STATES[item.state]] if item.state in _STATES else []
    if item.state is State.PENDING and item.is_held:
        found.append("waits for the person's yes: it acts outside the sandbox")
    if item.change.flags:
        found += [_FLAGS[flag] for flag in item.change.flags if flag in _FLAGS]
    if item.note:
        found.append(plain(item.note.rstrip(".")))
    return found


def _afterwards(items: Iterable[Recorded]) -> Iterator[str]:
    changes = list(items)
    states = [item.state for item in changes]
    if State.CONFLICT in states:
        is_aside = any(item.is_aside for item in changes)
        yield (
            "What is in conflict was left as the other one made it, and your version is kept "
            "for the person to choose. Your next commands see "
            f"{'the other version' if is_aside else 'your version'}."
        )
    if State.PENDING in states:
        yield (
            "What waits is not in the project's folder yet; the person looks at it first. "
            "Your next commands see it as if it were."
        )
    if State.DISCARDED in states:
        yield "This was a dry run: nothing was kept."


def plain(text: str) -> str:
    """On one line, without any effect on a terminal, and nothing left out."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown
    )


def together(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
