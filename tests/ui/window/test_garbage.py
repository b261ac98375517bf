# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing halts the window that could be done when nobody looks."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from gi.repository import GLib, Gtk
from support.screen import Screen, all_of, spin_until

from ollmsandbox.ui.markdown.view import MarkdownView
from ollmsandbox.ui.widgets.scheduling import is_late
from ollmsandbox.ui.window import garbage
from ollmsandbox.ui.window.garbage import Sweeper, keep_smooth

pytestmark = pytest.mark.anybody


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was before, in the end."""
    gc.collect()
    yield
    gc.enable()
    gc.unfreeze()


def knot_of_age(generation: int) -> weakref.ref[Knot]:
    """Python has looked at it so often already."""
    knot = Knot()
    for younger in range(generation):
        gc.collect(younger)
    return weakref.ref(knot)


def much() -> list[list[int]]:
    return [[number] for number in range(2 * gc.get_threshold()[0])]


def test_what_only_holds_itself_is_freed_by_the_main_thread_alone(
    screen: Screen, collector: None
) -> None:
    keep_smooth(lambda: 0)
    knot = knot_of_age(0)
    threads: set[int] = set()

    def watch(phase: str, _info: dict[str, int]) -> None:
        threads.add(threading.get_ident())

    def work() -> None:
        kept = [Knot() for _ in range(100_000)]
        assert kept

    gc.callbacks.append(watch)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert threads == set()
        spin_until(lambda: knot() is None)
        assert threads == {threading.main_thread().ident}
    finally:
        gc.callbacks.remove(watch)


def test_everything_is_looked_through_when_nothing_was_drawn_for_long(collector: None) -> None:
    gc.disable()
    drawn = 1
    sweeper = Sweeper(lambda: drawn)
    knot = knot_of_age(2)
    for _ in range(20):
        gc.collect(1)
    sweeper.sweep(1000)
    drawn = 2
    sweeper.sweep(1031)
    assert knot() is not None
    sweeper.sweep(1032)
    assert knot() is not None
    sweeper.sweep(1062)
    assert knot() is None


def test_everything_is_looked_through_at_last_though_there_is_no_quiet(
    collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_AT_LAST", 50)
    gc.disable()
    frames = iter(range(10_000_000))
    sweeper = Sweeper(lambda: next(frames))
    knot = knot_of_age(2)
    looks = 0
    while knot() is not None:
        kept = much()
        assert kept and sweeper.sweep(float(looks))
        del kept
        looks += 1
        assert looks < 10_000
    # Not often, either.
    assert looks > 150


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
