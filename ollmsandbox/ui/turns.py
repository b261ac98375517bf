# SPDX-License-Identifier: GPL-3.0-or-later
"""A turn of the main loop does all that is due; what can wait lets the next turn come first."""

from __future__ import annotations

from gi.repository import GLib

# Microseconds.
_LONG = 2000
# Turns, one after the other.
_ENOUGH = 10


def is_late() -> bool:
    """Whether this turn has taken long already. For what the main loop calls."""
    source = GLib.main_current_source()
    return source is not None and GLib.get_monotonic_time() - source.get_time() > _LONG


class Patience:
    """Lets the next turn come first, but not for ever: each one may be a long one."""

    def __init__(self) -> None:
        self._waited = 0

    def waits(self) -> bool:
        """Whether what is called now is to be put off."""
        self._waited = self._waited + 1 if is_late() and self._waited < _ENOUGH else 0
        return self._waited > 0
