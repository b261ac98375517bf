# SPDX-License-Identifier: GPL-3.0-or-later
"""A box that breaks into several lines where one does not fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from gi.repository import GObject, Graphene, Gsk, Gtk

from .labels import children_of

_Line = Sequence[Gtk.Widget]


class WrapBox(Gtk.Widget):
    """Shows groups of widgets in one line, or as few lines as each group needs."""

    __gtype_name__ = "OllmWrapBox"

    spacing = GObject.Property(type=int, default=6)
    row_spacing = GObject.Property(type=int, default=6)
    # In one line: the first group at the start, the others at the end. Or all of them at the end.
    spread = GObject.Property(type=bool, default=False)
    # The first widget becomes as narrow as it can be before there is another line.
    shrink = GObject.Property(type=bool, default=False)

    def __init__(self, **properties: object) -> None:
        super().__init__()
        self.set_properties(**properties)
        self._groups: list[_Line] = []
        self.connect("destroy", _unparent_all)

    def add_group(self, widgets: Sequence[Gtk.Widget]) -> None:
        for widget in widgets:
            widget.set_parent(self)
        self._groups.append(tuple(widgets))

    def clear(self) -> None:
        self._groups = []
        _unparent_all(self)

    def set_groups(self, *groups: _Line) -> None:
        """Group children that a template added."""
        self._groups = list(groups)

    # --- the layout ------------------------------------------------------------------------------

    @property
    def _shown(self) -> list[_Line]:
        """The visible widgets by group; without groups, each child is one."""
        groups = self._groups or [(child,) for child in children_of(self)]
        shown = [[widget for widget in group if widget.should_layout()] for group in groups]
        return [group for group in shown if group]

    def _natural(self, line: _Line) -> int:
        widths = [widget.measure(Gtk.Orientation.HORIZONTAL, -1)[1] for widget in line]
        return sum(widths) + self.spacing * max(0, len(widths) - 1)

    def _slack(self, line: _Line) -> int:
        """Return by how much the first widget of a line may be narrower."""
        least, natural, *_ = line[0].measure(Gtk.Orientation.HORIZONTAL, -1)
        return natural - least if self.shrink else 0

    def lines_for(self, width: int) -> list[_Line]:
        groups = self._shown
        together = [widget for group in groups for widget in group]
        if not together or width < 0 or self._natural(together) - self._slack(together) <= width:
            return [together] if together else []
        return [line for group in groups for line in self._fill(group, width)]

    def _fill(self, group: _Line, width: int) -> Sequence[_Line]:
        lines: list[list[Gtk.Widget]] = []
        for widget in group:
            if lines and self._natural([*lines[-1], widget]) <= width:
                lines[-1].append(widget)
            else:
                lines.append([widget])
        return lines

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(self, orientation: Gtk.Orientation, for_size: int) -> tuple[int, int, int, int]:
        widgets = [widget for group in self._shown for widget in group]
        if orientation is Gtk.Orientation.HORIZONTAL:
            least = max((widget.measure(orientation, -1)[0] for widget in widgets), default=0)
            return least, max(least, self._natural(widgets)), -1, -1
        lines = self.lines_for(for_size)
        heights = [self._height(line, for_size, is_only=len(lines) == 1) for line in lines]
        height = sum(heights) + self.row_spacing * max(0, len(lines) - 1)
        return height, height, -1, -1

    def do_size_allocate(self, width: int, _height_given: int, _baseline: int) -> None:
        lines = self.lines_for(width)
        y = 0
        for line in lines:
            is_only = len(lines) == 1
            height = self._height(line, width, is_only=is_only)
            place = self._places if is_only else self._shares
            for widget, x, wide in place(line, width):
                right = self.get_direction() is Gtk.TextDirection.RTL
                point = Graphene.Point().init(width - x - wide if right else x, y)
                widget.allocate(wide, height, -1, Gsk.Transform.new().translate(point))
            y += height + self.row_spacing

    def _height(self, line: _Line, width: int, *, is_only: bool) -> int:
        """Return the height of a line: a text that is too long for it is wrapped."""
        if width < 0:
            return max(widget.measure(Gtk.Orientation.VERTICAL, -1)[1] for widget in line)
        place = self._places if is_only else self._shares
        return max(
            widget.measure(Gtk.Orientation.VERTICAL, wide)[1]
            for widget, _x, wide in place(line, width)
        )

    def _places(self, line: _Line, width: int) -> Iterator[tuple[Gtk.Widget, int, int]]:
        rest = max(0, width - self._natural(line))
        missing = min(max(0, self._natural(line) - width), self._slack(line))
        gap_after = len(self._shown[0]) if self.spread else 0
        x = 0
        for number, widget in enumerate(line):
            if number == gap_after:
                x += rest
            # A widget that does not fit alone gets the width there is.
            wide = min(self._natural([widget]) - (0 if number else missing), width)
            yield widget, x, wide
            x += wide + self.spacing

    def _shares(self, line: _Line, width: int) -> Iterator[tuple[Gtk.Widget, int, int]]:
        """Fill a line: spread the remaining width over its widgets."""
        rest = (width - self._natural(line)) / len(line)
        x = 0.0
        for widget in line:
            wide = self._natural([widget]) + rest
            yield widget, round(x), round(x + wide) - round(x)
            x += wide + self.spacing


def _unparent_all(widget: Gtk.Widget) -> None:
    # At the end of the program, Python can import nothing any more, which Gtk's types may need.
    if sys.is_finalizing():
        return
    for child in children_of(widget):
        child.unparent()
