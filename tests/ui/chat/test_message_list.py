# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of messages: it follows the end, and nothing moves while the user reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from gi.repository import Gtk
from support.screen import Screen, draw_frames, one_of, spin_until, texts

from ollmsandbox.ui.chat.message_list import PAGE, MessageList


@dataclass(eq=False)
class Item:
    name: str
    height: int = 60


@dataclass
class Maker:
    """Makes rows, and counts."""

    made: list[Item] = field(default_factory=list)

    def row(self, item: Item) -> Gtk.Widget:
        self.made.append(item)
        button = Gtk.Button(label=item.name)
        button.set_size_request(-1, item.height)
        return button


@pytest.fixture
def maker() -> Maker:
    return Maker()


def items(count: int) -> list[Item]:
    return [Item(f"item {n}", 40 + n * 37 % 150) for n in range(count)]


def column_of(
    screen: Screen, maker: Maker, many: list[Item], height: int = 400
) -> MessageList[Item]:
    column: MessageList[Item] = MessageList(maker.row)
    column.set_items(many)
    screen.show(column, 400, height)
    wait_for_layout(column)
    return column


def wait_for_layout(column: MessageList[Item]) -> None:
    """Wait until the visible rows exist and stay where they are."""

    def state() -> tuple[object, ...]:
        built = tuple(item.name for item in column.items if column.row_of(item))
        adjustment = column.get_vadjustment()
        return built, adjustment.get_value(), adjustment.get_upper(), column.at_end

    last: list[object] = [None, None, None]

    def steady() -> bool:
        draw_frames(column, 1)
        last.append(state())
        return bool(seen(column)) and last[-1] == last[-2] == last[-3] == last[-4]

    spin_until(steady)


def place(column: MessageList[Item], item: Item) -> float:
    """Return the position of its upper edge in the window."""
    row = column.row_of(item)
    assert row is not None
    known, bounds = row.compute_bounds(column)
    assert known
    return float(bounds.get_y())


def seen(column: MessageList[Item]) -> list[Item]:
    built = [item for item in column.items if column.row_of(item)]
    return [item for item in built if column.is_in_view(item)]


def move(column: MessageList[Item], by: float) -> None:
    """Scroll as the mouse wheel does."""
    adjustment = column.get_vadjustment()
    adjustment.set_value(adjustment.get_value() + by)


def test_the_last_entries_are_shown_and_earlier_on_demand(screen: Screen, maker: Maker) -> None:
    many = items(2 * PAGE + 50)
    column = column_of(screen, maker, many)
    assert len(maker.made) == PAGE
    assert many[-1] in seen(column)
    for left in (50, 0):
        move(column, -100_000)
        wait_for_layout(column)
        assert column.earlier_button.get_mapped()
        reading = seen(column)[0]
        before = place(column, reading)
        column.earlier_button.emit("clicked")
        wait_for_layout(column)
        assert place(column, reading) == before
        assert [item for item in many if not column.row_of(item)] == many[:left]
    assert not column.earlier_button.get_visible()


def test_following_the_end_drops_what_is_older(screen: Screen, maker: Maker) -> None:
    many = items(PAGE)
    column = column_of(screen, maker, many)
    column.append(Item("new"))
    wait_for_layout(column)
    assert [item for item in column.items if not column.row_of(item)] == many[:1]
    assert column.earlier_button.get_visible()
    move(column, -500)
    wait_for_layout(column)
    column.append(Item("newer"))
    wait_for_layout(column)
    assert [item for item in column.items if not column.row_of(item)] == many[:1]


def test_it_follows_the_end_until_the_user_scrolls_up(screen: Screen, maker: Maker) -> None:
    many = items(100)
    column = column_of(screen, maker, many)
    last = many[-1]
    assert column.at_end
    assert place(column, last) + last.height == column.get_height()
    new = Item("new", 90)
    column.append(new)
    wait_for_layout(column)
    assert place(column, new) + 90 == column.get_height()
    row = column.row_of(new)
    assert row is not None
    row.set_size_request(-1, 200)
    wait_for_layout(column)
    assert place(column, new) + 200 == column.get_height()
    assert column.at_end
    changes: list[bool] = []
    column.connect("notify::at-end", lambda *_: changes.append(column.at_end))
    move(column, -5)  # however little
    wait_for_layout(column)
    assert not column.at_end
    reading = seen(column)[0]
    before = place(column, reading)
    for _number in range(3):
        column.append(Item("more"))
        wait_for_layout(column)
    assert place(column, reading) == before
    column.scroll_to_end()
    wait_for_layout(column)
    assert column.at_end
    assert column.items[-1] in seen(column)
    assert changes == [False, True]


def test_visible_rows_stay_in_place_whatever_happens_above(screen: Screen, maker: Maker) -> None:
    many = items(300)
    column = column_of(screen, maker, many)
    column.scroll_to(many[150])
    wait_for_layout(column)
    assert place(column, many[150]) == 0
    above = column.row_of(many[148])
    assert above is not None
    above.set_size_request(-1, 500)
    wait_for_layout(column)
    assert place(column, many[150]) == 0
    column.insert(3, Item("inserted", 333))
    wait_for_layout(column)
    assert place(column, many[150]) == 0
    for item in (many[149], many[5]):
        column.remove_at(column.items.index(item))
    wait_for_layout(column)
    assert place(column, many[150]) == 0


def test_the_focus_leads_into_view_and_is_kept(screen: Screen, maker: Maker) -> None:
    many = items(100)
    column = column_of(screen, maker, many)
    column.scroll_to(many[50])
    wait_for_layout(column)
    window = column.get_root()
    assert isinstance(window, Gtk.Window)
    first = column.row_of(many[50])
    assert first is not None
    first.grab_focus()
    for number in range(51, 62):
        # As each press of Tab does: GTK takes it back after three seconds without a key.
        window.set_focus_visible(True)
        assert column.child_focus(Gtk.DirectionType.TAB_FORWARD)
        wait_for_layout(column)
        assert window.get_focus() is column.row_of(many[number])
        assert column.is_in_view(many[number])
    # The wheel leads away, the focus does not get lost.
    for _step in range(6):
        move(column, -700)
        wait_for_layout(column)
    assert window.get_focus() is column.row_of(many[61])
    assert not column.is_in_view(many[61])


def test_its_rows_have_the_roles_of_a_list(screen: Screen, maker: Maker) -> None:
    column = column_of(screen, maker, items(3))
    row = one_of(column, Gtk.Button, "item 1").get_parent()
    assert row is not None
    assert row.get_accessible_role() is Gtk.AccessibleRole.LIST_ITEM
    page = row.get_parent()
    around = page.get_parent() if page is not None else None
    assert around is not None
    assert around.get_accessible_role() is Gtk.AccessibleRole.LIST


class Restless(Gtk.Widget):
    """Asks for another height while it is given its place, as a text does that was added to."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = False
        self.drawn = 0

    def do_measure(self, orientation: Gtk.Orientation, _for: int) -> tuple[int, int, int, int]:
        return 50, 50, -1, -1

    def do_size_allocate(self, _width: int, _height: int, _baseline: int) -> None:
        if self.asks:
            self.asks = False
            self.queue_resize()

    def do_snapshot(self, _snapshot: Gtk.Snapshot) -> None:
        self.drawn += 1


def test_a_row_that_asks_for_another_height_meanwhile_stays_in_sight(screen: Screen) -> None:
    rows = [Restless() for _ in range(30)]
    column: MessageList[Restless] = MessageList(lambda row: row)
    column.set_items(rows)
    inner = Gtk.Box(hexpand=True)
    inner.append(column)
    column.set_hexpand(True)
    outer = Gtk.Box()
    outer.append(inner)
    screen.show(outer, 400, 400)
    spin_until(lambda: rows[-1].drawn)
    column.get_vadjustment().set_value(300)
    draw_frames(column, 3)
    seen_rows = [row for row in rows if column.is_in_view(row)]
    for row in seen_rows:
        row.asks = True
        row.queue_allocate()
        around = row.get_parent()
        assert around is not None
        around.queue_allocate()
    # A pane slides in beside it, and the user scrolls.
    outer.queue_allocate()
    column.get_vadjustment().set_value(290)
    draw_frames(outer, 3)
    assert not any(row.asks for row in seen_rows)
    for row in seen_rows:
        row.drawn = 0
        row.queue_draw()
    spin_until(lambda: all(row.drawn for row in seen_rows))


def test_a_row_that_cannot_be_made_does_not_affect_others(screen: Screen) -> None:
    good, bad, later = Item("good"), Item("bad"), Item("later")

    def row(item: Item) -> Gtk.Widget:
        if item is bad:
            raise ValueError("no such colour")
        return Gtk.Button(label=item.name)

    column: MessageList[Item] = MessageList(row)
    column.set_items([bad, good])
    screen.show(column, 400, 400)
    spin_until(lambda: column.row_of(good))
    column.append(later)
    spin_until(lambda: column.row_of(later))
    stand_in = column.row_of(bad)
    assert stand_in is not None
    assert texts(stand_in) == ["Something went wrong: no such colour"]
    screen.expect_trouble("no such colour")


def test_an_item_is_inserted_far_above_the_end(screen: Screen, maker: Maker) -> None:
    many = items(2 * PAGE + 50)
    column = column_of(screen, maker, many)
    column.earlier_button.emit("clicked")
    wait_for_layout(column)
    column.scroll_to_end()
    wait_for_layout(column)
    # Following the end, it drops what is older: also what was just inserted.
    column.insert(100, Item("inserted"))
    wait_for_layout(column)
    assert [item.name for item in column.items[99:102]] == ["item 99", "inserted", "item 100"]
    column.set_items(items(3))
    wait_for_layout(column)
    assert len(seen(column)) == 3


def test_the_row_below_takes_the_place_of_one_that_is_removed(screen: Screen, maker: Maker) -> None:
    many = items(2 * PAGE)
    column = column_of(screen, maker, many)
    column.earlier_button.emit("clicked")
    wait_for_layout(column)
    # Also where a page of rows ends.
    for number in (PAGE - 1, 50):
        column.scroll_to(many[number])
        wait_for_layout(column)
        column.remove_at(column.items.index(many[number]))
        wait_for_layout(column)
        assert place(column, many[number + 1]) == 0
