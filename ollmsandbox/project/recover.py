# SPDX-License-Identifier: GPL-3.0-or-later
"""Finishes what a kill interrupted, at the start of the program, and cleans up once a day."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import N_
from ..database.tables import Setting
from ..errors import OllmSandboxError, Sentence, in_words
from ..paths import Paths
from ..sandbox.overlay import leftovers
from ..sandbox.spec import Mode
from .backups import clean_up
from .change import Report
from .index import rebuild
from .jobs import MissingRootError, project_of_job, unfinished
from .missing import MissingRootMarks
from .projects import ProjectManager
from .run import RunFolder
from .settle import opened_jobs, settle

# A setting that says that the index has all runs.
_INDEXED = "index-is-complete"


def finish_leftovers(paths: Paths) -> list[Report]:
    """Finish what killed programs left behind, and report each run.

    What an interrupted command had written becomes pending. What cannot be finished, because a
    folder is missing or the run's map is unreadable, is reported once.
    """
    reports: list[Report] = []
    marks = MissingRootMarks(paths)
    told: set[str] = set()

    def add_error(run_id: str, name: str, error: OllmSandboxError | OSError) -> None:
        is_first = True
        if isinstance(error, MissingRootError):
            is_first = marks.first_time(name, error.root) and error.root not in told
            told.add(error.root)
        if is_first:
            reports.append(Report(run_id, errors=(in_words(error),)))

    def report_unreadable(folder: str) -> None:
        if marks.first_time(os.path.basename(folder), ""):
            text = N_(
                "{folder} contains changes from a command, but it is unknown which project they "
                "belong to."
            )
            what_to_do = N_("Copy what you need from it, then delete it.")
            add_error("", "", OllmSandboxError(text, what_to_do, folder=folder))

    for file in unfinished(paths):
        try:
            if project := project_of_job(file):
                with opened_jobs(paths, project) as jobs:
                    reports += jobs.finished
        except (OllmSandboxError, OSError) as error:
            add_error("", f"{file.parent.name}.job", error)
    for overlay in leftovers(paths.cache, report_unreadable):
        try:
            overlay.merge_playground()
            is_captured = RunFolder(paths, overlay.run_id).is_captured
            is_wanted = overlay.about.get("mode", Mode.NEVER.value) != Mode.NEVER.value
            if is_captured or (is_wanted and not overlay.is_untouched()):
                report = settle(paths, overlay, interrupted=True)
                reports += [report] if report.changes else []
            overlay.cleanup()
        except (OllmSandboxError, OSError) as error:
            overlay.release()
            add_error(overlay.run_id, os.path.basename(overlay.folder), error)
    marks.end()
    return reports


@dataclass(frozen=True)
class RecoveryResult:
    """The runs that a recovery finished, with messages for the user."""

    finished: tuple[Report, ...] = ()
    notices: tuple[str, ...] = ()
    # What could not be finished or removed; the next recovery tries again.
    errors: tuple[str, ...] = ()


def recover(
    paths: Paths, removers: Sequence[Callable[[ProjectManager], object]] = ()
) -> RecoveryResult:
    """Finish what was interrupted, make a lost index again, and remove what is too old.

    `removers` are called for the daily removal, too.

    Quick if there is nothing to do, but do not call it on the main thread.
    """
    errors: list[str] = []
    notices: list[str] = []
    manager = ProjectManager(paths)
    try:
        notices += repair_index(manager)
    except (OllmSandboxError, OSError) as error:
        errors.append(in_words(error))
    reports = finish_leftovers(paths)
    errors += (error for report in reports for error in report.errors)
    try:
        clean_up(manager, removers)
        notices += manager.store.notices
    except OSError as error:
        text = N_("Old versions could not be removed: {why}.")
        errors.append(Sentence(text, why=in_words(error).removesuffix(".")))
    except OllmSandboxError as error:
        errors.append(str(error))
    finally:
        manager.close()
    finished = tuple(report for report in reports if report.changes)
    return RecoveryResult(finished, tuple(notices), tuple(errors))


def repair_index(manager: ProjectManager, *, always: bool = False) -> list[str]:
    """Make the index of runs again if the database is new, or `always`; return what was done."""
    with manager.store.translated_errors():
        if not always and Setting.get_or_none(Setting.key == _INDEXED) is not None:
            return []
    count = rebuild(manager)
    with manager.store.transaction():
        Setting.insert(key=_INDEXED, value="1").on_conflict_replace().execute()
    text = N_("Earlier runs were missing from the records: {count}. They are listed again.")
    return [Sentence(text, count=count)] if count else []
