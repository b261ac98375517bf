# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the patterns of git's ignore files, and matches names against them."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass

_LARGEST = 1 << 20
_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}
# What is made from other files, in projects whose ignore files do not name it.
_GENERATED = b"""
.venv/
__pycache__/
build/
dist/
node_modules/
target/
*.a
*.class
*.la
*.lo
*.o
*.py[co]
*.so
"""


class _NeverMatches(Exception):
    pass


@dataclass(frozen=True)
class IgnoreRule:
    """One pattern. Its parts are the expressions for each name of a path; None matches any path."""

    parts: tuple[re.Pattern[bytes] | None, ...]
    is_anchored: bool
    for_folders: bool
    is_negated: bool

    def matches(self, names: Sequence[bytes]) -> bool:
        if not self.is_anchored:
            part = self.parts[0]
            return part is None or part.fullmatch(names[-1]) is not None
        return _match_way(self.parts, names)


@dataclass(frozen=True)
class IgnoreRules:
    """The rules of one ignore file, for everything below its folder."""

    rules: tuple[IgnoreRule, ...]
    # Matches last names that a rule may apply to: a quick check, since most names match no rule.
    any_last: re.Pattern[bytes]

    def decide(self, names: Sequence[bytes], is_folder: bool) -> bool | None:
        """Return whether the entry at this relative path is ignored; None if no rule matches."""
        if self.any_last.fullmatch(names[-1]) is None:
            return None
        # The last one that matches counts.
        for rule in reversed(self.rules):
            if (is_folder or not rule.for_folders) and rule.matches(names):
                return not rule.is_negated
        return None


def parse_ignore_file(text: bytes) -> IgnoreRules | None:
    """Return the rules of an ignore file; None if it has none."""
    lines = (line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    rules = tuple(rule for line in lines if (rule := _parse_line(line)) is not None)
    if not rules:
        return None
    lasts = {b".*" if last is None else last.pattern for *_, last in (r.parts for r in rules)}
    return IgnoreRules(rules, re.compile(b"|".join(b"(?:%s)" % last for last in lasts), re.DOTALL))


def read_ignore_file(name: str, around: int) -> IgnoreRules | None:
    """Read an ignore file in an open folder, if it is a regular file: not a link, not a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(name, flags, dir_fd=around)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST:
                return parse_ignore_file(file.read(_LARGEST))
    return None


class IgnoredPaths:
    """Tells which paths git ignores, by the ignore files that are on disk."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._outer = [
            (0, rules)
            for rules in (self._read(".git/info/exclude"), parse_ignore_file(_GENERATED))
            if rules
        ]
        # By folder: the rules for what is in it, the nearest first, each with the number of names
        # that lead to its file; None if the folder itself is ignored.
        self._rules: dict[str, list[tuple[int, IgnoreRules]] | None] = {}

    def covers(self, path: str, *, is_folder: bool) -> bool:
        folder = path.rpartition("/")[0]
        # From the top, and without recursion: a path may have thousands of parts.
        missing = []
        while folder not in self._rules:
            missing.append(folder)
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        for folder in reversed(missing):
            self._rules[folder] = self._rules_in(folder)
        return self._decides(self._rules[path.rpartition("/")[0]], path, is_folder=is_folder)

    def _rules_in(self, folder: str) -> list[tuple[int, IgnoreRules]] | None:
        around: list[tuple[int, IgnoreRules]] | None = self._outer
        if folder:
            around = self._rules[folder.rpartition("/")[0]]
            if self._decides(around, folder, is_folder=True):
                return None
        own = self._read(f"{folder}/.gitignore" if folder else ".gitignore")
        if own is None or around is None:
            return around
        return [(folder.count("/") + 1 if folder else 0, own), *around]

    def _decides(
        self, rules: list[tuple[int, IgnoreRules]] | None, path: str, *, is_folder: bool
    ) -> bool:
        if rules is None:
            return True
        names = os.fsencode(path).split(b"/")
        for depth, each in rules:
            verdict = each.decide(names[depth:], is_folder)
            if verdict is not None:
                return verdict
        return False

    def _read(self, path: str) -> IgnoreRules | None:
        # The path is absolute, so the folder is not used.
        return read_ignore_file(f"{self._root}/{path}", -1)


def _parse_line(line: bytes) -> IgnoreRule | None:
    if line.startswith(b"#"):
        return None
    line = _without_trailing_spaces(line)
    is_negated = line.startswith(b"!")
    pattern = line[1:] if is_negated else line
    for_folders = pattern.endswith(b"/")
    pattern = pattern[:-1] if for_folders else pattern
    if not pattern:
        return None
    is_anchored = b"/" in pattern
    try:
        parts = _parts(pattern.removeprefix(b"/"))
    except _NeverMatches:
        return None
    return IgnoreRule(tuple(parts), is_anchored, for_folders, is_negated)


def _without_trailing_spaces(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    # After an odd number of backslashes, the first space is part of the pattern.
    return line[: len(kept) + 1] if backslashes % 2 else kept


def _parts(pattern: bytes) -> list[re.Pattern[bytes] | None]:
    """Return an expression for each part between slashes. None of them takes long to match."""
    parts: list[re.Pattern[bytes] | None] = []
    # Each star ends one piece; the shortest text up to the next piece is always a right choice.
    pieces, start, at = [b""], 0, 0

    def finish(end: int) -> None:
        if re.fullmatch(rb"\*\*+", pattern[start:end]):
            parts.append(None)
            return
        first, *others = pieces
        if not others:
            parts.append(re.compile(first, re.DOTALL))
            return
        middle = b"".join(b"(?>.*?%s)" % piece for piece in others[:-1] if piece)
        parts.append(re.compile(first + middle + b".*" + others[-1], re.DOTALL))

    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"\\":
            at += 1
            char = pattern[at : at + 1]
            if not char:
                raise _NeverMatches
            if char != b"/":
                pieces[-1] += re.escape(char)
                at += 1
                continue
        if char == b"/":
            finish(at)
            pieces, start = [b""], at + 1
        elif char == b"*":
            pieces.append(b"")
        elif char == b"?":
            pieces[-1] += b"."
        elif char == b"[":
            expression, at = _class(pattern, at + 1)
            pieces[-1] += expression
            continue
        else:
            pieces[-1] += re.escape(char)
        at += 1
    finish(len(pattern))
    return parts


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the expression for the characters in brackets, and the position after them."""
    is_negated = pattern[at : at + 1] in (b"!", b"^") and pattern[at : at + 1] != b""
    at += is_negated
    members, before, first = b"", b"", True
    while True:
        char = pattern[at : at + 1]
        if not char:
            raise _NeverMatches
        if char == b"]" and not first:
            break
        first = False
        following = pattern[at + 1 : at + 2]
        if char == b"[" and following == b":":
            end = pattern.find(b"]", at + 2)
            if end > at + 2 and pattern[end - 1 : end] == b":":
                if pattern[at + 2 : end - 1] not in _CLASSES:
                    raise _NeverMatches
                members += _CLASSES[pattern[at + 2 : end - 1]]
                before, at = b"", end + 1
                continue
        if char == b"-" and before and following not in (b"", b"]"):
            at += 1
            last, at = _literal(pattern, at)
            if before <= last:
                members += re.escape(before) + b"-" + re.escape(last)
            before = b""
            continue
        before, at = _literal(pattern, at)
        members += re.escape(before)
    # Reversed ranges have no members; an empty class is no expression.
    expression = b"[^%s]" if is_negated else b"[%s]"
    return (expression % (members or b"/")), at + 1


def _literal(pattern: bytes, at: int) -> tuple[bytes, int]:
    at += pattern[at : at + 1] == b"\\"
    if at >= len(pattern):
        raise _NeverMatches
    return pattern[at : at + 1], at + 1


def _match_way(parts: Sequence[re.Pattern[bytes] | None], names: Sequence[bytes]) -> bool:
    part = name = 0
    any_part, any_name = -1, 0
    while name < len(names):
        if part < len(parts):
            expression = parts[part]
            if expression is None:
                if part == len(parts) - 1:
                    return True  # the rest, which is at least one name
                any_part, any_name = part, name
                part += 1
                continue
            if expression.fullmatch(names[name]) is not None:
                part += 1
                name += 1
                continue
        if any_part < 0:
            return False
        # Let the last "**" take one more name; earlier ones need not be tried again.
        any_name += 1
        part, name = any_part + 1, any_name
    return part == len(parts)
