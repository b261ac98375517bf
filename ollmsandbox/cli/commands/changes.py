# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox changes`, `apply`, `discard`, `undo`, `history`"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager

from ...database.tables import Run
from ...engine.restore import changes_to_restore, runs_since, undo_runs
from ...engine.run import finish_interrupted_runs
from ...errors import OllmSandboxError
from ...paths import Paths, is_missing
from ...project.change import PENDING_STATES, Recorded, Report, State
from ...project.index import count_states, read_changes
from ...project.jobs import unfinished
from ...project.missing import discard_interrupted
from ...project.review import Review
from ...project.run import is_part, read_run
from ...project.short_list import (
    count_files,
    counted,
    ignored_text,
    is_flagged,
    split_ignored,
)
from ...project.state import read_current
from ...sandbox.network.hosts import hosts_text
from ...text.ansi import escape_line
from .. import changes as texts
from ..arguments import default_project, find_given_project
from ..streams import print_notices, wants_colour
from .playground import confirmed

_RUN_ID = re.compile(r"\d[\d-]*[0-9a-f]*\Z", re.ASCII)
_DONE = {
    "apply": State.APPLIED,
    "discard": State.DISCARDED,
    "undo": State.UNDONE,
}


def changes(given: argparse.Namespace) -> int:
    _check(given)
    with _open() as review:
        runs = _runs(review, given)
        if not runs and given.all:
            print(json.dumps([]) if given.json else "There are no pending changes.")
            return 0
        if not runs:
            return _no_run(review, given)
        documents = []
        for run in runs:
            items = read_current(review.manager, run)
            project = run.project.path
            if given.json:
                documents.append(_document([Report(run.id, tuple(items))], run, project))
                if given.diff:
                    lines = texts.diff_lines(items, review, run, colour=False)
                    documents[-1]["diff"] = "".join(lines)
            elif given.diff:
                for line in texts.diff_lines(items, review, run, colour=wants_colour(sys.stdout)):
                    sys.stdout.write(line)
            else:
                when = _when(run.started_at)
                print(f"{escape_line(run.command)}  (run {run.id}, {when}{_where(run)})")
                for line in texts.listing(items, project) if items else ["  no changes"]:
                    print(line)
                if reached := hosts_text(read_run(review.manager.paths, run.id).hosts):
                    print(f"  {reached}")
                for line in texts.advice(Report(run.id, tuple(items))):
                    print(line)
        if given.json:
            print(json.dumps(documents if given.all else documents[0]))
        _note_newest(runs)
    return 0


def act_on_changes(given: argparse.Namespace) -> int:
    """Run `apply`, `discard` or `undo` for one run, or for all pending changes."""
    _check(given)
    if given.action == "discard" and given.run:
        paths, is_whole = Paths.from_environ(os.environ), not given.path
        # First: finishing interrupted runs would report one whose folder is missing once more.
        if project := discard_interrupted(paths, given.run, whole=is_whole):
            found = {**_document([], None, project), "run_id": given.run}
            print(json.dumps(found) if given.json else "The run's changes are discarded.")
            return 0
    with _open() as review:
        if getattr(given, "since", None) is not None:
            return _undo_since(review, given)
        runs = _runs(review, given)
        if not runs and not given.all:
            return _no_run(review, given)
        project = runs[0].project.path if runs else _project(given)
        chosen = texts.full_paths(given.path, project)
        if runs and given.run is None and not given.all:
            _name_the_run(review, given, runs[0])
        if not _may_go_on(review, given, runs, chosen):
            return 1
        with _reporting_interruption():
            reports = _reports(review, given, runs, chosen)
        _note_newest(runs)
        reports = [one for report in reports for one in (*report.along, report)]
        done = [item for report in reports for item in report.changes]
        errors = [error for report in reports for error in report.errors]
        # A deletion may be discarded instead, because something in the folder was kept.
        missed = [item for item in done if item.state not in (_DONE[given.action], State.DISCARDED)]
        # Discarding leaves hunks in the project that were applied before.
        parts = [item for item in missed if given.action == "discard" and is_part(item)]
        missed = [item for item in missed if item not in parts]
        left: list[Report] = []
        if given.action == "apply":
            # Conflicts are only applied if the user names their paths.
            states = (State.FAILED,) if chosen else (State.FAILED, State.CONFLICT)
            left = [report for run in runs if (report := _left(review, run, states)).changes]
        if given.json:
            print(json.dumps(_document(reports, None if given.all else runs[0], project)))
        else:
            _print_done(given.action, done, parts, missed, project)
            if not left and texts.may_overwrite(missed):
                _explain_conflicts(review, given, runs[0], missed)
            if not done and not given.all:
                _explain_nothing_done(review, given, runs[0])
            for report in left:
                for line in texts.advice(report):
                    print(line)
        print_notices(*errors)
        return 1 if missed or left or errors else 0


def _explain_conflicts(
    review: Review, given: argparse.Namespace, run: Run, missed: list[Recorded]
) -> None:
    print("These files have changed since and are left as they are. To overwrite them:")
    print(f"  ollmsandbox {given.action} {run.id} PATH")
    has_lines = any(one.state is State.CONFLICT for one in missed if one.change.is_edit)
    if given.action == "apply" and not given.both and has_lines:
        print("To keep both versions of the lines, add --both.")
    if given.action == "undo" and review.later_changes(run, missed):
        print("Later runs changed them, too. To undo that as well, add --later.")


def _undo_since(review: Review, given: argparse.Namespace) -> int:
    """Undo a run and all later ones in its project, after listing what that changes."""
    first = review.manager.run(given.since)
    project = first.project.path
    runs = runs_since(review.manager, project, first.started_at)
    found = changes_to_restore(review.manager, runs)
    if not given.json:
        lines = ["This takes back:"]
        for report in found:
            lines.append(escape_line(review.manager.run(report.run_id).command))
            lines += texts.listing(report.changes, project)
        texts.print_notice(lines if found else ())
        if found and not confirmed("Continue?"):
            return 1
    with _reporting_interruption():
        reports = undo_runs(review, runs)
    _note_newest(runs)
    done = [item for report in reports for item in report.changes]
    missed = [item for item in done if item.state not in (State.UNDONE, State.DISCARDED)]
    if given.json:
        print(json.dumps(_document(reports, first, project)))
        return 1 if missed else 0
    if any(item.state is State.DISCARDED for item in done):
        _print_done("discard", done, [], [], project)
    _print_done("undo", done, [], missed, project)
    if texts.may_overwrite(missed):
        print("These files have changed since and are left as they are. To overwrite them:")
    for report in reports:
        if texts.may_overwrite(report.changes):
            print(f"  ollmsandbox undo {report.run_id} PATH")
    return 1 if missed else 0


def _print_done(
    action: str,
    done: list[Recorded],
    parts: list[Recorded],
    missed: list[Recorded],
    project: str,
) -> None:
    wanted = _DONE[action]
    shown, ignored = split_ignored([item for item in done if item.state is wanted])
    total = len(shown) + len(parts)
    if total or not ignored:
        print(f"{counted(total, 'change')} {wanted.value}.")
    if ignored:
        print(f"{ignored_text(count_files(ignored))} {wanted.value}.")
    if parts:
        print("The parts that were applied before stay in these files:")
    for line in texts.listing(parts, project):
        print(line)
    for line in texts.listing(missed, project):
        print(line)


def _note_newest(runs: list[Run]) -> None:
    """Remember that the user has seen these runs."""
    newest = {run.project.path: run.id for run in sorted(runs, key=lambda run: run.started_at)}
    for project, run_id in newest.items():
        texts.note_shown(project, run_id)


def _name_the_run(review: Review, given: argparse.Namespace, run: Run) -> None:
    """Say which run is meant, and what in it needs a second look. Raise if it is not the one that
    the user saw last: another program may have run a command since."""
    if not texts.is_shown(run.project.path, run.id):
        raise OllmSandboxError(
            f"The last run, {run.id}, is not the one that you looked at last.",
            f"See `ollmsandbox changes`, or name the run: `{given.action} {run.id}`.",
        )
    if given.json:
        return
    marked = filter(is_flagged, read_current(review.manager, run))
    lines = [f"{escape_line(run.command)}  (run {run.id}, {_when(run.started_at)})"]
    texts.print_notice(
        [*lines, *(texts.listing(marked, run.project.path) if given.action == "apply" else ())]
    )


def _may_go_on(
    review: Review, given: argparse.Namespace, runs: list[Run], chosen: list[str]
) -> bool:
    """Show which changes of other runs are affected, too; on a terminal, ask whether to go on."""
    if given.all or not runs or given.action == "undo" or getattr(given, "both", False):
        return True
    run = runs[0]
    what, reports = "discards changes of later runs", review.also_discarded
    if given.action == "apply":
        what, reports = "applies changes of earlier runs", review.also_applied
    lines = []
    for report in reports(run, chosen):
        command = escape_line(review.manager.run(report.run_id).command)
        lines.append(f"{command}  ({report.run_id})")
        lines += texts.listing(report.changes, run.project.path)
    lines = [f"This also {what} to the same files:", *lines] if lines else []
    texts.print_notice(lines)
    return not lines or given.json or confirmed("Continue?")


@contextmanager
def _reporting_interruption() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if unfinished(Paths.from_environ(os.environ)):
            print_notices("Interrupted. The next ollmsandbox command finishes it.")
        raise


def _explain_nothing_done(review: Review, given: argparse.Namespace, run: Run) -> None:
    counts = dict(_counts_of(read_current(review.manager, run)))
    if given.action == "undo" and counts.keys() == {State.UNDONE.value}:
        print(f"Run {run.id} is already undone. `ollmsandbox history` lists earlier runs.")
    if given.action == "undo" and counts.keys() & {state.value for state in PENDING_STATES}:
        print("Its pending changes are not in the project yet. To drop them:")
        print(f"  ollmsandbox discard {run.id}")
    others = [other for other in review.waiting(run.project) if other.id != run.id]
    if given.action != "undo" and given.run is None and others:
        number = f"{len(others):,} earlier {'run has' if len(others) == 1 else 'runs have'}"
        print(
            f"{number} pending changes: see `ollmsandbox changes --all`, then "
            f"`{given.action} --all`."
        )


def _reports(
    review: Review, given: argparse.Namespace, runs: list[Run], chosen: list[str]
) -> list[Report]:
    if given.action == "apply" and given.both:
        return [review.keep_both(run, chosen) for run in runs]
    if given.all and runs:
        does_all = review.apply_all if given.action == "apply" else review.discard_all
        return does_all(runs[0].project)
    if given.action == "undo":
        return [review.undo(run, chosen, with_later=given.later) for run in runs]
    does = review.apply if given.action == "apply" else review.discard
    return [does(run, chosen) for run in runs]


def _left(review: Review, run: Run, states: Collection[State]) -> Report:
    """Return the changes of a run that are in one of these states."""
    items = read_changes(review.manager, run)
    return Report(run.id, tuple(item for item in items if item.state in states))


def history(given: argparse.Namespace) -> int:
    with _open() as review:
        manager = review.manager
        project = manager.find_project(_project(given)) if given.project or not given.all else None
        if project is None and not given.all:
            runs: list[Run] = []
        else:
            runs = manager.runs(project, limit=given.limit)
        changed = count_states(manager, [run.id for run in runs])
        _note_newest([run for run in runs if changed[run.id]])
        if given.json:
            print(json.dumps([_history_document(review, run) for run in runs]))
            return 0
        for run in runs:
            items = read_current(review.manager, run)
            shown, ignored = split_ignored(items)
            counts = ", ".join(f"{number:,} {state}" for state, number in _counts_of(shown))
            if ignored:
                counts += f"{', ' if counts else ''}{texts.ignored_line(ignored)}"
            counts = counts if items else "no changes"
            command = escape_line(run.command)
            where = f"  {escape_line(run.project.path)}" if given.all else ""
            print(f"{run.id}  {_when(run.started_at)}  {counts}{where}")
            print(f"    {command if len(command) <= 100 else command[:99] + '…'}")
            if reached := hosts_text(read_run(manager.paths, run.id).hosts):
                print(f"    {reached}")
        if not runs:
            print("No command has changed anything yet.")
            for line in _gone(review):
                print(line)
    return 0


@contextmanager
def _open() -> Iterator[Review]:
    """Open a review after finishing interrupted runs; print errors and notices at the end."""
    paths = Paths.from_environ(os.environ)
    # Even if nothing seems to be interrupted: only opening the database shows that it is damaged,
    # and then pending changes have to be listed again.
    recovered = finish_interrupted_runs(paths, clean_up=True, always=True)
    assert recovered is not None
    with closing(Review(paths)) as review:
        for report in recovered.finished:
            project = review.manager.run(report.run_id).project.path
            texts.note_report(report, project)
            texts.print_notice((texts.FINISHED_NOW, *texts.summary(report, project)))
        print_notices(*recovered.notices)
        try:
            yield review
        finally:
            print_notices(*recovered.errors, *review.manager.store.notices)


def _project(given: argparse.Namespace) -> str:
    named = getattr(given, "project", None) or None
    return find_given_project(named, Paths.from_environ(os.environ))


def _check(given: argparse.Namespace) -> None:
    if given.all and given.run is not None:
        raise OllmSandboxError("Both a run and --all were given.", "Use one of them.")
    if getattr(given, "since", None) is not None and (given.run is not None or given.later):
        raise OllmSandboxError("--since stands alone.", "Use it without a run, paths and --later.")


def _run(review: Review, given: argparse.Namespace) -> Run | None:
    """Return the run that the user named, else the last one of this project."""
    if given.run is not None and _RUN_ID.match(given.run):
        return review.manager.run(given.run)
    project = review.manager.find_project(_project(given))
    last = review.manager.last_run(project) if project else None
    if given.run is not None:
        # An empty id comes from a script whose variable is empty. Do not take the last run.
        remedy = "`ollmsandbox history --all` lists all runs."
        if last is not None and given.run and hasattr(given, "path"):
            remedy = f"Name the run first: {last.id} {escape_line(given.run)}"
        raise OllmSandboxError(
            f"{escape_line(given.run) or repr('')} is not the id of a run.", remedy
        )
    return last


def _runs(review: Review, given: argparse.Namespace) -> list[Run]:
    """Return the chosen run; with --all, those with pending changes."""
    if given.all:
        project = review.manager.find_project(_project(given))
        return review.waiting(project) if project else []
    run = _run(review, given)
    return [run] if run else []


def _no_run(review: Review, given: argparse.Namespace) -> int:
    if given.json:
        print(json.dumps(_document([], None, _project(given))))
        return 0
    remedy = "Go to the project, or see `ollmsandbox history --all`."
    raise OllmSandboxError(
        "No command has changed anything in this project yet.",
        "\n".join([remedy, *_gone(review)]),
    )


def _gone(review: Review) -> Iterator[str]:
    """List the projects whose folder was moved: the user may look for their runs here."""
    manager = review.manager
    projects = [p for p in manager.projects() if is_missing(p.path) and manager.last_run(p)]
    if projects:
        yield "These projects are no longer where they were. If you have moved one here, use"
        yield "`ollmsandbox project move OLD NEW`:"
    for project in projects:
        yield f"  {escape_line(project.path)}"


def _where(run: Run) -> str:
    """Return the run's project as text, unless it is the current one."""
    here = os.path.realpath(default_project(os.environ))
    return "" if run.project.path == here else f", in {escape_line(run.project.path)}"


def _document(reports: list[Report], run: Run | None, project: str) -> dict[str, object]:
    """Return the document for --json. It always has the same keys."""
    items = [(item, report.run_id) for report in reports for item in report.changes]
    totals = texts.report_document(Report("", tuple(item for item, _ in items)), project)
    runs = {id(item): run_id for item, run_id in items}
    changes = [
        {"run_id": runs[id(item)], **texts.document(item, project)}
        for item in texts.in_order(item for item, _ in items)
    ]
    return {**_about(run, project), **totals, "changes": changes}


def _about(run: Run | None, project: str = "") -> dict[str, object]:
    return {
        "run_id": run.id if run else None,
        "project": run.project.path if run else project,
        "command": run.command if run else None,
        "apply": run.mode if run else None,
        "started": run.started_at if run else None,
        "exit_code": run.exit_code if run else None,
    }


def _counts_of(items: Iterable[Recorded]) -> Iterator[tuple[str, int]]:
    counts = Counter(map(texts.state_word, items))
    for word in (
        State.APPLIED.value,
        *texts.EDITED_WORDS.values(),
        *(state.value for state in State),
    ):
        if number := counts.pop(word, 0):
            yield word, number


def _history_document(review: Review, run: Run) -> dict[str, object]:
    return {
        **_about(run),
        "states": dict(_counts_of(read_current(review.manager, run))),
        "hosts": [use.document() for use in read_run(review.manager.paths, run.id).hosts],
    }


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
