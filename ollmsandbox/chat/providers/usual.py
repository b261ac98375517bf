# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts where nothing else is said; apart from what takes long to load."""

from __future__ import annotations

from dataclasses import dataclass

# Ollama gives a model 4096 tokens or fewer unless asked, and forgets the rest without a word; all
# that a model could take may be more than the machine's memory.
ROOM = 32768


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    # Without a single byte. A model may think for long before it says anything.
    idle: float = 300.0
