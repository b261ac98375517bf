# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes as text, as JSON and as a unified diff.

Deleted and replaced files come first, and are always listed in full.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..paths import is_inside
from ..project.changes.change import Flag, Kind, Recorded, Report, State, Type
from ..project.changes.labels import FLAG_LABELS, KIND_ORDER, shown_name, shown_path
from ..project.changes.reasons import Note
from ..project.database.models import Run
from ..project.review.review import Review
from ..project.review.versions import Version, Versions
from ..text.ansi import escape_line
from ..text.diff import Block, matching_blocks

# Of these everything is listed, whatever the number.
_IN_FULL = (Kind.DELETED, Kind.REPLACED)
_MOST = 20


def document(item: Recorded, project: str) -> dict[str, object]:
    change = item.change
    return {
        "path": shown_path(item, project),
        "kind": change.kind.value,
        "type": change.type.value,
        "mode": None if change.mode is None else f"{change.mode & 0o7777:04o}",
        "target": change.target,
        "flags": [flag.value for flag in change.flags],
        "state": item.state.value,
        "note": str(item.note.sentence) if item.note else "",
    }


def report_document(report: Report | None, project: str) -> dict[str, object]:
    """Return the document for --json. It always has the same keys."""
    items = report.changes if report else ()
    return {
        "changes": [document(item, project) for item in in_order(items)],
        "conflicts": [shown_path(i, project) for i in items if i.state is State.CONFLICT],
        "skipped": [
            {"path": shown_path(item, project), "what": item.what}
            for item in (report.skipped if report else ())
        ],
    }


def in_order(items: Iterable[Recorded]) -> list[Recorded]:
    return sorted(items, key=lambda item: KIND_ORDER.index(item.change.kind))


def listing(items: Sequence[Recorded], project: str, *, whole: bool = False) -> Iterator[str]:
    """Yield a line for each change; if many files are modified or added, only for the first."""
    for kind in KIND_ORDER:
        of_kind = [item for item in items if item.change.kind is kind]
        most = len(of_kind) if whole or kind in _IN_FULL else _MOST
        # Never leave out what the user should look at.
        listed = [i for n, i in enumerate(of_kind) if n < most or i.note or marks(i)]
        for item in listed:
            yield _line(item, project)
        if len(of_kind) > len(listed):
            yield f"  {kind.value:9} and {len(of_kind) - len(listed):,} more"


def _line(item: Recorded, project: str) -> str:
    change = item.change
    name = shown_name(item, project)
    if change.kind is Kind.MODIFIED and change.type is Type.FOLDER:
        name += f" (mode {change.old_mode or 0:04o} to {change.mode or 0:04o})"
    if change.kind is Kind.REPLACED and change.old_type:
        name += f" (was a {change.old_type.value})"
    remarks = [*marks(item)]
    if item.state not in (State.APPLIED, State.PENDING):
        remarks.insert(0, item.state.value)
    if item.note:
        remarks.append(_reason(item.note))
    return f"  {change.kind.value:9} {name}" + (f"  [{'; '.join(remarks)}]" if remarks else "")


def _reason(note: Note) -> str:
    """Return the reason as a remark within a line."""
    return escape_line(note.sentence.rstrip("."))


def marks(item: Recorded) -> list[str]:
    """Return labels for what the user should look at."""
    flags = [flag for flag in item.change.flags if flag is not Flag.HELD]
    words = [FLAG_LABELS[flag] for flag in flags]
    if item.is_held and item.state is State.PENDING:
        words.append(FLAG_LABELS[Flag.HELD])
    return words


def summary(report: Report, project: str) -> Iterator[str]:
    """Yield the lines that are printed after a run."""
    count = len(report.changes)
    if count:
        pending = sum(item.state is State.PENDING for item in report.changes)
        what = f"{count:,} {'change' if count == 1 else 'changes'}"
        if pending == count:
            what += ", pending"
        elif pending:
            what += f", {pending:,} of them pending"
        if all(item.state is State.DISCARDED for item in report.changes):
            what += ", not kept"
        yield f"{what} (run {report.run_id})"
        yield from listing(report.changes, project)
    for item in report.skipped:
        yield f"  left out  {escape_line(shown_path(item, project))}  [{item.what}]"
    yield from advice(report)


def advice(report: Report) -> Iterator[str]:
    """Yield what the user can do next."""
    states = {item.state for item in report.changes}
    run = report.run_id
    if State.CONFLICT in states:
        yield "Files in conflict were also changed by someone else, and are left as they are."
        yield "Compare both versions with"
        yield f"  ollmsandbox changes {run} --diff"
        yield f"then use the command's with `apply {run} PATH`, or drop it with"
        yield f"`discard {run} PATH`."
    elif State.PENDING in states:
        yield f"Review them with `ollmsandbox changes {run} --diff`, then `apply {run}` or"
        yield f"`discard {run}` them, all or by path."
    failed = [item for item in report.changes if item.state is State.FAILED]
    if any(not item.is_lost for item in failed):
        yield f"Failed changes are kept. Try again with `ollmsandbox apply {run}`."
    if any(item.is_lost for item in failed):
        yield "Versions that no longer exist cannot be applied. Remove them from the list with"
        yield f"`ollmsandbox discard {run} PATH`."


def print_notice(lines: Iterable[str]) -> None:
    """Print to standard error: standard output may be the command's own."""
    for number, line in enumerate(lines):
        print(f"ollmsandbox: {line}" if number == 0 else line, file=sys.stderr)


def full_paths(given: Sequence[str], project: str) -> list[str]:
    """Return absolute paths: relative to the current folder if it is in the project, else to the
    project."""
    found = []
    for path in given:
        here = os.path.normpath(os.path.join(os.path.realpath(os.getcwd()), path))
        there = os.path.normpath(os.path.join(project, path))
        found.append(here if is_inside(here, project) or os.path.isabs(path) else there)
    return found


_BOLD, _END = "\x1b[1m", "\x1b[0m"
# By the first character of a line in a unified diff: red, green, cyan.
_COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m", "@": "\x1b[36m"}
# Unchanged lines around each change.
_CONTEXT = 3
# Bytes. Comparing larger files takes long, and nobody reads the result.
_LARGEST = 2 << 20


@dataclass(frozen=True)
class _Version:
    """The content of one version; empty if the file does not exist in it."""

    size: int = 0
    text: list[str] | None = None
    there: bool = False
    # The error, if it cannot be read.
    error: str = ""


def diff_lines(
    items: Sequence[Recorded], review: Review, run: Run, *, colour: bool
) -> Iterator[str]:
    versions = Versions(review.manager)
    for item in in_order(items):
        yield from _diff(item, versions, run, colour=colour)


def _diff(item: Recorded, versions: Versions, run: Run, *, colour: bool) -> Iterator[str]:
    change = item.change
    bold = _BOLD if colour else ""
    name = escape_line(shown_path(item, run.project.path))
    is_folder = change.type is Type.FOLDER and change.old_type in (None, Type.FOLDER)
    before = Version() if is_folder else versions.before(run, item)
    title = f"== {change.kind.value} {name}{_what(item, before)}, {_state(item)}\n"
    yield _paint(title, bold)
    if change.type is not Type.FILE and change.old_type is not Type.FILE:
        return
    after = versions.after(run, item)
    for which, version in (("before", before), ("after", after)):
        if version.note:
            why = escape_line(version.note.sentence)
            yield f"The version {which} the command is not available. {why}\n"
            return
    old, new = _read(before), _read(after)
    for which, one in (("before", old), ("after", new)):
        if one.error:
            yield f"Cannot read the version {which} the command: {one.error}.\n"
            return
    if old.text is None or new.text is None:
        why = "Too large to compare" if max(old.size, new.size) > _LARGEST else "Not text"
        yield f"{why}: {old.size:,} bytes before, {new.size:,} bytes after\n"
        return
    if old.text != new.text:
        yield _paint(f"--- {f'a/{name}' if old.there else '/dev/null'}\n", bold)
        yield _paint(f"+++ {f'b/{name}' if new.there else '/dev/null'}\n", bold)
        for line in unified(old.text, new.text):
            yield _paint(line, _COLOURS.get(line[0], "") if colour else "")


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for part in _parts(old, new) if old != new else ():
        yield from _in_words(part, old, new)


def _parts(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Block]]:
    """Yield the common blocks around each group of close changes, the first and the last of them
    cut to the lines that are shown."""
    blocks = matching_blocks(old, new)
    if not blocks or (blocks[0].old, blocks[0].new) != (0, 0):
        blocks.insert(0, Block(0, 0, 0))
    last = blocks[-1]
    if (last.old + last.size, last.new + last.size) != (len(old), len(new)):
        blocks.append(last := Block(len(old), len(new), 0))
    part = [_end(blocks[0])]
    for block in blocks[1:]:
        if block is last or block.size > 2 * _CONTEXT:
            yield [*part, block._replace(size=min(block.size, _CONTEXT))]
            part = []
        part.append(_end(block) if not part else block)


def _end(block: Block) -> Block:
    left = max(0, block.size - _CONTEXT)
    return Block(block.old + left, block.new + left, block.size - left)


def _in_words(part: Sequence[Block], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, last = part[0], part[-1]
    was = _range(first.old, last.old + last.size)
    now = _range(first.new, last.new + last.size)
    yield f"@@ -{was} +{now} @@\n"
    for before, block in pairwise((first._replace(size=0), *part)):
        yield from (f"-{line}" for line in old[before.old + before.size : block.old])
        yield from (f"+{line}" for line in new[before.new + before.size : block.new])
        yield from (f" {line}" for line in old[block.old : block.old + block.size])


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    size = end - start
    return f"{start + 1}" if size == 1 else f"{start + 1 if size else start},{size}"


def _what(item: Recorded, before: Version) -> str:
    """Return the type of the file, and what it was before."""
    change = item.change
    is_deleted = change.kind is Kind.DELETED
    said = ""
    if change.type is Type.LINK:
        target = before.target if is_deleted else change.target
        said += f" -> {escape_line(target or '')}" if target else " (link)"
    remarks = ["folder"] if change.type is Type.FOLDER else []
    if change.kind is Kind.REPLACED and change.old_type:
        remarks.append(f"was a {change.old_type.value}")
    if before.target and not is_deleted:
        remarks.append(f"led to {escape_line(before.target)}")
    is_same = change.old_type in (None, change.type) and change.type is not Type.LINK
    if is_same and None not in (change.mode, change.old_mode) and change.mode != change.old_mode:
        remarks.append(f"mode {change.old_mode or 0:04o} to {change.mode or 0:04o}")
    return said + (f" ({', '.join(remarks)})" if remarks else "")


def _state(item: Recorded) -> str:
    remarks = [item.state.value, *marks(item)]
    return "; ".join([*remarks, _reason(item.note)] if item.note else remarks)


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
    except OSError as error:
        return _Version(error=error.strerror or str(error))
    if "\0" in text:
        return _Version(len(data), there=True)
    return _Version(len(data), _lines(text), there=True)


def _lines(text: str) -> list[str]:
    """Return the lines without anything that a terminal would act on. A carriage return at the end
    of a line is shown, because it may be all that changed."""
    *whole, last = text.split("\n")
    shown = ["\t".join(map(escape_line, line.split("\t"))) + "\n" for line in whole]
    if last:
        shown.append(
            "\t".join(map(escape_line, last.split("\t"))) + "\n\\ No newline at end of file\n"
        )
    return shown


def _paint(line: str, colour: str) -> str:
    body = line.rstrip("\n")
    return f"{colour}{body}{_END}\n" if colour else line
