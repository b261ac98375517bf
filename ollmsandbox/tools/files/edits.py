# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits text: exact replacements with helpful errors, and a short diff. No files are touched."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ... import N_
from ...text.diff import split_lines, unified_diff
from ..base import ToolError
from ..parameters import parameter

_MOST_LINES = 80
_LONGEST_LINE = 300
LARGEST = 4 << 20


@dataclass(frozen=True)
class Edit:
    """One replacement, as a model asks for it."""

    old_text: str = parameter(
        "The text to replace, exactly as it is in the file. It has to occur once.", longest=LARGEST
    )
    new_text: str = parameter("What to put in its place.", default="", longest=LARGEST)
    replace_all: bool = parameter("Replace every occurrence.", default=False)


@dataclass(frozen=True)
class Document:
    """The text of a file, with the properties that an edit has to keep."""

    text: str
    has_mark: bool = False
    # Whether every line of the file ends with CR LF; `text` has only LF.
    has_returns: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Document:
        """Return the document, or raise UnicodeDecodeError."""
        mark = data.startswith(codecs.BOM_UTF8)
        text = data[len(codecs.BOM_UTF8) if mark else 0 :].decode("utf-8")
        ends = text.count("\n")
        returns = ends > 0 and text.count("\r\n") == ends == text.count("\r")
        return cls(text.replace("\r\n", "\n") if returns else text, mark, returns)

    def with_text(self, text: str) -> Document:
        if self.has_mark:
            text = text.removeprefix("\ufeff")
        if self.has_returns:
            text = text.replace("\r\n", "\n")
        return Document(text, self.has_mark, self.has_returns)

    def encode(self) -> bytes:
        text = self.text.replace("\n", "\r\n") if self.has_returns else self.text
        return (codecs.BOM_UTF8 if self.has_mark else b"") + text.encode("utf-8")


def check_edits(edits: Sequence[Edit]) -> None:
    """Raise ToolError if one of the edits cannot be made in any file."""
    for number, edit in enumerate(edits, 1):
        with _naming_edit(number, len(edits)):
            if not edit.old_text:
                raise ToolError(
                    N_("`old_text` is missing, so there is nothing to replace."),
                    N_("To write a whole file, use write_file."),
                )
            if edit.old_text == edit.new_text:
                raise ToolError(N_("`old_text` and `new_text` are the same: nothing would change."))


def apply_edits(document: Document, edits: Sequence[Edit]) -> str:
    """Return the new text: each edit is made in what the one before it left."""
    text = document.text
    for number, edit in enumerate(edits, 1):
        old, new = (document.with_text(t).text for t in (edit.old_text, edit.new_text))
        with _naming_edit(number, len(edits)):
            text = replace_text(text, old, new, everywhere=edit.replace_all)
    return text


@contextmanager
def _naming_edit(number: int, count: int) -> Iterator[None]:
    """Say which of several edits failed."""
    try:
        yield
    except ToolError as error:
        if count == 1:
            raise
        raise ToolError(
            N_("Edit {number} of {count} failed, so nothing was changed: {why}"),
            error.remedy,
            number=number,
            count=count,
            why=error.message,
        ) from error


def replace_text(text: str, old: str, new: str, *, everywhere: bool) -> str:
    count = text.count(old)
    if count == 0:
        raise ToolError(_not_found(text, old))
    if count > 1 and not everywhere:
        lines = ", ".join(str(line) for line in _lines_of(text, old, 5))
        more = " and further down" if count > 5 else ""
        raise ToolError(
            f"`old_text` occurs {count:,} times (lines {lines}{more}).",
            "Give more of the lines around it, or set `replace_all` to true.",
        )
    return text.replace(old, new)


def _lines_of(text: str, old: str, most: int) -> Iterator[int]:
    at = -1
    line, counted = 1, 0
    for _ in range(most):
        at = text.find(old, at + 1 if at < 0 else at + len(old))
        if at < 0:
            return
        line += text.count("\n", counted, at)
        counted = at
        yield line


def _not_found(text: str, old: str) -> str:
    what = "`old_text` was not found; it has to match exactly."
    wanted = next((line for line in old.split("\n") if line.strip()), "")[:_LONGEST_LINE]
    if not wanted:
        return f"{what} It contains only white space."
    lines = text.split("\n")[:20_000]
    plain = wanted.strip()
    for number, line in enumerate(lines, 1):
        if line.strip() == plain:
            if line == wanted:
                return f"{what} Its first line is line {number}, but what follows differs."
            return (
                f"{what} Line {number} has the same words with other white space: {_shown(line)!r}"
            )
    best, closest = 0.6, 0
    matcher = difflib.SequenceMatcher(b=plain, autojunk=False)
    for number, line in enumerate(lines, 1):
        matcher.set_seq1(line.strip()[:_LONGEST_LINE])
        # The quick ratios are upper bounds.
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, closest = ratio, number
    if closest:
        return f"{what} The closest line is {closest}: {_shown(lines[closest - 1])!r}"
    return f"{what} Nothing in the file is like it; read the file again."


def difference(old: str, new: str) -> str:
    """Return a short unified diff."""
    lines = [line.removesuffix("\n") for line in unified_diff(split_lines(old), split_lines(new))]
    shown = [_shown(line) for line in lines[:_MOST_LINES]]
    if len(lines) > len(shown):
        shown.append(f"[... {len(lines) - len(shown):,} more lines]")
    return "\n".join(shown)


def _shown(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
