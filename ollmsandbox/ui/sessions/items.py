# SPDX-License-Identifier: GPL-3.0-or-later
"""What the list of projects and sessions consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ... import N_

if TYPE_CHECKING:
    from ...chat.storage.history import FoundLine


class Day(Enum):
    TODAY = N_("Today")
    YESTERDAY = N_("Yesterday")
    EARLIER = N_("Earlier")


@dataclass(frozen=True)
class SessionItem:
    id: str
    title: str
    is_busy: bool = False
    is_asking: bool = False
    # A turn has ended that the user has not seen yet.
    is_unread: bool = False
    # Its tokens and what they cost; "" if nothing is known.
    spent: str = ""
    day: Day | None = None
    # The line that a search has found; None without a search, or if only the title has it.
    found: FoundLine | None = None


@dataclass(frozen=True)
class ProjectItem:
    # Empty for sessions without a project.
    path: str
    name: str
    is_missing: bool = False
    sessions: Sequence[SessionItem] = ()
    uses_alpine: bool = False
