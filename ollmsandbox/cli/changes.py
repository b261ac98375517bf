# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes as text, as JSON and as a unified diff. Deleted and replaced files come first."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..database.tables import Run
from ..engine.run import finish_interrupted_runs
from ..errors import OllmSandboxError
from ..files.atomic import write_atomically
from ..paths import Paths, is_inside, make_folder
from ..project import short_list
from ..project.change import Flag, Kind, Recorded, Report, State, Type
from ..project.reasons import Note, Reason
from ..project.review import Review
from ..project.versions import Version, Versions
from ..text.ansi import escape_line
from ..text.diff import LARGEST, decode_text, split_lines, unified_diff
from ..text.visible import quoted_path
from .streams import print_notices

FINISHED_NOW = "An earlier run was interrupted. It is finished now:"
# Of the column with the kinds of changes.
_WIDTH = 9
_NEVER_OVERWRITTEN = (Reason.IS_FOLDER, Reason.PARENT_REPLACED, Reason.GIT_NEEDS)


def document(item: Recorded, project: str) -> dict[str, object]:
    change = item.change
    return {
        "path": short_list.shown_path(item, project),
        "kind": change.kind.value,
        "type": change.type.value,
        "mode": None if change.mode is None else f"{change.mode & 0o7777:04o}",
        "old_mode": None if change.old_mode is None else f"{change.old_mode & 0o7777:04o}",
        "target": change.target,
        "flags": [flag.value for flag in change.flags] + ["ignored"] * change.is_ignored,
        "state": state_word(item),
        "note": str(item.note.sentence) if item.note else "",
    }


EDITED_WORDS = {Reason.PARTLY: "partly", Reason.EDITED: "edited"}


def state_word(item: Recorded) -> str:
    """Return what became of a change, in one word."""
    if item.state is State.APPLIED and item.note and item.note.reason in EDITED_WORDS:
        return EDITED_WORDS[item.note.reason]
    return item.state.value


def report_document(report: Report | None, project: str) -> dict[str, object]:
    """Return the document for --json. It always has the same keys."""
    items = report.changes if report else ()
    return {
        "changes": [document(item, project) for item in in_order(items)],
        "conflicts": [
            short_list.shown_path(i, project) for i in items if i.state is State.CONFLICT
        ],
        "skipped": [
            {"path": short_list.shown_path(item, project), "what": item.what}
            for item in (report.skipped if report else ())
        ],
    }


def in_order(items: Iterable[Recorded]) -> list[Recorded]:
    return sorted(items, key=lambda item: short_list.KIND_ORDER.index(item.change.kind))


def listing(items: Iterable[Recorded], project: str) -> Iterator[str]:
    """Yield a line for each change, then those worth a second look, and at the end one line for
    all files that git ignores."""
    shown, ignored = short_list.split_ignored(list(items))
    ordered = in_order(shown)
    flagged = sorted(filter(short_list.is_flagged, ordered), key=short_list.severity)
    remarks = _remarks_among([*shown, *ignored])
    for item in ordered:
        if not short_list.is_flagged(item):
            yield short_list.line_text(item, project, remarks, width=_WIDTH)
    if flagged:
        yield short_list.HEADING
    for item in flagged:
        yield short_list.line_text(item, project, remarks, width=_WIDTH)
    if ignored:
        yield f"  {ignored_line(ignored)}"


def ignored_line(items: Sequence[Recorded]) -> str:
    """Return how many files git ignores, and what became of them if it is the same for all."""
    states = {item.state for item in items}
    is_said = len(states) == 1 and State.APPLIED not in states
    said = f" [{items[0].state.value}]" if is_said else ""
    return f"{short_list.ignored_text(short_list.count_files(items))}{said}"


def _remarks_among(items: Iterable[Recorded]) -> short_list.Remarks:
    """Return a function for remarks. Pending changes are marked only among applied ones."""
    both = {State.APPLIED, State.PENDING}
    unsaid = {State.APPLIED} if both.issubset(item.state for item in items) else both

    def remarks(item: Recorded) -> list[str]:
        # What needs approval is pending.
        is_said = item.state in unsaid or (item.is_held and item.state is State.PENDING)
        said = [] if is_said else [item.state.value]
        return [*said, *marks(item), *([_reason(item.note)] if item.note else [])]

    return remarks


def _reason(note: Note) -> str:
    """Return the reason as a remark within a line."""
    return escape_line(note.sentence.rstrip("."))


def marks(item: Recorded) -> list[str]:
    """Return labels for what the user should look at."""
    flags = [flag for flag in item.change.flags if flag is not Flag.HELD]
    words = [short_list.FLAG_LABELS[flag] for flag in flags]
    if item.is_held and item.state is State.PENDING:
        words.append(short_list.FLAG_LABELS[Flag.HELD])
    return words


def summary(report: Report, project: str) -> Iterator[str]:
    """Yield the lines that are printed after a run."""
    short = short_list.short_list(report.changes)
    shown, ignored = short_list.split_ignored(report.changes)
    if report.changes:
        what = (
            short_list.counted(len(shown), "change")
            if shown
            else short_list.ignored_text(short.ignored)
        )
        count = len(shown or ignored)
        pending = sum(item.state is State.PENDING for item in shown or ignored)
        if pending == count:
            what += ", pending"
        elif pending:
            what += f", {pending:,} of them pending"
        if all(item.state is State.DISCARDED for item in report.changes):
            what += ", not kept"
        yield f"{what} (run {report.run_id})"
    if shown:
        yield from short_list.short_lines(
            short, project, _remarks_among(report.changes), width=_WIDTH
        )
    yield from short_list.skipped_lines(report, project, width=_WIDTH)
    if short.left_out:
        more = short_list.counted(short.left_out, "more change")
        yield f"{more}: `ollmsandbox changes {report.run_id}` lists them all."
    yield from advice(report)


def may_overwrite(items: Iterable[Recorded]) -> bool:
    """Return whether one of the conflicts ends if the user names its path. Not where a folder is
    involved, nor for what git needs."""
    return any(
        item.state is State.CONFLICT
        and item.change.type is not Type.FOLDER
        and (item.note is None or item.note.reason not in _NEVER_OVERWRITTEN)
        for item in items
    )


def advice(report: Report) -> Iterator[str]:
    """Yield what the user can do next."""
    states = {item.state for item in report.changes}
    run = report.run_id
    if State.CONFLICT in states:
        yield "Files in conflict were also changed by someone else, and are left as they are."
    if State.CONFLICT in states and may_overwrite(report.changes):
        yield "Compare both versions with"
        yield f"  ollmsandbox changes {run} --diff"
        yield f"then use the command's with `apply {run} PATH`, or drop it with"
        yield f"`discard {run} PATH`."
    elif State.CONFLICT in states:
        yield "Where a folder is in conflict, nothing is overwritten. Move away what is there, then"
        yield f"`apply {run}` again, or `discard {run}` it."
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


def finish_earlier_runs(paths: Paths) -> None:
    """Finish what was interrupted, at the start of a front end, and print what became of it."""
    recovered = finish_interrupted_runs(paths, clean_up=True)
    if recovered is None:
        return
    for report in recovered.finished:
        print_notice((FINISHED_NOW, *summary(report, "")))
    print_notices(*recovered.notices, *recovered.errors)


def note_report(report: Report | None, project: str) -> None:
    """Remember the run whose report was printed. One without changes is not on record."""
    if report is not None and report.changes:
        note_shown(project, report.run_id)


def note_shown(project: str, run_id: str) -> None:
    """Remember the run that the user has just seen: `apply` without a run means that one."""
    with contextlib.suppress(OllmSandboxError, OSError):  # then the user has to name the run
        write_atomically(_shown_file(project), run_id)


def is_shown(project: str, run_id: str) -> bool:
    """Return whether this is the run that the user saw last."""
    with contextlib.suppress(OSError, ValueError):
        return _shown_file(project).read_text(encoding="ascii") == run_id
    return False


def _shown_file(project: str) -> Path:
    return make_folder(Paths.from_environ(os.environ).project_data(project)) / "shown"


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


def diff_lines(
    items: Sequence[Recorded], review: Review, run: Run, *, colour: bool
) -> Iterator[str]:
    versions = Versions(review.manager)
    for item in in_order(items):
        yield from _diff(item, versions, run, colour=colour)


def _diff(item: Recorded, versions: Versions, run: Run, *, colour: bool) -> Iterator[str]:
    change = item.change
    bold = _BOLD if colour else ""
    name = escape_line(short_list.shown_path(item, run.project.path))
    is_folder = change.type is Type.FOLDER and change.old_type in (None, Type.FOLDER)
    before = Version() if is_folder else versions.before(run, item)
    if before.note and item.state is State.CONFLICT:
        # The user chooses between the version on disk and the command's.
        before = versions.on_disk(item)
    quoted = quoted_path(short_list.shown_path(item, run.project.path))
    title = f"== {change.kind.value} {quoted}{_what(item, before)}, {_state(item)}\n"
    yield _paint(title, bold)
    if change.type is not Type.FILE and change.old_type is not Type.FILE:
        return
    after = versions.after(run, item)
    texts: list[list[str] | None] = []
    for which, version in (("before", before), ("after", after)):
        if version.note:
            why = escape_line(version.note.sentence)
            yield f"The version {which} the command is not available. {why}\n"
            return
        try:
            texts.append(_lines(version))
        except OSError as error:
            yield f"Cannot read the version {which} the command: {error.strerror or error}.\n"
            return
    old, new = texts
    if old is None or new is None:
        is_large = max(before.size, after.size) > LARGEST
        why = "Too large to compare" if is_large else "Not text"
        yield f"{why}: {before.size:,} bytes before, {after.size:,} bytes after\n"
        return
    if old != new:
        # Without a tab at its end, `patch` takes a name only up to the first space.
        end = "\t" if " " in name else ""
        was_there, is_there = before.type is Type.FILE, after.type is Type.FILE
        yield _paint(f"--- {f'a/{name}{end}' if was_there else '/dev/null'}\n", bold)
        yield _paint(f"+++ {f'b/{name}{end}' if is_there else '/dev/null'}\n", bold)
        for line in unified_diff(old, new):
            # Only now, so that a change of what is escaped is shown, too.
            yield _paint(_escaped(line), _COLOURS.get(line[0], "") if colour else "")


def _what(item: Recorded, before: Version) -> str:
    """Return the type of the file, and what it was before."""
    change = item.change
    is_deleted = change.kind is Kind.DELETED
    said = ""
    if change.type is Type.LINK:
        target = before.target if is_deleted else change.target
        said += f" -> {quoted_path(target or '')}" if target else " (link)"
    remarks = ["folder"] if change.type is Type.FOLDER else []
    if change.kind is Kind.REPLACED and change.old_type:
        remarks.append(f"was a {change.old_type.value}")
    if before.target and not is_deleted:
        remarks.append(f"led to {quoted_path(before.target)}")
    if mode := short_list.mode_text(change):
        remarks.append(f"mode {mode}")
    return said + (f" ({', '.join(remarks)})" if remarks else "")


def _state(item: Recorded) -> str:
    remarks = [item.state.value, *marks(item)]
    return "; ".join([*remarks, _reason(item.note)] if item.note else remarks)


def _lines(version: Version) -> list[str] | None:
    """Return the lines of a version, none if it is no file; None if it is not text, or too large to
    compare."""
    data = version.read(LARGEST + 1)
    text = decode_text(data) if len(data) <= LARGEST else None
    return None if text is None else split_lines(text)


def _escaped(line: str) -> str:
    """Return the line without anything that a terminal would act on. A carriage return at its end
    is shown, because it may be all that changed."""
    return "\t".join(map(escape_line, line.removesuffix("\n").split("\t"))) + "\n"


def _paint(line: str, colour: str) -> str:
    body = line.rstrip("\n")
    return f"{colour}{body}{_END}\n" if colour else line
