# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox changes`, `apply`, `discard`, `undo`, `history`"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator

from ..errors import OllmSandboxError
from ..paths import Paths
from ..project.abandoned import discard
from ..project.apply import Recorded, State
from ..project.models import Run
from ..project.recorder import Report
from ..project.records import read_changes
from ..project.review import Review
from ..sandbox.places import find_project
from .here import default_project
from .standard import wants_colour
from .words import advice, document, full_paths, in_order, listing, plain, report_document

_RUN_ID = re.compile(r"\d[\d-]*[0-9a-f]*\Z", re.ASCII)
_DONE = {
    "apply": ("applied", State.APPLIED),
    "discard": ("discarded", State.DISCARDED),
    "undo": ("undone", State.UNDONE),
}


def changes(given: argparse.Namespace) -> int:
    from . import diff

    _check(given)
    with _open() as review:
        runs = _runs(review, given)
        if not runs and given.all:
            print(json.dumps([]) if given.json else "Nothing waits for you.")
            return 0
        if not runs:
            return _no_run(as_json=given.json)
        documents = []
        for run in runs:
            items = read_changes(review.manager, run)
            project = run.project.path
            if given.json:
                documents.append({**_about(run), "changes": _documents(items, project)})
            elif given.diff:
                for line in diff.lines(items, review, run, colour=wants_colour(sys.stdout)):
                    sys.stdout.write(line)
            else:
                print(f"{plain(run.command)}  (run {run.id}, {_when(run.started_at)})")
                for line in listing(in_order(items), project, whole=True):
                    print(line)
                for line in advice(Report(run.id, tuple(items))):
                    print(line)
        if given.json:
            print(json.dumps(documents if given.all else documents[0]))
    return 0


def act(given: argparse.Namespace) -> int:
    """`apply`, `discard` or `undo`: of a run, or of everything that waits."""
    _check(given)
    if given.action == "discard" and given.run and (project := _discard_gone(given)):
        told = report_document(Report(given.run), project)
        print(json.dumps(told) if given.json else "What the run wrote is discarded.")
        return 0
    with _open() as review:
        runs = _runs(review, given)
        if not runs and not given.all:
            return _no_run(as_json=given.json)
        project = runs[0].project.path if runs else _project(given)
        chosen = full_paths(given.path, project)
        done = [item for report in _reports(review, given, runs, chosen) for item in report.changes]
        word, wanted = _DONE[given.action]
        # A deletion that no longer waits, since what is in there was kept, is not missed.
        missed = [item for item in done if item.state not in (wanted, State.DISCARDED)]
        # Without being named, what is in conflict was not even tried.
        conflicts = given.action == "apply" and not chosen and _conflicts(review, runs)
        if given.json:
            about = {} if given.all else _about(runs[0])
            print(json.dumps({**about, **report_document(Report("", tuple(done)), project)}))
        else:
            count = sum(item.state is wanted for item in done)
            print(f"{count:,} {'change' if count == 1 else 'changes'} {word}.")
            for line in listing(in_order(missed), project, whole=True):
                print(line)
            for report in conflicts or ():
                for line in advice(report):
                    print(line)
        return 1 if missed or conflicts else 0


def _discard_gone(given: argparse.Namespace) -> str:
    """What was not finished and cannot be, before that is told once more."""
    return discard(Paths.from_environ(os.environ), given.run, whole=not given.path)


def _reports(
    review: Review, given: argparse.Namespace, runs: list[Run], chosen: list[str]
) -> list[Report]:
    if given.all and runs:
        does_all = review.apply_all if given.action == "apply" else review.discard_all
        return does_all(runs[0].project)
    does = {"apply": review.apply, "discard": review.discard, "undo": review.undo}[given.action]
    return [does(run, chosen) for run in runs]


def _conflicts(review: Review, runs: list[Run]) -> list[Report]:
    found = []
    for run in runs:
        items = [i for i in read_changes(review.manager, run) if i.state is State.CONFLICT]
        if items:
            found.append(Report(run.id, tuple(items)))
    return found


def history(given: argparse.Namespace) -> int:
    with _open() as review:
        manager = review.manager
        project = manager.find_project(_project(given)) if given.project or not given.all else None
        if project is None and not given.all:
            runs: list[Run] = []
        else:
            runs = manager.runs(project, limit=given.limit)
        if given.json:
            print(json.dumps([{**_about(run), **_counts(review, run)} for run in runs]))
            return 0
        for run in runs:
            counts = ", ".join(f"{count:,} {state}" for state, count in _counts_of(review, run))
            command = plain(run.command)
            print(f"{run.id}  {_when(run.started_at)}  {counts}")
            print(f"    {command if len(command) <= 100 else command[:99] + '…'}")
        if not runs:
            print("No command has changed anything yet.")
    return 0


class _open:
    """What was cut off before is finished first."""

    def __enter__(self) -> Review:
        from ..project.care import take_care

        paths = Paths.from_environ(os.environ)
        care = take_care(paths)
        for notice in care.notices:
            print(f"ollmsandbox: {notice}", file=sys.stderr)
        self._errors = care.errors
        self._review = Review(paths)
        return self._review

    def __exit__(self, _kind: object, raised: BaseException | None, _where: object) -> None:
        # What ended all is told by who catches it; once is enough.
        errors = [error for error in self._errors if error != str(raised)]
        for told in (*errors, *self._review.manager.notices):
            print(f"ollmsandbox: {told}", file=sys.stderr)
        self._review.close()


def _project(given: argparse.Namespace) -> str:
    named = getattr(given, "project", None) or default_project(os.environ)
    return find_project(named, Paths.from_environ(os.environ))


def _check(given: argparse.Namespace) -> None:
    if given.all and given.run is not None:
        raise OllmSandboxError("There is a run and --all.", "Use one of them.")


def _run(review: Review, given: argparse.Namespace) -> Run | None:
    """The one that is named; else the last one of this project."""
    if given.run is not None and _RUN_ID.match(given.run):
        return review.manager.run(given.run)
    project = review.manager.find_project(_project(given))
    last = review.manager.last_run(project) if project else None
    if given.run is not None:
        # An empty one comes from a script whose variable is empty. It is not the last one.
        remedy = "`ollmsandbox history --all` shows those there are."
        if last is not None and given.run and hasattr(given, "path"):
            remedy = f"Name the run first: {last.id} {plain(given.run)}"
        raise OllmSandboxError(f"{plain(given.run) or repr('')} is not the id of a run.", remedy)
    return last


def _runs(review: Review, given: argparse.Namespace) -> list[Run]:
    """With --all those of which something waits."""
    if given.all:
        project = review.manager.find_project(_project(given))
        return review.waiting(project) if project else []
    run = _run(review, given)
    return [run] if run else []


def _no_run(*, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"run_id": None, "changes": []}))
        return 0
    raise OllmSandboxError(
        "No command has changed anything in this project yet.",
        "Go to the project, or see `ollmsandbox history --all`.",
    )


def _about(run: Run) -> dict[str, object]:
    return {
        "run_id": run.id,
        "project": run.project.path,
        "command": run.command,
        "apply": run.mode,
        "started": run.started_at,
        "exit_code": run.exit_code,
    }


def _documents(items: list[Recorded], project: str) -> list[dict[str, object]]:
    return [document(item, project) for item in in_order(items)]


def _counts_of(review: Review, run: Run) -> Iterator[tuple[str, int]]:
    counts = review.manager.count_states(run)
    for state in State:
        if counts.get(state.value):
            yield state.value, counts[state.value]


def _counts(review: Review, run: Run) -> dict[str, object]:
    return {"states": dict(_counts_of(review, run))}


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
