# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done at start and once a day: finish what was cut off, and remove what is old."""

from __future__ import annotations

from dataclasses import dataclass

from .. import N_
from ..errors import OllmSandboxError, Sentence, in_words
from ..paths import Paths
from .adopting import adopt
from .backup import clean_up
from .manager import ProjectManager
from .recorder import Report
from .recovering import recover


@dataclass(frozen=True)
class Care:
    """What came of it, to be told."""

    # Runs that had been cut off.
    finished: tuple[Report, ...] = ()
    notices: tuple[str, ...] = ()
    # What could not be finished, or not be removed; it is tried again the next time.
    errors: tuple[str, ...] = ()


def take_care(paths: Paths) -> Care:
    """Quick if there is nothing to be done. Not on the main thread: there may be much."""
    reports = recover(paths)
    errors = [error for report in reports for error in report.errors]
    notices: list[str] = []
    manager = ProjectManager(paths)
    try:
        clean_up(manager)
        notices += manager.notices
    except OSError as error:
        text = N_("Old versions could not be removed: {why}.")
        errors.append(Sentence(text, why=in_words(error).removesuffix(".")))
    except OllmSandboxError as error:
        errors.append(str(error))
    try:
        text = N_("Changes to {project} wait that were on no record. They are listed again.")
        notices += [Sentence(text, project=project) for project in adopt(manager, errors)]
    except (OllmSandboxError, OSError) as error:
        errors.append(in_words(error))
    finally:
        manager.close()
    finished = tuple(report for report in reports if report.changes)
    return Care(finished, tuple(notices), tuple(errors))
