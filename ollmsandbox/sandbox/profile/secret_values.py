# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize secrets in the values of variables, whatever the variables are called."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHORTEST = 8
# Random letters and digits: nearly every second one is of another kind than the one before it. In
# names of people's making, few are. Hashes, in lower case, are no secrets.
_RANDOM = r"[A-Za-z0-9+/_-]{24,}={0,2}"
_CHANGES = r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]"
_RANDOM_SHARE = 0.4


def is_secret(value: str, patterns: Iterable[tuple[str, str]]) -> bool:
    """Return whether a variable's value contains something that looks like a secret. `patterns` are
    the profile's: to compile all takes 10 ms, and most variables contain none of their texts."""
    # Paths, also several, contain all kinds of names. With options, it is a command.
    is_path = value.startswith(("/", "~/", "./", "../")) and " -" not in value
    if len(value) < _SHORTEST or is_path:
        return False
    lower = value.lower()
    if lower != value and re.fullmatch(_RANDOM, value):
        changes = len(re.findall(_CHANGES, value))
        if changes > _RANDOM_SHARE * len(value):
            return True
    return any(
        re.search(pattern, value)
        for texts, pattern in patterns
        if any(text in lower for text in texts.split("|"))
    )
