# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work, such as garbage collection, does not block the window."""

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
from ollmsandbox.ui.window.garbage import keep_smooth


class Knot:
    """An object that references itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[None]:
    """Restore the collector's state at the end."""
    gc.collect()
    yield
    gc.enable()
    gc.unfreeze()


def test_cycles_are_freed_by_the_main_thread_only(screen: Screen, collector: None) -> None:
    keep_smooth(lambda: 0)
    knot = weakref.ref(Knot())
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


def test_a_callback_after_long_work_in_one_turn_is_late(screen: Screen) -> None:
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
