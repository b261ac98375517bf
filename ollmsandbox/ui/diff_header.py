# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the row above a change: what is folded there, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from gettext import gettext as _
from gettext import ngettext

from gi.repository import Gtk

from .accessible import set_accessible_name
from .diff_model import Fold, Hunk
from .work_bar import hold

# Its name and its label. Without a name it is not to be pressed, and only says how it is.
Action = tuple[str, str]


class Folded:
    """Where lines are folded, on each side."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.buttons: list[Gtk.Button] = []
        # Of the last column, in the row of the buttons.
        self.mark: Gtk.TextMark | None = None
        self.is_alone = False

    def show(self) -> None:
        words = ngettext("{count} unchanged line", "{count} unchanged lines", self.fold.size)
        for button in self.buttons:
            button.set_label(words.format(count=f"{self.fold.size:,}"))

    def remove(self) -> None:
        for button in self.buttons:
            row = button.get_parent()
            if isinstance(row, Gtk.Box):
                row.remove(button)


class Verbs:
    """What can be done with one change. Only the last column has the buttons, first in the row:
    they are to be seen however narrow it is. The others are as high as that."""

    def __init__(self, hunk: Hunk, act: Callable[..., object], *, is_held: bool) -> None:
        self.hunk = hunk
        self._act = act
        self._boxes: list[Gtk.Box] = []
        self._is_held = is_held

    def add_to(self, row: Gtk.Box, *, can_press: bool) -> None:
        box = Gtk.Box(spacing=6, sensitive=can_press, can_target=can_press)
        box.set_opacity(1 if can_press else 0)
        box.set_direction(Gtk.TextDirection.LTR)
        row.append(box)
        self._boxes.append(box)

    def show(self, actions: Sequence[Action]) -> None:
        """In the place of those that were there, and the keyboard stays there."""
        for box in self._boxes:
            had_focus = box.get_focus_child() is not None
            while (child := box.get_first_child()) is not None:
                box.remove(child)
            for name, label in actions:
                box.append(self._button(name, label) if name else _quiet(label))
            box.set_visible(bool(actions))
            if had_focus:
                box.child_focus(Gtk.DirectionType.TAB_FORWARD)

    def hold(self, is_held: bool) -> None:
        """None is to be pressed meanwhile."""
        self._is_held = is_held
        for box in self._boxes:
            child = box.get_first_child()
            while child is not None:
                if isinstance(child, Gtk.Button):
                    hold(child, is_held)
                child = child.get_next_sibling()

    def focus(self) -> bool:
        """Of the last column."""
        return bool(self._boxes) and self._boxes[-1].child_focus(Gtk.DirectionType.TAB_FORWARD)

    def _button(self, name: str, label: str) -> Gtk.Button:
        button = Gtk.Button(label=label, css_classes=["caption"])
        button.connect("clicked", self._act, self.hunk.index, name)
        hold(button, self._is_held)
        number = self.hunk.index + 1
        description = _("{action}, change {number}").format(action=label, number=number)
        set_accessible_name(button, description)
        return button


def add_line(row: Gtk.Box, hunk: Hunk, *, is_last: bool) -> None:
    start = hunk.new_start if is_last else hunk.old_start
    words = _("Line {number}").format(number=start + 1)
    row.append(_quiet(words))


def _quiet(words: str) -> Gtk.Label:
    return Gtk.Label(label=words, css_classes=["caption", "dim-label"])
