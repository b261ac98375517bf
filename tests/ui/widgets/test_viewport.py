# SPDX-License-Identifier: GPL-3.0-or-later
"""Columns draw what is in view, all of it, and nothing else."""

from __future__ import annotations

import pytest
from gi.repository import Gdk, Graphene, Gtk
from support.screen import Screen, children, draw_frames

from ollmsandbox.ui.widgets import viewport as module
from ollmsandbox.ui.widgets.viewport import AnchoredViewport, VisibleColumn

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


def test_all_in_view_is_drawn_wherever_it_is(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    end = page.scroller.get_vadjustment().get_upper()
    for value in (end, end - 500, 0, 33, 350, 2000, 1990, 5000, 2500):
        page.scroll(value)
        assert page.picture() == page.whole_picture(monkeypatch), value


def test_what_others_bring_into_view_is_drawn(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
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


class Text:
    """Groups of long paragraphs, as in an answer that is higher than the view."""

    def __init__(self, screen: Screen) -> None:
        self.column = VisibleColumn()
        self.labels: list[Gtk.Label] = []
        self.rows = VisibleColumn(waits=True)
        for _group in range(30):
            group = VisibleColumn(spacing=3, waits=True)
            for _number in range(10):
                words = f"{len(self.labels)} " + "some words that are wrapped " * 6
                label = Gtk.Label(label=words, wrap=True, xalign=0)
                group.append(label)
                self.labels.append(label)
            self.rows.append(group)
        row = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        row.append(self.rows)
        page = VisibleColumn()
        page.append(row)
        self.column.append(page)
        self.viewport = AnchoredViewport(self.column, self.column)
        self.scroller = Gtk.ScrolledWindow(
            child=self.viewport, hscrollbar_policy=Gtk.PolicyType.NEVER, hexpand=True
        )
        self.scroller.get_vadjustment().connect("value-changed", self.viewport.note_value)
        self.beside = Gtk.Box(width_request=200, visible=False)
        both = Gtk.Box()
        both.append(self.scroller)
        both.append(self.beside)
        screen.show(both, 500, HEIGHT)
        draw_frames(self.scroller, 4)

    def narrow(self) -> None:
        self.beside.set_visible(True)
        draw_frames(self.scroller, 4)
        assert self.rows.get_width() <= 300

    def in_view(self) -> list[int]:
        places = [(n, *self.viewport.place_of(label)) for n, label in enumerate(self.labels)]
        return [n for n, top, bottom in places if bottom > 0 and top < HEIGHT]

    def is_laid_out(self, number: int) -> bool:
        label = self.labels[number]
        width = label.get_width()
        return (
            width == self.rows.get_width()
            and label.get_height() == label.measure(Gtk.Orientation.VERTICAL, width)[1]
        )


@pytest.fixture
def text(screen: Screen) -> Text:
    return Text(screen)


def test_another_width_lays_out_only_what_is_near_the_view(text: Text) -> None:
    text.narrow()
    laid_out = [n for n in range(len(text.labels)) if text.is_laid_out(n)]
    assert text.in_view()[-1] == len(text.labels) - 1
    assert set(text.in_view()) <= set(laid_out)
    assert len(laid_out) < 50


@pytest.mark.parametrize("share", [0.0, 0.33, 0.5, 0.97])
def test_after_another_width_all_that_comes_into_view_is_laid_out(text: Text, share: float) -> None:
    text.narrow()
    adjustment = text.scroller.get_vadjustment()
    adjustment.set_value(adjustment.get_upper() * share)
    draw_frames(text.scroller, 4)
    assert all(map(text.is_laid_out, text.in_view()))
    for step in (-300, -300, -300, 700, 700):
        # The text moves by as much as the user scrolls, though estimates above it become heights.
        before = {n: text.viewport.place_of(text.labels[n])[0] for n in text.in_view()}
        value = adjustment.get_value()
        wanted = min(max(value + step, 0.0), adjustment.get_upper() - HEIGHT)
        adjustment.set_value(wanted)
        draw_frames(text.scroller, 4)
        seen = text.in_view()
        assert seen == list(range(seen[0], seen[-1] + 1))
        assert all(map(text.is_laid_out, seen))
        for n in set(seen) & set(before) if 0 < wanted < adjustment.get_upper() - HEIGHT else ():
            assert text.viewport.place_of(text.labels[n])[0] == before[n] - (wanted - value)


def test_the_user_reads_on_at_the_same_paragraph_after_another_width(text: Text) -> None:
    adjustment = text.scroller.get_vadjustment()
    adjustment.set_value(adjustment.get_upper() / 2)
    draw_frames(text.scroller, 4)
    first, second, *_ = text.in_view()
    text.narrow()
    assert text.in_view()[0] in (first, second)
    assert all(map(text.is_laid_out, text.in_view()))
