# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of changes: in a report, on record, and for the next command."""

from __future__ import annotations

from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project.change import Recorded, Report, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.review import Review
from ollmsandbox.project.state import text_versions
from ollmsandbox.text.diff import Hunk


def states(report: Report) -> dict[str, State]:
    return {item.change.path: item.state for item in report.changes}


def states_of(review: Review, run: Run) -> list[State]:
    return [item.state for item in read_changes(review.manager, run)]


def row(review: Review, run: Run) -> Recorded:
    """Return the only change of a run."""
    [item] = read_changes(review.manager, run)
    return item


def parts(review: Review, run: Run) -> tuple[Hunk, ...]:
    """Return the hunks of the only change of a run."""
    found = text_versions(review.manager, run, row(review, run))
    assert found is not None
    return found.hunks


def seen(person: Person, name: str = "file") -> str | None:
    """Return what the next command sees."""
    found = find_in_layers(person.layers(), name)
    return None if found is None else read_seen(found).decode()


def held(report: Report) -> set[str]:
    """Return the paths of held changes. All others have to be applied."""
    assert not report.errors
    for item in report.changes:
        assert item.state is (State.PENDING if item.is_held else State.APPLIED), item
    return {item.change.path for item in report.changes if item.is_held}
