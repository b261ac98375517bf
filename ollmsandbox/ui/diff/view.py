# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows two versions of a text in one or two columns, inserted in small steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from gi.repository import GLib, Gtk

from ...i18n import _, ngettext
from ...loop import start_daemon
from ..resources import template
from ..widgets.actions import Action, ActionButton
from ..widgets.keyboard import add_shortcut
from ..widgets.labels import children_of, set_accessible_name
from ..widgets.readable import line_counts, number
from ..widgets.scheduling import Timer
from ..widgets.signals import SignalHandlers, follow_theme, signals
from ..widgets.weak import weakly
from .model import Diff, DiffSection, Fold, Line, compare, pairs
from .pane import DiffPane, link_panes, side, unified
from .syntax import Syntax


class FoldButtons:
    """The buttons of a fold, one in each column."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.buttons: list[Gtk.Button] = []
        # The position of the row in the last column.
        self.mark: Gtk.TextMark | None = None
        self.is_alone = False

    def show(self) -> None:
        words = ngettext("{count} unchanged line", "{count} unchanged lines", self.fold.size)
        for button in self.buttons:
            button.set_label(words.format(count=number(self.fold.size)))

    def remove(self) -> None:
        for button in self.buttons:
            row = button.get_parent()
            if isinstance(row, Gtk.Box):
                row.remove(button)


class SectionButtons(Gtk.Box):
    """The buttons of a section, at the start of its row to stay visible in a narrow one."""

    def __init__(self, section: DiffSection, act: Callable[..., object], *, is_busy: bool) -> None:
        super().__init__(spacing=6)
        self.set_direction(Gtk.TextDirection.LTR)
        self.section = section
        self._act = act
        self._is_busy = is_busy

    def show_actions(self, actions: Sequence[Action]) -> None:
        """Replace the buttons, and keep the focus."""
        had_focus = self.get_focus_child() is not None
        for child in children_of(self):
            self.remove(child)
        for action in actions:
            self.append(self._button(action) if action.name else _quiet(action.label))
        self.set_visible(bool(actions))
        if had_focus:
            self.focus()

    def set_busy(self, is_busy: bool) -> None:
        self._is_busy = is_busy
        for child in children_of(self):
            if isinstance(child, ActionButton):
                child.set_busy(is_busy)

    def focus(self) -> bool:
        """Focus the first button. Return whether there is one."""
        return self.child_focus(Gtk.DirectionType.TAB_FORWARD)

    def _button(self, action: Action) -> Gtk.Button:
        button = ActionButton(action, is_busy=self._is_busy)
        button.add_css_class("caption")
        button.connect("clicked", self._act, self.section.index, action.name)
        place = number(self.section.index + 1)
        description = _("{action}, hunk {number}").format(action=action.label, number=place)
        set_accessible_name(button, description)
        return button


def _quiet(words: str) -> Gtk.Label:
    return Gtk.Label(label=words, css_classes=["caption", "dim-label"])


# Pixels. Below this width, two columns are too narrow to read; and from this one on, as in a window
# of 1100 pixels that it fills, there are two unless the user prefers one.
_NARROW, _WIDE = 600, 1080
# Lines that are inserted in one step; and the seconds and milliseconds of work and rest.
_PIECE, _BUDGET, _PAUSE = 30, 0.004, 12


@Gtk.Template(filename=template("diff/view"))
class DiffView(Gtk.Box):
    __gtype_name__ = "OllmDiffView"

    __gsignals__ = signals(
        {
            # A button of a section was pressed: the section's index, and the action.
            "section-action": (int, str),
            # Everything is there that is shown for now.
            "loaded": (),
        }
    )

    bar = Gtk.Template.Child()
    previous = Gtk.Template.Child()
    next = Gtk.Template.Child()
    summary = Gtk.Template.Child()
    side_toggle = Gtk.Template.Child()
    stack = Gtk.Template.Child()
    spinner = Gtk.Template.Child()
    same_label = Gtk.Template.Child()
    panes = Gtk.Template.Child()

    def __init__(self, most_sections: int = 100) -> None:
        """Each section has widgets, so more are only shown on request."""
        super().__init__()
        self._most_sections = most_sections
        self.diff: Diff | None = None
        self._path = ""
        self._actions_of: Callable[[DiffSection], Sequence[Action] | None] = lambda _section: ()
        self._buttons: list[SectionButtons] = []
        self._is_busy = False
        # Whether the owner wants two columns, and what the user has chosen with the button.
        self.prefers_two = False
        # Whether it is as high as its text, and does not scroll by itself.
        self.is_whole = False
        self._has_chosen_two: bool | None = None
        self._ticket = 0
        # Held here, so that a thread never frees it. See weak_reference.
        self._when_compared = weakly(self._compared)
        self._timer = Timer(self._load)
        # Not at once: the width changes during layout.
        self._check = Timer(self._relayout)
        self._columns: list[DiffPane] = []
        self._syntax: Syntax | None = None
        self._waiting: deque[DiffSection | Fold | tuple[Line, ...]] = deque()
        # Where each section begins: marks move with the text.
        self._section_marks: list[Gtk.TextMark] = []
        self._folded: list[FoldButtons] = []
        self._folds_before: dict[int, Fold] = {}
        self._left = most_sections
        # The index of the section that was last gone to; -1 at first.
        self.current = -1
        self.previous.connect("clicked", weakly(self._go), -1)
        self.next.connect("clicked", weakly(self._go), 1)
        follow_theme(SignalHandlers(self), self._theme_changed)
        self._toggled = self.side_toggle.connect("toggled", weakly(self._on_side_toggled))
        for keys, by in (("<Alt>Up", -1), ("<Alt>Down", 1)):
            add_shortcut(self, keys, self._go, None, by, phase=Gtk.PropagationPhase.CAPTURE)

    # --- for the owner -------------------------------------------------------------------------

    def set_section_actions(self, find: Callable[[DiffSection], Sequence[Action] | None]) -> None:
        """Set the function that returns the actions of a section."""
        self._actions_of = find
        self.refresh_actions()

    def take_bar(self) -> Gtk.Widget:
        """Return the buttons that lead through the diff, for the owner to put elsewhere."""
        self.remove(self.bar)
        return self.bar

    def refresh_actions(self) -> None:
        for buttons in self._buttons:
            buttons.show_actions(self._actions_of(buttons.section) or ())

    def set_busy(self, is_busy: bool) -> None:
        self._is_busy = is_busy
        for buttons in self._buttons:
            buttons.set_busy(is_busy)

    def show_texts(self, old: str, new: str, path: str) -> None:
        """Compare and show two versions. Compares on a thread, because it may take seconds."""
        self._ticket += 1
        self._path = path
        self.diff = None
        self._stop()
        self.summary.set_label("")
        self.stack.set_visible_child_name("waiting")
        self.spinner.start()
        done, ticket = self._when_compared, self._ticket

        def work() -> None:
            diff = compare(old, new)
            GLib.timeout_add(0, done, ticket, diff)

        start_daemon("diff", work)

    @property
    def is_loaded(self) -> bool:
        return self.diff is not None and not self._timer.is_running

    @property
    def is_side_by_side(self) -> bool:
        return len(self._columns) == 2

    def go_to_change(self, index: int) -> None:
        if not 0 <= index < len(self._section_marks):
            return
        self.current = index
        buffer = self._columns[-1].buffer
        line = buffer.get_iter_at_mark(self._section_marks[index]).get_line()
        for each in self._columns:
            each.scroll_to(line)
        self._show_summary()

    def focus_change(self, index: int) -> None:
        """Go to the section, or the one that took its place, and focus it."""
        index = min(index, len(self._section_marks) - 1)
        self.go_to_change(index)
        if index >= 0 and not self._buttons[index].focus():
            self._columns[-1].view.grab_focus()

    # --- what is shown -------------------------------------------------------------------------

    def _compared(self, ticket: int, diff: Diff) -> bool:
        if ticket == self._ticket:
            self.diff = diff
            self.spinner.stop()
            self._rebuild()
        return GLib.SOURCE_REMOVE

    def _stop(self) -> None:
        self._timer.stop()
        self._waiting.clear()

    def _rebuild(self) -> None:
        diff = self.diff
        if diff is None:
            return
        self._stop()
        for column in self._columns:
            self.panes.remove(column.widget)
        self._columns = []
        self._section_marks = []
        self._buttons = []
        self._folded = []
        self.current = -1
        self._left = self._most_sections
        self._show_summary()
        # Without differences, there is nothing to navigate.
        self.bar.set_visible(bool(diff.sections))
        if not diff.sections:
            empty = _("Empty file") if not diff.new else _("No differences in the text")
            self.same_label.set_label(empty)
            self.stack.set_visible_child_name("same")
            self.emit("loaded")
            return
        self._make_columns(diff)
        self.stack.set_visible_child_name("diff")
        self._plan(diff)
        self._timer.start(_PAUSE)

    def _plan(self, diff: Diff) -> None:
        """Queue what is to be inserted. A fold shares the row of the section after it."""
        parts = diff.parts
        self._folds_before = {
            after.index: fold
            for fold, after in pairwise(parts)
            if isinstance(fold, Fold) and isinstance(after, DiffSection)
        }
        last = parts[-1]
        self._waiting.extend(diff.sections)
        if isinstance(last, Fold):
            self._waiting.append(last)

    def _make_columns(self, diff: Diff) -> None:
        self._syntax = syntax = Syntax(diff, self._path)
        self._digits = len(str(max(len(diff.old), len(diff.new), 1)))
        if self._wants_two():
            names = (_("Before"), _("After"))
            self._columns = [DiffPane(syntax, self._digits + 2, name) for name in names]
            link_panes(*self._columns)
        else:
            self._columns = [DiffPane(syntax, 2 * self._digits + 3, _("Changes"))]
        for column in self._columns:
            if self.is_whole:
                column.widget.set_policy(Gtk.PolicyType.AUTOMATIC, Gtk.PolicyType.NEVER)
            self.panes.append(column.widget)
            width = column.widget.get_hadjustment()
            width.connect("notify::page-size", self._check.soon)

    def _wants_two(self) -> bool:
        return self._prefers_two() and self.get_width() >= _NARROW

    def _prefers_two(self) -> bool:
        if self._has_chosen_two is not None:
            return self._has_chosen_two
        return self.prefers_two or self.get_width() >= _WIDE

    def _load(self) -> bool:
        until = time.monotonic() + _BUDGET
        while self._waiting and time.monotonic() < until:
            part = self._waiting.popleft()
            at = len(self._columns[0])
            if isinstance(part, tuple):
                if self._syntax and not self._syntax.is_ready(part[:_PIECE], until):
                    self._waiting.appendleft(part)
                    break
                self._put(at, part[:_PIECE])
                if len(part) > _PIECE:
                    self._waiting.appendleft(part[_PIECE:])
            elif isinstance(part, Fold):
                self._put_header(at, None, part)
            elif self._left:
                self._left -= 1
                self._put_header(at, part, self._folds_before.get(part.index))
                self._waiting.appendleft(part.lines)
            else:
                self._waiting.appendleft(part)
                self._put_more(at)
                return self._end_load()
        return bool(self._waiting) or self._end_load()

    def _end_load(self) -> bool:
        self.emit("loaded")
        return False

    def _put(self, at: int, lines: Sequence[Line]) -> None:
        if len(self._columns) == 1:
            self._columns[0].insert(at, [unified(line, self._digits) for line in lines])
            return
        both = list(pairs(lines))
        self._columns[0].insert(at, [side(old, self._digits, is_new=False) for old, _n in both])
        self._columns[1].insert(at, [side(new, self._digits, is_new=True) for _o, new in both])

    def _put_header(self, at: int, section: DiffSection | None, fold: Fold | None) -> None:
        """Insert the row above a section, with the fold before it; or only a fold, at the end."""
        folded = FoldButtons(fold) if fold else None
        buttons = (
            SectionButtons(section, weakly(self._act), is_busy=self._is_busy) if section else None
        )
        # The lines of both columns stay beside each other.
        heights = Gtk.SizeGroup(mode=Gtk.SizeGroupMode.VERTICAL)
        for column in self._columns:
            row = Gtk.Box(spacing=6, css_classes=["hunk"])
            heights.add_widget(row)
            is_last = column is self._columns[-1]
            if buttons and is_last:
                row.append(buttons)
            if folded:
                button = Gtk.Button(css_classes=["flat", "caption", "fold"])
                button.set_tooltip_text(_("Show These Lines"))
                button.connect("clicked", weakly(self._unfold), len(self._folded))
                folded.buttons.append(button)
                row.append(button)
            if section:
                start = section.group.new_start if is_last else section.group.old_start
                row.append(_quiet(_("Line {number}").format(number=start + 1)))
            column.insert_widget(at, row)
        buffer = self._columns[-1].buffer
        mark = buffer.create_mark(None, buffer.get_iter_at_line(at)[1], left_gravity=False)
        if buttons:
            self._section_marks.append(mark)
            self._buttons.append(buttons)
            buttons.show_actions(self._actions_of(buttons.section) or ())
        if folded:
            folded.mark = mark
            folded.is_alone = section is None
            folded.show()
            self._folded.append(folded)

    def _put_more(self, at: int) -> None:
        for column in self._columns:
            button = Gtk.Button(label=_("Show More Hunks"), css_classes=["flat", "caption"])
            button.connect("clicked", weakly(self._show_more))
            column.insert_widget(at, button)

    # --- what the user does ----------------------------------------------------------------------

    def _act(self, _button: Gtk.Button, index: int, action: str) -> None:
        self.emit("section-action", index, action)

    def _unfold(self, _button: Gtk.Button, number: int) -> None:
        folded = self._folded[number]
        if self.diff is None or folded.mark is None:
            return
        fold, last = folded.fold, self._columns[-1]
        size = min(fold.size, 200)
        lines = self.diff.unfold(Fold(fold.old_start, fold.new_start, size))
        if self._syntax:
            self._syntax.is_ready(lines, time.monotonic() + 0.05)
        last.view.grab_focus()
        self._put(last.buffer.get_iter_at_mark(folded.mark).get_line(), lines)
        if fold.size > size:
            folded.fold = Fold(fold.old_start + size, fold.new_start + size, fold.size - size)
            folded.show()
        elif folded.is_alone:
            at = last.buffer.get_iter_at_mark(folded.mark).get_line()
            for column in self._columns:
                column.remove(at)
        else:
            folded.remove()

    def _show_more(self, _button: Gtk.Button) -> None:
        self._columns[-1].view.grab_focus()
        for column in self._columns:
            column.remove(len(column) - 1)
        self._left = self._most_sections
        self._timer.start(_PAUSE)

    def _go(self, _widget: Gtk.Widget | None, by: int) -> None:
        count = len(self._section_marks)
        if count:
            self.go_to_change(max(0, min(count - 1, self.current + by)))

    def _show_summary(self) -> None:
        diff = self.diff
        if diff is None:
            return
        counts = line_counts(diff.added, diff.removed)
        if self.current >= 0:
            place = _("Hunk {number} of {count}").format(
                number=number(self.current + 1), count=number(len(diff.sections))
            )
        else:
            count = len(diff.sections)
            place = ngettext("{count} hunk", "{count} hunks", count).format(count=number(count))
        has_many = len(diff.sections) > 1 and not self.is_whole
        # The counts come first, and stay complete where there is little room.
        parts = [counts, place] if has_many else [counts]
        self.summary.set_width_chars(len(counts) if len(counts) > 1 else -1)
        # There is nothing to go to otherwise. A narrow view has room for one row; the keys go on.
        for button in (self.previous, self.next):
            button.set_visible(has_many and self.get_width() >= _NARROW)
        if diff.has_crlf and any("\r" in line for line in diff.new[:1] or diff.old[:1]):
            parts.append(_("Windows line endings"))
        self.summary.set_label(" · ".join(filter(None, parts)))

    # --- two columns -----------------------------------------------------------------------------

    def _on_side_toggled(self, toggle: Gtk.ToggleButton) -> None:
        self._has_chosen_two = toggle.get_active()
        self._relayout()

    def _relayout(self) -> None:
        is_wide = self.get_width() >= _NARROW
        with self.side_toggle.handler_block(self._toggled):
            self.side_toggle.set_active(self._prefers_two())
        if self._columns and self._wants_two() != self.is_side_by_side:
            self._rebuild()
        self.side_toggle.set_visible(is_wide)
        self._show_summary()

    def _theme_changed(self, *_args: object) -> None:
        for column in self._columns:
            column.repaint()
        if self._syntax is not None:
            self._syntax.repaint()
