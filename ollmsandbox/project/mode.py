# SPDX-License-Identifier: GPL-3.0-or-later
"""The mode of a run, which decides whether its changes are applied.

It is apart from change.py, which takes 5 ms to load: `ollmsandbox run` needs that only if there are
changes."""

from __future__ import annotations

from enum import Enum

# The seconds of a day.
DAILY = 86400


class Mode(Enum):
    """Whether the changes of a run are applied at once, after a review, or never."""

    AUTO = "auto"
    REVIEW = "review"
    NEVER = "never"
