# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit trail of a session: its questions and answers go to the database, in order."""

from __future__ import annotations

import time

from ..permission.request import PermissionRequest, Verdict
from .clerk import Clerk
from .history import History


class Trail:
    """An Audit for whom nobody waits."""

    def __init__(self, history: History, clerk: Clerk) -> None:
        self._history = history
        self._clerk = clerk

    def asked(self, request: PermissionRequest) -> None:
        now = time.time()
        self._clerk.put(lambda: self._history.write_question(request, now))

    def answered(self, verdict: Verdict) -> None:
        self._clerk.put(lambda: self._history.write_answer(verdict))
