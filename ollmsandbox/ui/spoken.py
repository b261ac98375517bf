# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes from below, in the person's language. It is English everywhere else."""

from __future__ import annotations

import gettext

from ..errors import Sentence


def spoken(text: str) -> str:
    """To be asked before anything is done to the text: what is made of it is no sentence."""
    return text.translated(gettext.gettext) if isinstance(text, Sentence) else text
