# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program tells screen readers, over the bus that is there for them. All of it in one
answer: one question after the other would take a busy program seconds, and tell of a window that
never was so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

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
# So often all of it is asked for: where as many were hidden as came, their number does not tell.
_ALL_OVER = 16
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bus.close_sync()

    def read(self, pid: int) -> list[Node]:
        """All that the windows of this process have, in the order of reading. Pages that are not
        shown are there too."""
        program = self._program(pid)
        self._reads += 1
        if self._reads % _ALL_OVER == 0:
            self._ask_for_all_below([(program, _ROOT)])
        families: dict[str, list[Reply]] = {}
        for _round in range(_ROUNDS):
            told = self._ask((program, "/org/a11y/atspi/cache"), _CACHE, "GetItems")
            families = defaultdict(list)
            for item in told[0] if told else ():
                families[item[2][1]].append(item)
            # GTK tells of itself only what was asked for before.
            hidden = [
                item[0]
                for family in families.values()
                for item in family
                if item[4] > len(families.get(item[0][1], ()))
            ]
            if not hidden:
                break
            self._ask_for_all_below(hidden)
        return list(self._below(_ROOT, (), families))

    def _ask_for_all_below(self, places: list[Place]) -> None:
        while places:
            children = self._ask(places.pop(), _ACCESSIBLE, "GetChildren")
            places.extend(children[0] if children else ())

    def _below(
        self, path: str, order: tuple[int, ...], families: dict[str, list[Reply]]
    ) -> Iterator[Node]:
        children = sorted(families.get(path, ()), key=lambda item: int(item[3]))
        for number, item in enumerate(children):
            place, count, name, role, states = item[0], item[4], item[6], item[7], item[9][0]
            here = (*order, number)
            yield Node(
                self._role(role, place),
                name,
                place,
                here,
                bool(states & _FOCUSED),
                bool(states & _SENSITIVE),
            )
            known = families.get(place[1], [])
            if count < len(known):
                # Some of them were shown before, and are not now.
                shown = self._ask(place, _ACCESSIBLE, "GetChildren")
                families[place[1]] = [one for one in known if shown and one[0] in shown[0]]
            yield from self._below(place[1], here, families)

    def area(self, node: Node) -> Area | None:
        """In its window: left, top, width, height. None if it is gone, or not laid out."""
        told = self._ask(node.place, _COMPONENT, "GetExtents", GLib.Variant("(u)", (_IN_WINDOW,)))
        if not told or min(told[0][2:]) <= 0:
            return None
        left, top, width, height = told[0]
        return left, top, width, height

    def text(self, node: Node) -> str:
        """Of a text view or a field."""
        found = self._ask(node.place, _TEXT, "GetText", GLib.Variant("(ii)", (0, -1)))
        return str(found[0]) if found else ""

    def _role(self, number: int, place: Place) -> str:
        """Its name, which is the same for all of the same number."""
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
        """None for what is not there (any more)."""
        if not place[0]:
            return None
        try:
            told: Reply = self._bus.call_sync(
                *place,
                interface,
                method,
                given,
                None,
                Gio.DBusCallFlags.NONE,
                _PATIENCE,
                None,
            ).unpack()
        except GLib.Error:
            return None
        return told
