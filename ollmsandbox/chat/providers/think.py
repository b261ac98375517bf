# SPDX-License-Identifier: GPL-3.0-or-later
"""Separate the reasoning of a model, in <think> tags, from its answer."""

from __future__ import annotations

from ...text.visible import replace_surrogates
from .base import Piece, TextPiece, ThinkingPiece
from .mask import KeyMask, MaskedStream

_OPEN, _CLOSE = "<think>", "</think>"


class TextSplitter:
    """Separates the text of an answer from reasoning in tags at its very beginning."""

    def __init__(self, mask: KeyMask) -> None:
        self._text: MaskedStream = mask.stream()
        self._thinking: MaskedStream = mask.stream()
        # None until it is known whether the answer begins with reasoning.
        self._in_thoughts: bool | None = None
        self._held = ""
        self._strip = False

    def text(self, piece: str) -> list[Piece]:
        if self._in_thoughts is None:
            return self._first(self._held + piece)
        if self._in_thoughts:
            return self._thoughts(self._held + piece)
        return self._say(piece)

    def thinking(self, piece: str) -> list[Piece]:
        masked = self._thinking.feed(replace_surrogates(piece))
        return [ThinkingPiece(masked)] if masked else []

    def end(self) -> list[Piece]:
        held, self._held = self._held, ""
        pieces: list[Piece] = []
        if held:
            pieces += self.thinking(held) if self._in_thoughts else self._say(held)
        if rest := self._thinking.end():
            pieces.append(ThinkingPiece(rest))
        if rest := self._text.end():
            pieces.append(TextPiece(rest))
        return pieces

    def _first(self, text: str) -> list[Piece]:
        start = text.lstrip()
        if len(start) < len(_OPEN) and _OPEN.startswith(start) and len(text) < 1000:
            self._held = text
            return []
        self._held = ""
        self._in_thoughts = start.startswith(_OPEN)
        if self._in_thoughts:
            return self._thoughts(start.removeprefix(_OPEN))
        return self._say(text)

    def _thoughts(self, text: str) -> list[Piece]:
        thought, found, rest = text.partition(_CLOSE)
        if found:
            self._in_thoughts, self._held, self._strip = False, "", True
            return self.thinking(thought) + self._say(rest)
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
        self._held = text[len(text) - keep :]
        return self.thinking(text[: len(text) - keep])

    def _say(self, text: str) -> list[Piece]:
        if self._strip:
            # Empty lines between the reasoning and the answer.
            text = text.lstrip("\r\n")
            self._strip = not text
        masked = self._text.feed(replace_surrogates(text))
        return [TextPiece(masked)] if masked else []
