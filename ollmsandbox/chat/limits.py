# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a model may go on by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Each counts from what the person said last."""

    # Answers of the model.
    turns: int = 50
    # As the server counts them: all that is sent and all that comes back.
    tokens: int | None = None
    seconds: float | None = None


STANDARD = Limits()
