# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing halts the window that could be done when nobody looks."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from gi.repository import GLib, Gtk
from ui_helper import Screen, all_of, spin_until

from ollmsandbox.ui.markdown_view import MarkdownView
from ollmsandbox.ui.smoothness import Sweeper, keep_smooth
from ollmsandbox.ui.turns import is_late

pytestmark = pytest.mark.anybody


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was before, in the end."""
    thresholds, turn = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(turn)
    gc.unfreeze()


def old_knot() -> weakref.ref[Knot]:
    """Has been there for so long that only a look at everything finds it."""
    knot = Knot()
    for _ in range(20):
        gc.collect(1)
    return weakref.ref(knot)


def test_everything_is_looked_through_when_nothing_was_drawn(collector: None) -> None:
    drawn = 1
    sweeper = Sweeper(lambda: drawn)
    knot = old_knot()
    assert sweeper.look() is GLib.SOURCE_CONTINUE
    drawn = 2
    sweeper.look()
    assert knot() is not None
    sweeper.look()
    assert knot() is None


def test_everything_is_not_looked_through_while_much_is_made(collector: None) -> None:
    keep_smooth(lambda: 0)
    knot = old_knot()
    kept = [[number] for number in range(200_000)]
    assert len(kept) == 200_000
    assert knot() is not None


def test_everything_is_looked_through_at_last_though_there_is_no_quiet(collector: None) -> None:
    keep_smooth(lambda: 0)
    gc.set_threshold(100, 10, gc.get_threshold()[2])
    knot = old_knot()
    kept = [[number] for number in range(400_000)]
    assert len(kept) == 400_000
    assert knot() is None


def test_what_comes_after_something_long_in_one_turn_is_late(screen: Screen) -> None:
    found: list[bool] = []

    def first() -> bool:
        found.append(is_late())
        began = GLib.get_monotonic_time()
        while GLib.get_monotonic_time() < began + 50_000:
            pass
        return GLib.SOURCE_REMOVE

    def second() -> bool:
        found.append(is_late())
        return GLib.SOURCE_REMOVE

    GLib.idle_add(first)
    GLib.idle_add(second)
    spin_until(lambda: len(found) == 2)
    assert found[1]


def test_text_appears_and_is_freed_though_every_turn_is_a_long_one(screen: Screen) -> None:
    def dawdle() -> bool:
        began = GLib.get_monotonic_time()
        while GLib.get_monotonic_time() < began + 3000:
            pass
        return GLib.SOURCE_CONTINUE

    busy = GLib.timeout_add(0, dawdle)
    view = MarkdownView("")
    view.append("one\n\ntwo")
    spin_until(lambda: all_of(view, Gtk.TextView) and len(all_of(view, Gtk.Label)) == 1)
    view.take_down()
    spin_until(lambda: not all_of(view, Gtk.Label))
    GLib.source_remove(busy)
