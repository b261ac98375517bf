# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes as a unified diff. Files are only text where they can be read as such."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..project.changes.change import Kind, Recorded, Type
from ..project.database.models import Run
from ..project.review.review import Review
from ..project.review.versions import Version, Versions
from ..text.diff import Block, matching_blocks
from .words import in_order, marks, plain, shown_path

_RED, _GREEN, _CYAN, _BOLD, _END = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
# Lines around a change.
_CONTEXT = 3
# Comparing takes long then, and nobody reads it.
_LARGEST = 2 << 20


@dataclass(frozen=True)
class _Version:
    """A file as it is at some place; what is not there is empty."""

    size: int = 0
    text: list[str] | None = None
    there: bool = False
    # Why it cannot be read.
    trouble: str = ""


def lines(items: Sequence[Recorded], review: Review, run: Run, *, colour: bool) -> Iterator[str]:
    versions = Versions(review.manager)
    for item in in_order(items):
        for line in _diff(item, versions, run):
            yield _coloured(line) if colour else line


def _diff(item: Recorded, versions: Versions, run: Run) -> Iterator[str]:
    change = item.change
    name = plain(shown_path(item, run.project.path))
    is_folder = change.type is Type.FOLDER and change.old_type in (None, Type.FOLDER)
    before = Version() if is_folder else versions.before(run, item)
    yield f"== {change.kind.value} {name}{_what(item, before)}, {_state(item)}\n"
    if change.type is not Type.FILE and change.old_type is not Type.FILE:
        return
    after = versions.after(run, item)
    for which, version in (("before", before), ("after", after)):
        if not version.is_known:
            yield f"The version from {which} cannot be shown. {version.note}\n"
            return
    old, new = _read(before), _read(after)
    for which, one in (("before", old), ("after", new)):
        if one.trouble:
            yield f"The version from {which} cannot be read: {one.trouble}.\n"
            return
    if old.text is None or new.text is None:
        why = "Too large to compare" if max(old.size, new.size) > _LARGEST else "Not text"
        yield f"{why}: {old.size:,} bytes before, {new.size:,} bytes after\n"
        return
    if old.text != new.text:
        yield f"--- {f'a/{name}' if old.there else '/dev/null'}\n"
        yield f"+++ {f'b/{name}' if new.there else '/dev/null'}\n"
        yield from unified(old.text, new.text)


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for part in _parts(old, new) if old != new else ():
        yield from _in_words(part, old, new)


def _parts(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Block]]:
    """What the two have in common around each change or some close ones, the first and the last cut
    to what is shown of it."""
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
    # Of no lines the one before is named.
    size = end - start
    return f"{start + 1}" if size == 1 else f"{start + 1 if size else start},{size}"


def _what(item: Recorded, before: Version) -> str:
    """What it is, and what it was."""
    change = item.change
    is_deleted = change.kind is Kind.DELETED
    said = ""
    if change.type is Type.LINK:
        target = before.target if is_deleted else change.target
        said += f" -> {plain(target or '')}" if target else " (link)"
    remarks = ["folder"] if change.type is Type.FOLDER else []
    if change.kind is Kind.REPLACED and change.old_type:
        remarks.append(f"was a {change.old_type.value}")
    if before.target and not is_deleted:
        remarks.append(f"led to {plain(before.target)}")
    is_same = change.old_type in (None, change.type) and change.type is not Type.LINK
    if is_same and None not in (change.mode, change.old_mode) and change.mode != change.old_mode:
        remarks.append(f"mode {change.old_mode or 0:04o} to {change.mode or 0:04o}")
    return said + (f" ({', '.join(remarks)})" if remarks else "")


def _state(item: Recorded) -> str:
    remarks = [item.state.value, *marks(item)]
    return "; ".join([*remarks, item.note.rstrip(".")] if item.note else remarks)


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
        return _Version(trouble=error.strerror or str(error))
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
