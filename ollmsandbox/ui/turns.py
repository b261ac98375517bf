# SPDX-License-Identifier: GPL-3.0-or-later
"""A turn of the main loop does all that is due; what can wait lets the next turn come first."""

from __future__ import annotations

from gi.repository import GLib

# Microseconds.
_LONG = 2000


def is_late() -> bool:
    """Whether this turn has taken long already. For what the main loop calls."""
    source = GLib.main_current_source()
    return source is not None and GLib.get_monotonic_time() - source.get_time() > _LONG
