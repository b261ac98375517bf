# SPDX-License-Identifier: GPL-3.0-or-later
"""The reasons for the end of a turn.

They are apart from the events, which the window does not need for its first frame."""

from __future__ import annotations

from enum import Enum

from .. import N_


class TurnEnd(Enum):
    """Why a turn ended; the value is a text for the user."""

    DONE = ""
    STOPPED = N_("Stopped.")
    TURNS = N_("The turn limit was reached.")
    TOKENS = N_("The token limit was reached.")
    TIME = N_("The time limit was reached.")
    FAILED = N_("The model's server failed.")
    FILTERED = N_("The server's content filter stopped the answer.")
    EMPTY = N_("The model sent an empty answer.")
    LOOP = N_("The model keeps repeating the same call.")
