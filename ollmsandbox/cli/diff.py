# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes as a unified diff. Files are only text where they can be read as such."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..project.apply import Recorded
from ..project.changes import Kind, Type
from ..project.models import Run
from ..project.review import Review
from ..project.versions import Version, Versions
from .words import in_order, plain, shown_path

_RED, _GREEN, _CYAN, _BOLD, _END = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
# Comparing takes long then, and nobody reads it.
_LARGEST = 2 << 20


@dataclass(frozen=True)
class _Version:
    """A file as it is at some place; what is not there is empty."""

    size: int = 0
    text: list[str] | None = None
    there: bool = False


def lines(items: Sequence[Recorded], review: Review, run: Run, *, colour: bool) -> Iterator[str]:
    for item in in_order(items):
        for line in _diff(item, review, run):
            yield _coloured(line) if colour else line


def _diff(item: Recorded, review: Review, run: Run) -> Iterator[str]:
    change = item.change
    name = plain(shown_path(item, run.project.path))
    heading = f"{change.kind.value} {name}"
    if change.type is Type.FOLDER:
        if change.kind is Kind.MODIFIED:
            heading += f" (folder, mode {change.old_mode or 0:04o} to {change.mode or 0:04o})"
        else:
            heading += " (folder)"
        yield f"== {heading}, {item.state.value}\n"
        return
    if change.type is Type.LINK and change.kind is not Kind.DELETED:
        yield f"== {heading} -> {plain(change.target or '')}, {item.state.value}\n"
        return
    if change.mode is not None and change.old_mode is not None and change.mode != change.old_mode:
        heading += f" (mode {change.old_mode:04o} to {change.mode:04o})"
    yield f"== {heading}, {item.state.value}\n"
    versions = Versions(review.manager)
    before, after = versions.before(run, item), versions.after(run, item)
    for which, version in (("before", before), ("after", after)):
        if not version.is_known:
            yield f"The version from {which} cannot be shown. {version.note}\n"
            return
    old, new = _read(before), _read(after)
    if old.text is None or new.text is None:
        why = "Too large to compare" if max(old.size, new.size) > _LARGEST else "Not text"
        yield f"{why}: {old.size:,} bytes before, {new.size:,} bytes after\n"
        return
    yield from difflib.unified_diff(
        old.text,
        new.text,
        f"a/{name}" if old.there else "/dev/null",
        f"b/{name}" if new.there else "/dev/null",
    )


def _read(version: Version) -> _Version:
    if version.type is not Type.FILE:
        return _Version(text=[])
    if version.size > _LARGEST:
        return _Version(version.size, there=True)
    try:
        data = version.read()
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _Version(len(data), there=True)
    except OSError:
        return _Version(text=[])
    if "\0" in text:
        return _Version(len(data), there=True)
    return _Version(len(data), _lines(text), there=True)


def _lines(text: str) -> list[str]:
    """What a file holds must not act on the terminal that shows it. A carriage return at the end of
    a line is seen, too: it may be all that changed."""
    *whole, last = text.split("\n")
    shown = ["\t".join(map(plain, line.split("\t"))) + "\n" for line in whole]
    if last:
        shown.append("\t".join(map(plain, last.split("\t"))) + "\n\\ No newline at end of file\n")
    return shown


def _coloured(line: str) -> str:
    body = line.rstrip("\n")
    if line.startswith(("== ", "--- ", "+++ ")):
        return f"{_BOLD}{body}{_END}\n"
    if line.startswith("@@"):
        return f"{_CYAN}{body}{_END}\n"
    if line.startswith("+"):
        return f"{_GREEN}{body}{_END}\n"
    if line.startswith("-"):
        return f"{_RED}{body}{_END}\n"
    return line
