# SPDX-License-Identifier: GPL-3.0-or-later
"""Mask the API key wherever a server repeats it."""

from __future__ import annotations

INSTEAD = "[key]"
# Shorter keys are placeholders such as "EMPTY" for servers without keys. They are not secret, and
# masking them would garble ordinary text.
_SHORTEST = 8


class KeyMask:
    def __init__(self, key: str = "") -> None:
        self._key = key if len(key) >= _SHORTEST else ""

    def whole(self, text: str) -> str:
        return text.replace(self._key, INSTEAD) if self._key else text

    def stream(self) -> MaskedStream:
        return MaskedStream(self._key)


class MaskedStream:
    """Masks the key in text that arrives in pieces: holds back what may be its beginning."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._held = ""

    def feed(self, text: str) -> str:
        if not self._key:
            return text
        text = (self._held + text).replace(self._key, INSTEAD)
        held = next(
            (n for n in range(len(self._key) - 1, 0, -1) if text.endswith(self._key[:n])), 0
        )
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        rest, self._held = self._held, ""
        return rest
