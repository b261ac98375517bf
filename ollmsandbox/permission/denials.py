# SPDX-License-Identifier: GPL-3.0-or-later
"""Spares a user who denies one question after the other: whoever is asked again and again allows
anything in the end."""

from __future__ import annotations

import time

from .request import Answer

# After so many denials in a row, nothing is asked for so many seconds.
_MOST_DENIALS, _REST = 5, 600.0


class DenialCount:
    """Counts the denials in a row."""

    def __init__(self) -> None:
        self._denials = 0
        self._denied_at = 0.0

    @property
    def calls_for_rest(self) -> bool:
        """Whether nothing should be asked for now."""
        return self._denials >= _MOST_DENIALS and time.monotonic() - self._denied_at < _REST

    def note(self, answer: Answer) -> None:
        """Count an answer of the user."""
        self._denials = 0 if answer.allows else self._denials + 1
        self._denied_at = time.monotonic()
