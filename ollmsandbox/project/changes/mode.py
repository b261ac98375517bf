# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has to know before it changes anything. change.py, with all that is known about
changes, takes 5 ms to load, and `ollmsandbox run` needs it only if there are some."""

from __future__ import annotations

from enum import Enum

# The seconds of a day.
DAILY = 86400


class Mode(Enum):
    """What becomes of a run's changes."""

    AUTO = "auto"
    REVIEW = "review"
    NEVER = "never"


def no_step() -> None:
    """Do nothing between two steps. Tests end the program here."""
