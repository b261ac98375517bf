# SPDX-License-Identifier: GPL-3.0-or-later
"""Finishes what a kill interrupted, at the start of the program, and cleans up once a day."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError, Sentence, in_words
from ...paths import Paths
from ...sandbox.overlay import Overlay, leftovers
from ..apply.journal import Journal, project_lock
from ..apply.settle import Settling
from ..apply.swap import Step
from ..changes.change import Report
from ..changes.mode import Mode, no_step
from ..changes.scan import restore_opened
from ..database.backups import clean_up
from ..manager import ProjectManager
from ..pending.layer import remove_left
from ..review.review import Review
from .adopt import adopt
from .migrate import migrate_layers
from .missing import MissingRootError, MissingRootMarks, check_roots


def _unreadable(folder: str) -> Report:
    text = N_(
        "{folder} contains changes from a command, but it is unknown which project they belong to."
    )
    what_to_do = N_("Copy what you need from it, then delete it.")
    return Report("", errors=(str(OllmSandboxError(text, what_to_do, folder=folder)),))


def finish_leftovers(paths: Paths, step: Step = no_step) -> list[Report]:
    """Finish what killed programs left behind, and report each run.

    What an interrupted command had written becomes pending. What cannot be finished, because a
    folder is missing or the run's map is unreadable, is reported once.
    """
    reports: list[Report] = []
    marks = MissingRootMarks(paths)

    def report_unreadable(folder: str) -> None:
        if marks.first_time(os.path.basename(folder), ""):
            reports.append(_unreadable(folder))

    for overlay in leftovers(paths.cache, report_unreadable):
        try:
            overlay.merge_playground()
            with project_lock(paths, overlay.project):
                _finish(paths, overlay, step, reports)
        except (OllmSandboxError, OSError) as error:
            overlay.release()
            name = os.path.basename(overlay.folder)
            if not isinstance(error, MissingRootError) or marks.first_time(name, error.root):
                reports.append(Report(overlay.run_id, errors=(in_words(error),)))
    for journal in Journal.left(paths):
        review = Review(paths, step)
        try:
            reports += review.finish(journal)
        except (OllmSandboxError, OSError) as error:
            if not isinstance(error, MissingRootError) or marks.first_time(
                journal.name, error.root
            ):
                reports.append(Report("", errors=(in_words(error),)))
        finally:
            review.close()
    marks.end()
    return reports


def _finish(paths: Paths, overlay: Overlay, step: Step, reports: list[Report]) -> None:
    """Finish a run, or raise MissingRootError: while one of its roots is missing, all of it waits.

    What an interrupted command had written becomes pending.
    """
    journal = Journal.of_run(overlay.folder)
    job = journal.read()
    if job is not None:
        check_roots(overlay)
        reports.append(
            Report(job.run_id, tuple(Settling(paths, step).finish(overlay, job, resumed=True)))
        )
        overlay.cleanup()
        return
    if journal.exists():
        check_roots(overlay)
        try:
            journal.check(paths)
        except OllmSandboxError as error:
            # The journal is unreadable: continue with what is on disk.
            reports.append(Report(overlay.run_id, errors=(in_words(error),)))
    for name in overlay.overlay_map:
        restore_opened(overlay.upper(name))
    mode = overlay.about.get("mode", Mode.NEVER.value)
    if not overlay.is_untouched() and mode != Mode.NEVER.value:
        check_roots(overlay)
        overlay.copy_shared()
        started = os.stat(overlay.folder).st_mtime
        command = f"{overlay.about.get('command', '')} (interrupted)"
        report = Settling(paths, step).settle(overlay, Mode.REVIEW, command, started)
        reports += [report] if report.changes else []
    overlay.cleanup()


@dataclass(frozen=True)
class RecoveryResult:
    """The runs that a recovery finished, with messages for the user."""

    # Interrupted runs.
    finished: tuple[Report, ...] = ()
    notices: tuple[str, ...] = ()
    # What could not be finished or removed; the next recovery tries again.
    errors: tuple[str, ...] = ()


def recover(
    paths: Paths, removers: Sequence[Callable[[ProjectManager], object]] = ()
) -> RecoveryResult:
    """Finish what was interrupted, remove what is too old, and list lost pending changes again.

    `removers` are called for the daily removal, too.

    Quick if there is nothing to do, but do not call it on the main thread.
    """
    errors: list[str] = []
    notices: list[str] = []
    manager = ProjectManager(paths)
    migrate_layers(manager, errors)
    reports = finish_leftovers(paths)
    errors += (error for report in reports for error in report.errors)
    try:
        clean_up(manager, others=removers)
        remove_left(paths.data / "pending", "*/*/")
        notices += manager.notices
    except OSError as error:
        text = N_("Old versions could not be removed: {why}.")
        errors.append(Sentence(text, why=in_words(error).removesuffix(".")))
    except OllmSandboxError as error:
        errors.append(str(error))
    try:
        text = N_(
            "Pending changes to {project} were missing from the records. They are listed again."
        )
        notices += [Sentence(text, project=project) for project in adopt(manager, errors)]
    except (OllmSandboxError, OSError) as error:
        errors.append(in_words(error))
    finally:
        manager.close()
    finished = tuple(report for report in reports if report.changes)
    return RecoveryResult(finished, tuple(notices), tuple(errors))
