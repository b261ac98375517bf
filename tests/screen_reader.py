# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program tells screen readers, over the bus that is there for them. Asked level by level
and all at once: one question after the other would take a busy program seconds."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

from gi.repository import Gio, GLib

_ROOT = "/org/a11y/atspi/accessible/root"
_REGISTRY = "org.a11y.atspi.Registry"
_ACCESSIBLE = "org.a11y.atspi.Accessible"
_COMPONENT = "org.a11y.atspi.Component"
_TEXT = "org.a11y.atspi.Text"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_IN_WINDOW = 1
_FOCUSED, _SENSITIVE = 1 << 12, 1 << 24
# Nothing is below them.
_LEAVES = ("label", "image", "separator", "scroll bar", "spin button")
# Milliseconds.
_PATIENCE = 20_000

Place = tuple[str, str]
# What D-Bus answers is of many types.
Reply = tuple[Any, ...]


@dataclass(frozen=True)
class Node:
    role: str
    name: str
    place: Place
    # Which child of which child it is.
    order: tuple[int, ...]


@dataclass(frozen=True)
class Look:
    """How something stands at the moment: in the window left, top, width, height, nothing if it is
    not laid out."""

    area: tuple[int, int, int, int]
    is_focused: bool
    is_sensitive: bool

    @property
    def is_seen(self) -> bool:
        return self.area[2] > 0 and self.area[3] > 0

    @property
    def middle(self) -> tuple[int, int]:
        left, top, width, height = self.area
        return left + width // 2, top + height // 2


class Reader:
    def __enter__(self) -> Reader:
        self._roles: dict[Place, str] = {}
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
        found: list[Node] = []
        level: list[tuple[Place, tuple[int, ...]]] = [
            (place, (i,)) for i, place in enumerate(self._windows(pid))
        ]
        while level:
            self._learn_roles([place for place, _order in level])
            name = GLib.Variant("(ss)", (_ACCESSIBLE, "Name"))
            names = self._ask([(place, _PROPERTIES, "Get", name) for place, _order in level])
            parents = [one for one in level if self._roles.get(one[0]) not in _LEAVES]
            families = self._ask([(one[0], _ACCESSIBLE, "GetChildren", None) for one in parents])
            for (place, order), told in zip(level, names, strict=True):
                if told is not None and place in self._roles:
                    found.append(Node(self._roles[place], told[0], place, order))
            level = [
                (child, (*order, i))
                for (_place, order), family in zip(parents, families, strict=True)
                if family is not None
                for i, child in enumerate(family[0])
            ]
        return sorted(found, key=lambda node: node.order)

    def look(self, *nodes: Node) -> list[Look | None]:
        """None for what is gone."""
        place = GLib.Variant("(u)", (_IN_WINDOW,))
        states = self._ask([(node.place, _ACCESSIBLE, "GetState", None) for node in nodes])
        areas = self._ask([(node.place, _COMPONENT, "GetExtents", place) for node in nodes])
        return [
            Look(tuple(area[0]), bool(state[0][0] & _FOCUSED), bool(state[0][0] & _SENSITIVE))
            if state is not None and area is not None
            else None
            for state, area in zip(states, areas, strict=True)
        ]

    def text(self, node: Node) -> str:
        """Of a text view or a field."""
        whole = GLib.Variant("(ii)", (0, -1))
        found = self._ask([(node.place, _TEXT, "GetText", whole)])[0]
        return str(found[0]) if found else ""

    def _learn_roles(self, places: list[Place]) -> None:
        """They stay as they are."""
        new = [place for place in places if place not in self._roles]
        told = self._ask([(place, _ACCESSIBLE, "GetRoleName", None) for place in new])
        self._roles.update({p: role[0] for p, role in zip(new, told, strict=True) if role})

    def _windows(self, pid: int) -> list[Place]:
        desktop = self._ask([((_REGISTRY, _ROOT), _ACCESSIBLE, "GetChildren", None)])[0]
        programs = list(desktop[0]) if desktop else []
        bus = "org.freedesktop.DBus"
        owners = self._ask(
            [
                ((bus, "/"), bus, "GetConnectionUnixProcessID", GLib.Variant("(s)", (name,)))
                for name, _ in programs
            ]
        )
        mine = [p for p, owner in zip(programs, owners, strict=True) if owner == (pid,)]
        windows = self._ask([(place, _ACCESSIBLE, "GetChildren", None) for place in mine])
        return [place for answer in windows if answer for place in answer[0]]

    def _ask(
        self, questions: list[tuple[Place, str, str, GLib.Variant | None]]
    ) -> list[Reply | None]:
        """All at once. None for what is not there (any more)."""
        answers: list[Reply | None] = [None] * len(questions)
        left = len(questions)

        def answered(bus: Gio.DBusConnection, result: Gio.AsyncResult, number: int) -> None:
            nonlocal left
            left -= 1
            try:
                answers[number] = bus.call_finish(result).unpack()
            except GLib.Error as error:
                if error.matches(Gio.io_error_quark(), Gio.IOErrorEnum.TIMED_OUT):
                    raise

        for number, ((name, path), interface, method, given) in enumerate(questions):
            none = Gio.DBusCallFlags.NONE
            self._bus.call(
                name, path, interface, method, given, None, none, _PATIENCE, None, answered, number
            )
        while left:
            GLib.MainContext.default().iteration(True)
        return answers
