# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the list of changes: a run, and below it its files with the number of changed lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gi.repository import Gtk, Pango

from ...project.change import Kind, Recorded, State
from ...text.visible import visible_line, visible_path
from ..permission.visibility import is_in_reach
from ..widgets.actions import Action, ActionButton
from ..widgets.boxes import hbox, vbox
from ..widgets.labels import (
    add_classes,
    decorative_icon,
    file_markup,
    in_sentences,
    one_line,
    set_accessible_name,
    set_expanded,
    set_left_to_right,
    without_hyphens,
)
from ..widgets.readable import number
from ..widgets.weak import weak_reference
from ..widgets.wrap_box import WrapBox
from .model import FileItem, FoldItem
from .text import (
    change_text,
    ignored_actions,
    ignored_row_text,
    kind_icon,
    pill_label,
    row_text,
    run_actions,
    run_text,
)

if TYPE_CHECKING:
    from ...project.projects import ProjectManager
    from ..widgets.tasks import Tasks
    from .counts import LineCount

Act = Callable[[str, FoldItem], None]
Fold = Callable[[FoldItem], None]
_INDENT = 18
_COLOURS = {Kind.ADDED: "success", Kind.DELETED: "error", Kind.REPLACED: "warning"}


class FoldRow(Gtk.Box):
    """A row that opens, with buttons for everything in it."""

    def __init__(self, item: FoldItem, fold: Fold) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=6)
        self.item = item
        # For screen readers.
        self.name = ""
        self._buttons: list[ActionButton] = []
        self._top = Gtk.Box(spacing=6)
        # In a list view, rows that contain buttons do not get the focus, only the buttons do.
        self.arrow = Gtk.Button(
            icon_name="pan-down-symbolic" if item.is_open else "pan-end-symbolic",
            css_classes=["flat", "fold-button"],
            valign=Gtk.Align.CENTER,
        )
        self.arrow.connect("clicked", lambda _button: fold(item))
        self._top.append(self.arrow)
        self.append(self._top)

    def set_busy(self, is_busy: bool) -> None:
        for button in self._buttons:
            button.set_busy(is_busy)

    def focus(self, *, verbs: bool) -> None:
        (self._buttons[0] if verbs and self._buttons else self.arrow).grab_focus()

    def _set_name(self, name: str) -> None:
        self.name = name
        set_accessible_name(self.arrow, name)
        set_expanded(self.arrow, self.item.is_open)

    def _add_buttons(
        self, actions: Iterable[Action], act: Act, title: str, *, suggests: bool
    ) -> None:
        buttons = self._buttons
        # Not the row itself, which its buttons would keep alive.
        item = self.item
        for action in actions:
            button = ActionButton(action)
            button.add_css_class("small-button")
            if action.name == "apply" and suggests:
                button.add_css_class("suggested-action")
            button.connect("clicked", lambda _button, name=action.name: act(name, item))
            set_accessible_name(button, f"{action.label}: {title}")
            buttons.append(button)
        # Several buttons beside the text would leave no room for it. But the one to undo stays
        # where it was.
        if buttons and {button.action.name for button in buttons} <= {"undo", "redo"}:
            # With space between a long, cut-off command and the button.
            self._top.append(hbox(*buttons, spacing=6, valign=Gtk.Align.CENTER, margin_start=6))
        elif buttons:
            lines = WrapBox()
            lines.add_group(buttons[:2])
            lines.add_group(buttons[2:])
            self.append(lines)


class RunRow(FoldRow):
    def __init__(self, item: FoldItem, act: Act, fold: Fold) -> None:
        super().__init__(item, fold)
        self.add_css_class("run-row")
        run = item.data
        command = one_line(visible_line(run.command), "monospace")
        set_left_to_right(command)
        status = run_text(run)
        title = visible_line(run.said or run.command)[:200]
        self._set_name(in_sentences(title, status))
        about = one_line(status, "caption", "warning" if run.pending else "dim-label")
        text = vbox(command, about, hexpand=True)
        if run.said:
            text.prepend(one_line(visible_line(run.said), "file-name"))
            add_classes(command, "caption", "dim-label")
        self._top.append(text)
        # Whoever applies a held file has to look at it first.
        self._add_buttons(run_actions(run.states), act, title, suggests=not run.has_held)
        shown = [visible_line(line)[:500] for line in (run.said, run.command) if line]
        self.set_tooltip_text("\n".join(shown))


class IgnoredRow(FoldRow):
    """A quiet line for all files of a run that git ignores."""

    def __init__(self, item: FoldItem, act: Act, fold: Fold) -> None:
        super().__init__(item, fold)
        # The text is below those of the files, though the arrow is wider than their icons.
        self.set_margin_start(_INDENT - 2)
        self._top.set_spacing(7)
        self.set_valign(Gtk.Align.CENTER)
        text = ignored_row_text(item.data)
        self._set_name(text)
        self._top.append(one_line(text, "dim-label", hexpand=True))
        # Closed, it is no more than a line: the run's own buttons are for these files, too.
        if item.is_open:
            self._add_buttons(ignored_actions(item.data), act, text, suggests=False)


class FileRow(Gtk.Box):
    def __init__(self, item: FileItem) -> None:
        # As few calls as possible: there are hundreds of rows.
        indent = 2 * _INDENT if item.is_ignored else _INDENT
        super().__init__(
            spacing=9, margin_start=indent, margin_top=3, margin_bottom=3, has_tooltip=True
        )
        self.item = item
        recorded = item.recorded
        path = visible_path(recorded.change.path)
        icon = decorative_icon(kind_icon(recorded))
        colour = _COLOURS.get(recorded.change.kind)
        if colour:
            icon.add_css_class(colour)
        self.append(icon)
        self.name = in_sentences(path, change_text(recorded))
        label = one_line()
        label.set_markup(file_markup(path))
        set_left_to_right(label)
        text: Gtk.Widget = label
        if below := row_text(recorded, is_said=item.run.has_one_state):
            text = vbox(text, _status_line(recorded, below))
        text.set_hexpand(True)
        self.append(text)
        self._text = text
        if words := pill_label(recorded):
            # Complete: what is cut off is the path.
            pill = Gtk.Label(label=words, valign=Gtk.Align.CENTER, css_classes=["caption", "pill"])
            self.append(pill)
            self._text = pill
        self.append(decorative_icon("go-next-symbolic"))
        # Setting a tooltip text right away would take as long as everything else here.
        self.connect("query-tooltip", _tell_path)

    def show_lines(self, lines: LineCount | None) -> None:
        """Show the line counts. Call it once: most rows are never seen, and get no widgets."""
        if lines is None:
            return
        for sign, count, colour in (
            ("\N{MINUS SIGN}", lines.removed, "error"),
            ("+", lines.added, "success"),
        ):
            if count > 0:
                self.insert_child_after(_count(f"{sign}{number(count)}", colour), self._text)


def _tell_path(row: FileRow, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(row.name)
    return True


def _count(text: str, colour: str) -> Gtk.Label:
    label = Gtk.Label(label=text, css_classes=["caption", "numeric", colour])
    # The sign is before the number in right-to-left languages, too.
    label.set_direction(Gtk.TextDirection.LTR)
    return label


def _status_line(recorded: Recorded, text: str) -> Gtk.Label:
    needs_attention = recorded.state in (State.CONFLICT, State.FAILED)
    line = one_line(text, "caption", "warning" if needs_attention else "dim-label")
    if needs_attention:
        line.set_wrap(True)
        line.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
        line.set_lines(4)
        without_hyphens(line)
    return line


Key = tuple[str, int, State]


class LineCounts:
    def __init__(self, manager: ProjectManager, tasks: Tasks) -> None:
        self._manager = manager
        self._tasks = tasks
        self._known: dict[Key, LineCount | None] = {}
        self._wanted: dict[Key, Callable[[], FileRow | None]] = {}
        self._is_working = False
        # Whether some rows have no position yet.
        self._is_early = False

    def show(self, row: FileRow) -> None:
        """Show the counts now if they are known, otherwise soon after the row came into view."""
        key = _key(row.item)
        if key in self._known:
            row.show_lines(self._known[key])
        else:
            self._wanted[key] = weak_reference(row)
            self.look()

    def look(self, *_args: object) -> None:
        """Count for the rows that are in view now."""
        if self._wanted and not self._is_working:
            self._is_working = True
            self._tasks.start(self._work())

    async def _work(self) -> None:
        try:
            self._is_early = True
            while self._is_early:
                # New rows get their positions. Also limits the work while the list is scrolled.
                await asyncio.sleep(0.1)
                while rows := self._next():
                    await self._count(rows)
        finally:
            self._is_working = False

    async def _count(self, rows: Sequence[FileRow]) -> None:
        items = [row.item for row in rows]
        counts = await asyncio.to_thread(_count_all, self._manager, items)
        if len(self._known) > 5000:
            self._known.clear()
        for row, lines in zip(rows, counts, strict=True):
            self._known[_key(row.item)] = lines
            row.show_lines(lines)

    def _next(self) -> list[FileRow]:
        """Return a batch of rows that are in view: the list has hundreds more, above and below."""
        found: list[FileRow] = []
        self._is_early = False
        for key, reference in tuple(self._wanted.items()):
            row = reference()
            if row is None or row.get_parent() is None:
                del self._wanted[key]
            elif row.get_mapped() and not row.get_height():
                self._is_early = True
            elif row.get_mapped() and is_in_reach(row):
                del self._wanted[key]
                found.append(row)
                if len(found) == 8:
                    break
        return found


def _key(item: FileItem) -> Key:
    return item.run.id, item.recorded.number, item.recorded.state


def _count_all(manager: ProjectManager, items: Sequence[FileItem]) -> list[LineCount | None]:
    from .counts import count_lines  # not needed for the first frame

    return [count_lines(manager, item.run.id, item.recorded) for item in items]
