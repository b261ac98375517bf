# SPDX-License-Identifier: GPL-3.0-or-later
"""Three small curves of what a running command uses: processor, memory and disk."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence

import cairo
from gi.repository import Gdk, Gtk, Pango

from ...i18n import _
from ...sandbox.process import disk_bytes_below
from ..resources import template
from ..widgets.weak import weakly
from .usage import Sample, Sampler, amount, cpu_text, watch

POINTS = 60
# The curve keeps off the edges, where half of the line would be cut off.
_EDGE = 1.5
# Full height means at least this much, so that a quiet command does not look busy.
_LEAST_CPU, _LEAST_MEMORY, _LEAST_WRITTEN = 100.0, 64e6, 1e6


class Curve(Gtk.Box):
    """A curve with its latest value below."""

    def __init__(self, colour: str, least: float) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=3)
        self._colour = colour
        self._least = least
        self._values: deque[float] = deque(maxlen=POINTS)
        self._area = Gtk.DrawingArea(content_height=28)
        self._area.set_draw_func(weakly(self._draw))
        # Where there is little room, the value wraps below its name.
        self._label = Gtk.Label(
            xalign=0,
            wrap=True,
            wrap_mode=Pango.WrapMode.WORD_CHAR,
            lines=2,
            ellipsize=Pango.EllipsizeMode.END,
            css_classes=["caption", "numeric"],
        )
        self.text = ""
        self.append(self._area)
        self.append(self._label)

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self._values)

    def add(self, value: float, text: str) -> None:
        self._values.append(value)
        self.text = text
        # Keep a number and its unit together.
        self._label.set_label("\N{NO-BREAK SPACE}".join(text.rsplit(" ", 1)))
        self._label.set_tooltip_text(text)
        self._area.queue_draw()

    def _draw(self, area: Gtk.DrawingArea, context: cairo.Context, width: int, height: int) -> None:
        colour = _named(area, self._colour)
        text = area.get_style_context().get_color()
        context.set_source_rgba(text.red, text.green, text.blue, 0.15)
        context.rectangle(0, height - 1, width, 1)
        context.fill()
        points = curve_points(self._values, width, height, self._least)
        if len(points) < 2:
            return
        context.set_line_join(cairo.LineJoin.ROUND)
        context.set_line_width(1.5)
        for x, y in points:
            context.line_to(x, y)
        context.set_source_rgba(colour.red, colour.green, colour.blue, 1)
        context.stroke_preserve()
        context.line_to(points[-1][0], height)
        context.line_to(points[0][0], height)
        context.close_path()
        context.set_source_rgba(colour.red, colour.green, colour.blue, 0.2)
        context.fill()


def curve_points(
    values: Sequence[float] | deque[float], width: int, height: int, least: float
) -> list[tuple[float, float]]:
    """Return the points, with the newest at the right; none before there are two."""
    if len(values) < 2 or width <= 0:
        return []
    top = max(least, *values)
    room = height - 2 * _EDGE
    step = width / (POINTS - 1)
    left = width - step * (len(values) - 1)
    return [
        (left + step * number, height - _EDGE - room * (value / top if top else 0))
        for number, value in enumerate(values)
    ]


def _named(widget: Gtk.Widget, name: str) -> Gdk.RGBA:
    found, colour = widget.get_style_context().lookup_color(name)
    return colour if found else widget.get_style_context().get_color()


@Gtk.Template(filename=template("terminal/graph"))
class UsageGraph(Gtk.Box):
    __gtype_name__ = "OllmUsageGraph"

    def __init__(self) -> None:
        super().__init__()
        self.cpu = Curve("blue_3", _LEAST_CPU)
        self.memory = Curve("purple_3", _LEAST_MEMORY)
        self.written = Curve("green_4", _LEAST_WRITTEN)
        for curve in (self.cpu, self.memory, self.written):
            self.append(curve)
        self.description = ""
        self.update_property([Gtk.AccessibleProperty.LABEL], [_("Resource usage")])

    def add(self, sample: Sample) -> None:
        if sample.cpu is not None and math.isfinite(sample.cpu):
            self.cpu.add(sample.cpu, cpu_text(sample.cpu))
        self.memory.add(sample.memory, _("Memory {size}").format(size=amount(sample.memory)))
        self.written.add(sample.written, _("Written {size}").format(size=amount(sample.written)))
        self.description = sample.text
        self.update_property([Gtk.AccessibleProperty.DESCRIPTION], [sample.text])


class UsageWatch:
    def __init__(self, pid: int) -> None:
        self.graph = UsageGraph()
        work = watch(Sampler(pid, lambda: disk_bytes_below(pid)), weakly(self.graph.add))
        # Cancelled when the call ends; the process may live on for a moment.
        self._task = asyncio.get_event_loop().create_task(work)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def stop(self) -> None:
        """Stop taking samples; the curves stay."""
        self._task.cancel()
