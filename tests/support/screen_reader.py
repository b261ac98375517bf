# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a program tells screen readers, over the accessibility bus. The whole tree comes in one
answer: single questions would take seconds and mix different moments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gi.repository import Gio, GLib

_ROOT = "/org/a11y/atspi/accessible/root"
_REGISTRY = "org.a11y.atspi.Registry"
_ACCESSIBLE = "org.a11y.atspi.Accessible"
_CACHE = "org.a11y.atspi.Cache"
_COMPONENT = "org.a11y.atspi.Component"
_TEXT = "org.a11y.atspi.Text"
_IN_WINDOW = 1
_FOCUSED, _SENSITIVE = 1 << 12, 1 << 24
# While it is being read, there may come more.
_ROUNDS = 3
# So often all of it is asked for: where one came right after one that was hidden, neither their
# number nor their order tells.
_ALL_OVER = 8
# Milliseconds.
_PATIENCE = 60_000

Place = tuple[str, str]
Area = tuple[int, int, int, int]
# What D-Bus answers is of many types.
Reply = tuple[Any, ...]


@dataclass(frozen=True)
class Node:
    role: str
    name: str
    place: Place
    # Which child of which child it is.
    order: tuple[int, ...]
    is_focused: bool
    is_sensitive: bool


class _Item(NamedTuple):
    """What the program reports of each object at once."""

    place: Place
    parent: str
    # Among those of its parent that are shown.
    number: int
    children: int
    name: str
    role: int
    states: int


class Reader:
    def __enter__(self) -> Reader:
        self._roles: dict[int, str] = {}
        self._programs: dict[int, str] = {}
        self._reads = 0
        session = Gio.bus_get_sync(Gio.BusType.SESSION)
        bus, path, none = "org.a11y.Bus", "/org/a11y/bus", Gio.DBusCallFlags.NONE
        address = session.call_sync(
            bus, path, bus, "GetAddress", None, None, none, _PATIENCE, None
        ).unpack()[0]
        flags = Gio.DBusConnectionFlags
        self._bus = Gio.DBusConnection.new_for_address_sync(
            address,
            flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION,
            None,
            None,
        )
        return self

    def __exit__(self, *_raised: object) -> None:
        self._bus.close_sync()

    def read(self, pid: int) -> list[Node]:
        """Return all objects in the windows of this process, in reading order, including pages that
        are not shown."""
        program = self._program(pid)
        self._reads += 1
        if self._reads % _ALL_OVER == 0:
            self._ask_for_all_below([(program, _ROOT)])
        families: dict[str, list[_Item]] = {}
        for _round in range(_ROUNDS):
            families = defaultdict(list)
            for item in self._items(program):
                families[item.parent].append(item)
            # GTK tells of itself only what was asked for before. One that was hidden meanwhile is
            # still there, with the number of the next one.
            hidden = [
                item.place
                for family in families.values()
                for item in family
                if item.children > len({child.number for child in families.get(item.place[1], ())})
            ]
            if not hidden:
                break
            self._ask_for_all_below(hidden)
        return list(self._below(_ROOT, (), families))

    def _items(self, program: str) -> list[_Item]:
        told = self._call((program, "/org/a11y/atspi/cache"), _CACHE, "GetItems")
        if told is None:
            return []
        items = told.get_child_value(0)
        return [_item(program, items.get_child_value(at)) for at in range(items.n_children())]

    def _ask_for_all_below(self, places: list[Place]) -> None:
        """Ask for all objects of one depth at once: a busy program answers them in one go."""
        while places:
            places = [child for family in self._families(places) for child in family]

    def _families(self, places: list[Place]) -> list[list[Place]]:
        told: list[list[Place]] = []

        def answered(bus: Gio.DBusConnection, result: Gio.AsyncResult) -> None:
            try:
                told.append(bus.call_finish(result).unpack()[0])
            except GLib.Error:  # it is gone
                told.append([])

        asked = [place for place in places if place[0]]
        none = Gio.DBusCallFlags.NONE
        for name, path in asked:
            self._bus.call(
                name, path, _ACCESSIBLE, "GetChildren", None, None, none, _PATIENCE, None, answered
            )
        while len(told) < len(asked):
            GLib.MainContext.default().iteration(True)
        return told

    def _below(
        self, path: str, order: tuple[int, ...], families: dict[str, list[_Item]]
    ) -> Iterator[Node]:
        children = sorted(families.get(path, ()), key=lambda item: item.number)
        for number, item in enumerate(children):
            here = (*order, number)
            yield Node(
                self._role(item.role, item.place),
                item.name,
                item.place,
                here,
                bool(item.states & _FOCUSED),
                bool(item.states & _SENSITIVE),
            )
            known = families.get(item.place[1], [])
            if item.children < len(known):
                # Some of them were shown before, and are not now.
                shown = self._ask(item.place, _ACCESSIBLE, "GetChildren")
                families[item.place[1]] = [one for one in known if shown and one.place in shown[0]]
            yield from self._below(item.place[1], here, families)

    def area(self, node: Node) -> Area | None:
        """Return left, top, width and height in its window; None if it is gone, or not laid out."""
        told = self._ask(node.place, _COMPONENT, "GetExtents", GLib.Variant("(u)", (_IN_WINDOW,)))
        if not told or min(told[0][2:]) <= 0:
            return None
        left, top, width, height = told[0]
        return left, top, width, height

    def text(self, node: Node) -> str:
        """Return the text of a text view or an entry."""
        found = self._ask(node.place, _TEXT, "GetText", GLib.Variant("(ii)", (0, -1)))
        return str(found[0]) if found else ""

    def _role(self, number: int, place: Place) -> str:
        """Return the name of a role, which depends on its number only."""
        if number not in self._roles:
            told = self._ask(place, _ACCESSIBLE, "GetRoleName")
            if not told:
                return ""
            self._roles[number] = told[0]
        return self._roles[number]

    def _program(self, pid: int) -> str:
        if pid in self._programs:
            return self._programs[pid]
        desktop = self._ask((_REGISTRY, _ROOT), _ACCESSIBLE, "GetChildren")
        bus = "org.freedesktop.DBus"
        for name, _path in desktop[0] if desktop else ():
            asked = GLib.Variant("(s)", (name,))
            if self._ask((bus, "/"), bus, "GetConnectionUnixProcessID", asked) == (pid,):
                self._programs[pid] = str(name)
                return self._programs[pid]
        return ""

    def _ask(
        self, place: Place, interface: str, method: str, given: GLib.Variant | None = None
    ) -> Reply | None:
        told = self._call(place, interface, method, given)
        answer: Reply | None = told.unpack() if told is not None else None
        return answer

    def _call(
        self, place: Place, interface: str, method: str, given: GLib.Variant | None = None
    ) -> GLib.Variant | None:
        """Call a method; return None for an object that is gone."""
        if not place[0]:
            return None
        none = Gio.DBusCallFlags.NONE
        try:
            return self._bus.call_sync(
                *place, interface, method, given, None, none, _PATIENCE, None
            )
        except GLib.Error:
            return None


def _item(program: str, told: GLib.Variant) -> _Item:
    """Unpack an object by hand: unpacking a whole window at once takes longer than the call."""
    at = told.get_child_value
    return _Item(
        (program, at(0).get_child_value(1).get_string()),
        at(2).get_child_value(1).get_string(),
        at(3).get_int32(),
        at(4).get_int32(),
        at(6).get_string(),
        at(7).get_uint32(),
        at(9).get_child_value(0).get_uint32(),
    )
