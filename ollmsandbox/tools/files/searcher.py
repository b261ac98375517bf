# SPDX-License-Identifier: GPL-3.0-or-later
"""Search files below the current folder: a program of its own, for systems without ripgrep.

The sandbox's own Python runs it, so it uses nothing of this package, and nothing new. It writes for
each match the path, a NUL, the number of the line, a colon and the line; without a pattern, the
paths of all files, each with a NUL.
"""

from __future__ import annotations

import os
import re
import stat
import sys

_LARGEST = 16 << 20
_LONGEST_LINE = 400


def glob_expression(pattern: str) -> str:
    """Return the regular expression for a pattern such as `src/**/*.{c,h}`."""
    found = ""
    at = 0
    depth = 0
    while at < len(pattern):
        letter = pattern[at]
        if pattern.startswith("**/", at):
            found, at = found + "(?:.*/)?", at + 3
            continue
        if pattern.startswith("**", at):
            found, at = found + ".*", at + 2
            continue
        end = pattern.find("]", at + 2)
        if letter == "[" and end > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            found += "[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]"
            at = end + 1
            continue
        if letter == "{" and "}" in pattern[at:]:
            found, depth = found + "(?:", depth + 1
        elif letter == "}" and depth:
            found, depth = found + ")", depth - 1
        elif letter == "," and depth:
            found += "|"
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter))
        at += 1
    return found + ")" * depth


class PathRule:
    """A line of an ignore file, or the pattern of a search."""

    def __init__(self, line: str, folder: str = "") -> None:
        self.is_negated = line.startswith("!")
        pattern = line.lstrip("!")
        self.for_folders = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        self._folder = folder
        self._whole = "/" in pattern
        try:
            self._pattern = re.compile(glob_expression(pattern.lstrip("/")) + r"\Z", re.DOTALL)
        except re.error:
            self._pattern = re.compile(r"(?!)")

    def matches(self, path: str) -> bool:
        name = path[len(self._folder) :] if self._whole else os.path.basename(path)
        return self._pattern.match(name) is not None


def _ignore_rules(folder: str) -> list[PathRule]:
    text = _text_of(os.path.join(folder, ".gitignore"), 1 << 16) or ""
    lines = [line.rstrip() for line in text.split("\n")]
    start = folder + "/" if folder else ""
    return [PathRule(line, start) for line in lines if line.strip("!/") and line[0] != "#"]


def _is_ignored(path: str, rules: list[PathRule], *, is_folder: bool) -> bool:
    for rule in reversed(rules):
        if (is_folder or not rule.for_folders) and rule.matches(path):
            return not rule.is_negated
    return False


def _files(start: str, inherited: list[PathRule]):  # type: ignore[no-untyped-def]
    # On a stack: a project may be deeper than Python's recursion.
    stack = [(start, inherited)]
    while stack:
        folder, rules = stack.pop()
        rules = rules + _ignore_rules(folder)
        try:
            entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        except OSError:
            continue
        below = []
        for entry in entries:
            path = os.path.join(folder, entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                below.append((path, rules))
            elif entry.is_file(follow_symlinks=False):
                yield path
        stack.extend(reversed(below))


def _text_of(path: str, largest: int) -> str | None:
    """Return the text of a file; None if it is not text, not a file, or too large."""
    try:
        # Another process may put a link or a pipe in its place.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            return None
        try:
            data = file.read(largest)
        except OSError:
            return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def main(target: str, pattern: str, glob: str, options: str, most: int) -> int:
    """Search the file or, if `target` is ".", the current folder; write `most` bytes at most."""
    try:
        flags = re.IGNORECASE if "i" in options else 0
        wanted = re.compile(re.escape(pattern) if "F" in options else pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stderr.write("regex parse error: " + str(error) + "\n")
        return 2
    rule = PathRule(glob) if glob else None
    out = sys.stdout.buffer
    for path in _files("", []) if target == "." else [target]:
        if rule is not None and rule.matches(path) is rule.is_negated:
            continue
        found = [os.fsencode(path) + b"\0"] if not pattern else _matches(path, wanted)
        for piece in found:
            most -= len(piece)
            if most < 0:
                return 0
            out.write(piece)
    return 0


def _matches(path: str, wanted: re.Pattern[str]) -> list[bytes]:
    found: list[bytes] = []
    for number, line in enumerate((_text_of(path, _LARGEST) or "").split("\n"), 1):
        if wanted.search(line.rstrip("\r")):
            text = line[:_LONGEST_LINE].encode("utf-8", "replace")
            found.append(os.fsencode(path) + b"\0%d:" % number + text + b"\n")
            if len(found) == 50:
                break
    return found


if __name__ == "__main__":
    _place, _pattern, _glob, _options, _most = sys.argv[1:6]
    sys.exit(main(_place, _pattern, _glob, _options, int(_most)))
