# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the row above a change: what is folded there, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from gettext import gettext as _
from gettext import ngettext

from gi.repository import Gtk

from .diff_model import Fold, Hunk


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


def add_buttons(
    row: Gtk.Box,
    hunk: Hunk,
    actions: Sequence[tuple[str, str]],
    act: Callable[..., object],
    *,
    is_last: bool,
) -> None:
    """Only the last column has them, first in the row: they are to be seen however narrow it is.
    The other is as high as that."""
    for name, label in actions:
        button = Gtk.Button(label=label, css_classes=["caption"])
        button.connect("clicked", act, hunk.index, name)
        description = _("{action}, change {number}").format(action=label, number=hunk.index + 1)
        button.update_property([Gtk.AccessibleProperty.LABEL], [description])
        if not is_last:
            button.set_opacity(0)
            button.set_sensitive(False)
            button.set_can_target(False)
        row.append(button)


def add_line(row: Gtk.Box, hunk: Hunk, *, is_last: bool) -> None:
    start = hunk.new_start if is_last else hunk.old_start
    words = _("Line {number}").format(number=start + 1)
    row.append(Gtk.Label(label=words, css_classes=["caption", "dim-label"]))
