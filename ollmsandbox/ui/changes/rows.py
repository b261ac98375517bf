# SPDX-License-Identifier: GPL-3.0-or-later
"""How many lines a change added and removed, found out for the rows that are in sight.

Rows of the list of changes: a run, and below it the files it changed.

How many lines a change added and removed, found out for the rows that are in sight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gi.repository import Gtk, Pango

from ...errors import OllmSandboxError
from ...project.changes.change import Kind, Recorded, State, Type
from ...project.manager import ProjectManager
from ...project.review.versions import Version, Versions
from ...text.diff import matching_blocks, split_lines
from ...text.visible import visible_line
from ..diff.model import decode
from ..permission.visibility import scrolled_around
from ..widgets.labels import set_accessible_name, without_hyphens
from ..widgets.tasks import Tasks
from ..widgets.weak import weak_reference
from ..widgets.work_bar import disable_unless_focused
from ..widgets.wrap_box import WrapBox
from . import text as words
from .list_model import FileItem, RunItem

Act = Callable[[str, RunItem], None]
Fold = Callable[[RunItem], None]
_MOST_READ = 200
# For what one should look at twice.
_MOST_LINES = 4
_COLOURS = {Kind.ADDED: "success", Kind.DELETED: "error", Kind.REPLACED: "warning"}


class RunRow(Gtk.Box):
    __gtype_name__ = "OllmRunRow"

    def __init__(self, item: RunItem, act: Act, fold: Fold) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=3)
        for side in ("top", "bottom"):
            getattr(self, f"set_margin_{side}")(6)
        run = item.data
        top = Gtk.Box(spacing=6)
        # The keyboard never gets to a row of a list that has buttons in it, only to them.
        self.arrow = Gtk.Button(
            icon_name="pan-down-symbolic" if item.is_open else "pan-end-symbolic",
            css_classes=["flat", "fold-button"],
            valign=Gtk.Align.CENTER,
        )
        self.arrow.connect("clicked", lambda _button: fold(item))
        top.append(self.arrow)
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        command = _line(visible_line(run.command))
        command.add_css_class("monospace")
        told = words.run_about(run)
        # For a screen reader.
        self.name = f"{visible_line(run.command)[:_MOST_READ]}. {told}"
        self.arrow.update_property([Gtk.AccessibleProperty.LABEL], [self.name])
        self.arrow.update_state([Gtk.AccessibleState.EXPANDED], [int(item.is_open)])
        about = _line(told)
        about.add_css_class("caption")
        about.add_css_class("warning" if run.waiting else "dim-label")
        text.append(command)
        text.append(about)
        top.append(text)
        states = set(run.states) - {State.CONFLICT}
        buttons: list[Gtk.Button] = []
        verbs = words.verbs(states)
        for name, label in verbs:
            button = Gtk.Button(label=label)
            button.add_css_class("small-button")
            if name == "apply":
                button.add_css_class("suggested-action")
            button.connect("clicked", lambda _button, name=name: act(name, item))
            set_accessible_name(button, f"{label}: {visible_line(run.command)[:_MOST_READ]}")
            buttons.append(button)
        self.append(top)
        # Several beside the command would leave nothing of it to read.
        if len(buttons) > 1:
            lines = WrapBox()
            lines.add_group(buttons[:2])
            lines.add_group(buttons[2:])
            self.append(lines)
        elif buttons:
            buttons[0].set_valign(Gtk.Align.CENTER)
            # A long command is cut off right before it.
            buttons[0].set_margin_start(6)
            top.append(buttons[0])
        self._buttons = buttons
        self.set_tooltip_text(visible_line(run.command)[:500])

    def hold(self, is_held: bool) -> None:
        for button in self._buttons:
            disable_unless_focused(button, is_held)

    def focus(self, *, verbs: bool) -> None:
        (self._buttons[0] if verbs and self._buttons else self.arrow).grab_focus()


class FileRow(Gtk.Box):
    __gtype_name__ = "OllmFileRow"

    def __init__(self, item: FileItem) -> None:
        # Each of them is felt: there are hundreds of rows.
        super().__init__(
            spacing=9, margin_start=18, margin_top=3, margin_bottom=3, has_tooltip=True
        )
        self.item = item
        recorded = item.recorded
        path = visible_line(recorded.change.path)
        icon = Gtk.Image.new_from_icon_name(words.icon(recorded))
        colour = _COLOURS.get(recorded.change.kind)
        if colour:
            icon.add_css_class(colour)
        self.append(icon)
        folder, _slash, name = path.rpartition("/")
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        text.append(_line(name or "."))
        told = words.about(recorded)
        self.name = f"{path}. {told}"
        # A path may be as long as it likes: what is told comes before it.
        below = _line(f"{told} · {folder}/" if folder else told)
        below.add_css_class("caption")
        waits = recorded.state in (State.CONFLICT, State.FAILED) or words.marks(recorded)
        below.add_css_class("warning" if waits else "dim-label")
        if waits:
            below.set_wrap(True)
            below.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
            below.set_lines(_MOST_LINES)
            without_hyphens(below)
        text.append(below)
        self.append(text)
        self._text = text
        self.append(Gtk.Image.new_from_icon_name("go-next-symbolic"))
        # Its text would take as long as all else in it.
        self.connect("query-tooltip", _tell_path)

    def show_lines(self, added: int, removed: int) -> None:
        """Once; most rows are never seen, so there is no room for it before."""
        for sign, number, colour in (("\N{MINUS SIGN}", removed, "error"), ("+", added, "success")):
            if number > 0:
                self.insert_child_after(_count(f"{sign}{number}", colour), self._text)


def _tell_path(row: FileRow, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(row.name)
    return True


def _count(text: str, colour: str) -> Gtk.Label:
    label = Gtk.Label(label=text, css_classes=["caption", "numeric", colour])
    # The sign stands before the number, whichever way one reads.
    label.set_direction(Gtk.TextDirection.LTR)
    return label


def _line(text: str) -> Gtk.Label:
    return Gtk.Label(label=text, xalign=0, ellipsize=Pango.EllipsizeMode.END)


# What takes longer to compare is compared when it is opened.
_LARGEST = 128 << 10
_BATCH = 8
_MOST_KNOWN = 5000
# Seconds, in which new rows get their places. A list that is scrolled is not looked at all the
# time.
_PAUSE = 0.1

Key = tuple[str, int, State]


@dataclass(frozen=True)
class LineCount:
    added: int
    removed: int


class LineCounts:
    def __init__(self, manager: ProjectManager, tasks: Tasks) -> None:
        self._manager = manager
        self._tasks = tasks
        self._known: dict[Key, LineCount | None] = {}
        self._wanted: dict[Key, Callable[[], FileRow | None]] = {}
        self._is_working = False
        # Whether there are rows that have no place yet.
        self._is_early = False

    def show(self, row: FileRow) -> None:
        """At once if they are known, else a moment after it came in sight."""
        key = _key(row.item)
        if key in self._known:
            _show(row, self._known[key])
        else:
            self._wanted[key] = weak_reference(row)
            self.look()

    def forget(self, run_id: str, number: int) -> None:
        """A part of it is done with."""
        for state in State:
            self._known.pop((run_id, number, state), None)

    def look(self) -> None:
        """Others may be in sight now."""
        if self._wanted and not self._is_working:
            self._is_working = True
            self._tasks.start(self._work())

    async def _work(self) -> None:
        try:
            self._is_early = True
            while self._is_early:
                await asyncio.sleep(_PAUSE)
                while rows := self._next():
                    await self._count(rows)
        finally:
            self._is_working = False

    async def _count(self, rows: Sequence[FileRow]) -> None:
        items = [row.item for row in rows]
        counts = await asyncio.to_thread(_count_all, self._manager, items)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for row, lines in zip(rows, counts, strict=True):
            self._known[_key(row.item)] = lines
            _show(row, lines)

    def _next(self) -> list[FileRow]:
        """Of those in sight: a list has hundreds more, above and below."""
        found: list[FileRow] = []
        self._is_early = False
        for key, reference in tuple(self._wanted.items()):
            row = reference()
            if row is None or row.get_parent() is None:
                del self._wanted[key]
            elif row.get_mapped() and not row.get_height():
                self._is_early = True
            elif _is_in_sight(row):
                del self._wanted[key]
                found.append(row)
                if len(found) == _BATCH:
                    break
        return found


def _is_in_sight(row: FileRow) -> bool:
    around = scrolled_around(row) if row.get_mapped() else None
    place = None if around is None else row.translate_coordinates(around, 0, 0)
    if around is None or place is None:
        return False
    return bool(-row.get_height() < place[1] < around.get_height())


def _key(item: FileItem) -> Key:
    return item.run.id, item.recorded.number, item.recorded.state


def _show(row: FileRow, lines: LineCount | None) -> None:
    if lines is not None:
        row.show_lines(lines.added, lines.removed)


def _count_all(manager: ProjectManager, items: Sequence[FileItem]) -> list[LineCount | None]:
    return [count(manager, item.run.id, item.recorded) for item in items]


def count(manager: ProjectManager, run_id: str, item: Recorded) -> LineCount | None:
    """None where lines say nothing, or where a version is not kept."""
    if item.change.type is not Type.FILE:
        return None
    try:
        row, versions = manager.run(run_id), Versions(manager)
        old, new = (_lines(one(row, item)) for one in (versions.before, versions.after))
    except (OSError, OllmSandboxError):
        return None  # it goes just now; the row soon does, too
    if old is None or new is None:
        return None
    same = sum(block.size for block in matching_blocks(old, new))
    return LineCount(len(new) - same, len(old) - same)


def _lines(version: Version) -> list[str] | None:
    if version.note or version.size > _LARGEST or version.type not in (None, Type.FILE):
        return None
    text = decode(version.read(_LARGEST))
    return None if text is None else split_lines(text)
