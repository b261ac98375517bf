# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the patterns of git's ignore files, and matches names against them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..paths import FolderValues
from .dirfd import open_regular_file

# Bytes of a file: of a larger one, each path would be compared with tens of thousands of patterns.
_LARGEST = 1 << 16
_CLASSES = {
    b"alnum": rb"a-zA-Z0-9", b"alpha": rb"a-zA-Z", b"blank": rb" \t", b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9", b"graph": rb"!-~", b"lower": rb"a-z", b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~", b"space": rb" \t\n\r", b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}  # fmt: skip
# Possessive: brackets that end elsewhere when read in another way match nothing, as in git.
_TOKEN = re.compile(
    rb"(?P<slash>\\?/)|\\(?P<escaped>.)|(?P<star>\*)|(?P<any>\?)"
    rb"|\[(?P<negated>[!^]?+)(?P<members>\]?+(?:\[:[^]]*:\]|\\.|[^]\\])*+)\]|(?P<char>.)",
    re.DOTALL,
)
_MEMBER = re.compile(rb"\[:([^]]*):\]|\\?(.)(?:-\\?(.))?", re.DOTALL)
# What a star stands for, and two of them. A path is matched with a slash after each name.
_PART_OF_NAME, _NAMES = rb"[^/]*", rb"(?:[^/]+/)*"
# What is made from other files, in projects whose ignore files do not name it.
GENERATED = b"""
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
    """One pattern, as expressions for a path with a slash at its end, and for the last name."""

    path: re.Pattern[bytes]
    last: bytes
    for_folders: bool
    is_negated: bool


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
        path = b"/".join(names) + b"/"
        # The last one that matches counts.
        for rule in reversed(self.rules):
            if (is_folder or not rule.for_folders) and rule.path.fullmatch(path):
                return not rule.is_negated
        return None


class IgnoredPaths:
    """Tells which paths of a folder git ignores, by the ignore files that are in it."""

    def __init__(self, root: str, also: bytes = b"") -> None:
        """The patterns in `also` come after those of all ignore files."""
        self._root = root
        outer = (read_ignore_file(f"{root}/.git/info/exclude"), parse_ignore_file(also))
        # By folder: the rules for what is in it, the nearest first, each with the number of names
        # that lead to its file; None if the folder itself is ignored.
        self._rules = FolderValues(
            self._rules_in("", [(0, rules) for rules in outer if rules]), self._rules_in
        )

    def covers(self, path: str, *, is_folder: bool) -> bool:
        return self._decides(self._rules[path.rpartition("/")[0]], path, is_folder=is_folder)

    def _rules_in(
        self, folder: str, around: list[tuple[int, IgnoreRules]] | None
    ) -> list[tuple[int, IgnoreRules]] | None:
        if folder and self._decides(around, folder, is_folder=True):
            return None
        own = read_ignore_file(f"{self._root}/{folder}/.gitignore")
        if own is None or around is None:
            return around
        return [(folder.count("/") + 1 if folder else 0, own), *around]

    def _decides(
        self, rules: list[tuple[int, IgnoreRules]] | None, path: str, *, is_folder: bool
    ) -> bool:
        if not rules:
            return rules is None
        names = os.fsencode(path).split(b"/")
        for depth, each in rules:
            verdict = each.decide(names[depth:], is_folder)
            if verdict is not None:
                return verdict
        return False


def read_ignore_file(file: str) -> IgnoreRules | None:
    """Read an ignore file if it is a regular file: not a link, not a pipe."""
    with contextlib.suppress(OSError), open_regular_file(file) as opened:
        data = opened.read(_LARGEST + 1)
        return parse_ignore_file(data) if len(data) <= _LARGEST else None
    return None


def parse_ignore_file(text: bytes) -> IgnoreRules | None:
    """Return the rules of an ignore file; None if it has none."""
    lines = (line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    rules = tuple(rule for line in lines if (rule := _parse_line(line)) is not None)
    if not rules:
        return None
    lasts = {b"(?:%s)" % rule.last for rule in rules}
    return IgnoreRules(rules, re.compile(b"|".join(lasts)))


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
    # Without a slash, it is for names in all folders below.
    pattern = pattern.removeprefix(b"/") if b"/" in pattern else b"**/" + pattern
    try:
        parts = list(_parts(pattern))
    except _NeverMatches:
        return None
    pieces = [b""]
    for part in parts:
        if part is None:
            pieces.append(b"")
        else:
            pieces[-1] += part + b"/"
    if parts[-1] is None:
        pieces[-1] = b"[^/]+/"  # the rest, which is at least one name
    path = re.compile(_with_gaps(pieces, _NAMES))
    return IgnoreRule(path, parts[-1] or _PART_OF_NAME, for_folders, is_negated)


def _without_trailing_spaces(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    # After an odd number of backslashes, the first space is part of the pattern.
    return line[: len(kept) + 1] if backslashes % 2 else kept


def _with_gaps(pieces: list[bytes], gap: bytes) -> bytes:
    """Return an expression for the pieces with gaps between them. The shortest gap up to the next
    piece is always a right choice, so that none takes long to match."""
    first, *others = pieces
    middle = b"".join(b"(?>%s?%s)" % (gap, piece) for piece in others[:-1] if piece)
    return first + middle + gap + others[-1] if others else first


def _parts(pattern: bytes) -> Iterator[bytes | None]:
    """Yield an expression for each part between slashes; None for two stars."""
    pieces = [b""]
    start = 0
    for token in (*_TOKEN.finditer(pattern), None):
        if token is None or token["slash"]:
            end = token.start() if token else len(pattern)
            is_any = re.fullmatch(rb"\*\*+", pattern[start:end])
            yield None if is_any else _with_gaps(pieces, _PART_OF_NAME)
            pieces, start = [b""], token.end() if token else end
        elif token["star"]:
            pieces.append(b"")
        elif token["any"]:
            pieces[-1] += b"[^/]"
        elif token["members"]:
            pieces[-1] += _class(token["members"], is_negated=bool(token["negated"]))
        elif token["char"] in (b"[", b"\\"):
            raise _NeverMatches
        else:
            pieces[-1] += re.escape(token["escaped"] or token["char"])


def _class(members: bytes, *, is_negated: bool) -> bytes:
    """Return the expression for the characters in brackets."""
    expression = b""
    for name, first, last in _MEMBER.findall(members):
        if not first and name not in _CLASSES:
            raise _NeverMatches
        expression += re.escape(first) or _CLASSES[name]
        # A reversed range stands for its first character.
        if last and first <= last:
            expression += b"-" + re.escape(last)
    return (b"(?!/)[^%s]" if is_negated else b"(?!/)[%s]") % expression
