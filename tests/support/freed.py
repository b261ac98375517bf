# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that objects are freed."""

from __future__ import annotations

import gc
from collections.abc import Callable

from ollmsandbox.ui.widgets.weak import weak_reference


def watch_freeing(*things: object) -> Callable[[], bool]:
    """Return a function that collects garbage and tells whether all things are freed. It watches
    the GObject itself: PyGObject's wrapper around it may be freed earlier."""
    assert things
    references = [weak_reference(one) for one in things]

    def are_freed() -> bool:
        gc.collect()
        return all(one() is None for one in references)

    return are_freed
