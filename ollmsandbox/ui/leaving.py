# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of the program that the system asks for: in order if that is soon, else as it is. What is
cut off then is found and finished at the next start."""

from __future__ import annotations

import os
import sys
import threading
import time
from gettext import gettext as _

from ..paths import Paths
from ..project.apply.journal import Journal

# Seconds for what is only looked at: there may be much, or others may be at work in the project.
_PATIENCE = 5.0
# And for what is changed in it already. Whoever ends a session waits little longer.
_PATIENCE_TO_CHANGE = 60.0
_PAUSE = 0.2


def leave_in_time(paths: Paths, number: int) -> None:
    """On a thread of its own: Python's own end waits for other threads, whatever they do."""
    threading.Thread(target=_leave, args=(paths, number), name="leaving", daemon=True).start()


def _leave(paths: Paths, number: int) -> None:
    began = time.monotonic()
    time.sleep(_PATIENCE)
    while time.monotonic() < began + _PATIENCE_TO_CHANGE and _is_changing(paths):
        time.sleep(_PAUSE)
    try:
        text = _("Left at once. What is not finished is taken up at the next start.")
        print(f"ollmsandbox: {text}", file=sys.stderr, flush=True)
    finally:
        os._exit(128 + number)


def _is_changing(paths: Paths) -> bool:
    """Something in a project: what is not to be left half done, if that can be helped."""
    try:
        is_run = any(paths.cache.glob("overlay-*/journal.json"))
    except OSError:
        return False
    return is_run or bool(Journal.left(paths))
