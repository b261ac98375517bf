# SPDX-License-Identifier: GPL-3.0-or-later
"""Columns draw what is in view, all of it, and nothing else."""

from __future__ import annotations

import pytest
from gi.repository import Gdk, Graphene, Gtk
from support.screen import Screen, children, draw_frames

from ollmsandbox.ui.widgets import viewport as module
from ollmsandbox.ui.widgets.viewport import AnchoredViewport, VisibleColumn

pytestmark = pytest.mark.anybody

WIDTH, HEIGHT = 300, 400
AREA = Graphene.Rect().init(0, 0, WIDTH, HEIGHT)
BLACK = Gdk.RGBA()
BLACK.parse("black")


class Line(Gtk.Widget):
    """A line of text that says whether it was drawn."""

    def __init__(self, text: str, height: int) -> None:
        super().__init__(height_request=height)
        self._layout = self.create_pango_layout(text)
        self.was_drawn = False

    def do_snapshot(self, snapshot: Gtk.Snapshot) -> None:
        self.was_drawn = True
        snapshot.append_layout(self._layout, BLACK)


class Page:
    """Groups of lines in a column, of which a part is in view."""

    def __init__(self, screen: Screen) -> None:
        self.column = VisibleColumn(spacing=6)
        self.lines: list[Line] = []
        for group in range(20):
            lines = VisibleColumn(spacing=3)
            for number in range(10):
                line = Line(f"line {group}.{number}", 20 + (group * 7 + number * 13) % 50)
                lines.append(line)
                self.lines.append(line)
            self.column.append(lines)
        self.column.append(Gtk.Label(visible=False))
        self.viewport = AnchoredViewport(self.column, self.column)
        self.scroller = Gtk.ScrolledWindow(child=self.viewport)
        self.scroller.get_vadjustment().connect("value-changed", self.viewport.note_value)
        screen.show(self.scroller, WIDTH, HEIGHT)
        draw_frames(self.scroller, 4)

    def scroll(self, value: float) -> None:
        self.scroller.get_vadjustment().set_value(value)
        draw_frames(self.scroller, 4)

    def picture(self) -> bytes:
        snapshot = Gtk.Snapshot()
        self.scroller.snapshot_child(self.viewport, snapshot)
        node, native = snapshot.to_node(), self.viewport.get_native()
        assert node is not None and native is not None
        renderer = native.get_renderer()
        assert renderer is not None
        return bytes(renderer.render_texture(node, AREA).save_to_png_bytes().get_data() or b"")

    def whole_picture(self, monkeypatch: pytest.MonkeyPatch) -> bytes:
        """What it looks like if everything is drawn, in view or not."""
        with monkeypatch.context() as patch:
            patch.setattr(module, "_AROUND", 1_000_000)
            self._draw_again()
            picture = self.picture()
        self._draw_again()
        return picture

    def _draw_again(self) -> None:
        for column in (self.column, *children(self.column)):
            column.queue_draw()
        draw_frames(self.scroller, 2)


@pytest.fixture
def page(screen: Screen) -> Page:
    return Page(screen)


def test_only_what_is_in_view_is_drawn(page: Page) -> None:
    drawn = [line for line in page.lines if line.was_drawn]
    assert 5 < len(drawn) < 20
    assert drawn == page.lines[-len(drawn) :]
    page.scroll(0)
    assert page.lines[0].was_drawn
    assert not page.lines[100].was_drawn


def test_all_that_is_in_view_is_drawn_wherever_it_is(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = page.scroller.get_vadjustment().get_upper()
    for value in (end, end - 500, 0, 33, 350, 2000, 1990, 5000, 2500):
        page.scroll(value)
        assert page.picture() == page.whole_picture(monkeypatch), value


def test_what_comes_into_view_because_others_change_is_drawn(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.scroll(0)
    for hidden in (slice(1, 40), slice(60, 90)):
        for line in page.lines[hidden]:
            line.set_visible(False)
        draw_frames(page.scroller, 4)
        assert page.picture() == page.whole_picture(monkeypatch)
    for height in (500, 10):
        page.lines[0].set_size_request(-1, height)
        draw_frames(page.scroller, 4)
        assert page.picture() == page.whole_picture(monkeypatch)
    page.column.remove(next(children(page.column)))
    draw_frames(page.scroller, 4)
    assert page.picture() == page.whole_picture(monkeypatch)
