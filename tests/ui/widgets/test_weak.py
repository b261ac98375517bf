# SPDX-License-Identifier: GPL-3.0-or-later
"""Callbacks that do not keep their object alive, with every version of PyGObject."""

from __future__ import annotations

import gc

from gi.repository import Gio, GObject, Gtk
from support.screen import Screen, watch_freeing

from ollmsandbox.ui.widgets.weak import weak_reference, weakly


class Counter(Gtk.Box):
    __gtype_name__ = "OllmTestCounter"

    def __init__(self, calls: list[object]) -> None:
        super().__init__()
        self.calls = calls
        self.button = Gtk.Button()
        self.append(self.button)
        self.button.connect("clicked", weakly(self.count))

    def count(self, what: object) -> int:
        self.calls.append(what)
        return len(self.calls)


class Plain:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def count(self, what: object) -> int:
        self.calls.append(what)
        return len(self.calls)


def test_a_method_is_called_while_only_gtk_holds_its_widget(screen: Screen) -> None:
    calls: list[object] = []
    counter = Counter(calls)
    button, call = counter.button, weakly(counter.count)
    around = Gtk.Box()
    around.append(counter)
    del counter
    gc.collect()
    button.emit("clicked")
    assert calls == [button]
    gc.collect()
    assert call(2) == 2
    assert calls == [button, 2]


def test_a_widget_with_callbacks_is_freed_and_its_methods_called_no_more(screen: Screen) -> None:
    calls: list[object] = []
    counter = Counter(calls)
    button, call = counter.button, weakly(counter.count)
    around = Gtk.Box()
    around.append(counter)
    is_freed = watch_freeing(counter)
    assert not is_freed()
    around.remove(counter)
    del counter
    assert is_freed()
    button.emit("clicked")
    assert call(2) is None
    assert calls == []


def test_a_method_of_a_plain_object_is_called_while_that_is_there() -> None:
    plain = Plain()
    calls, call = plain.calls, weakly(plain.count)
    gc.collect()
    assert call(1) == 1
    del plain
    assert call(2) is None
    assert calls == [1]


def test_a_weak_reference_finds_an_item_that_only_a_list_holds() -> None:
    class Item(GObject.Object):
        __gtype_name__ = "OllmTestItem"

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    held = Gio.ListStore()
    item = Item("one")
    find, hashed = weak_reference(item), hash(item)
    held.append(item)
    del item
    gc.collect()
    found = find()
    assert found is not None and found.name == "one" and hash(found) == hashed
    assert found is held.get_item(0)
    del found
    held.remove_all()
    assert find() is None
