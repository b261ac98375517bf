# SPDX-License-Identifier: GPL-3.0-or-later
"""Talk to the Flatpak portal, which starts a second, tighter sandbox beside the Flatpak's own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from enum import IntFlag

from gi.repository import Gio, GLib

from ... import N_
from ...errors import SandboxError

_NAME = _INTERFACE = "org.freedesktop.portal.Flatpak"
_PATH = "/org/freedesktop/portal/Flatpak"
# The first version that takes folders as descriptors.
_OLDEST = 3
_SUPPORTS_EXPOSED_PROCESSES = 1
_TIMEOUT = 20_000  # milliseconds


class PortalError(SandboxError):
    """There is no inner sandbox, and nothing ran. The permission card shows the reason."""


class Flags(IntFlag):
    """Flags of the portal's Spawn. 1, which clears the environment, is not used: Flatpak 1.14 then
    does not find what is installed for the user."""

    SANDBOX = 4
    NO_NETWORK = 8
    # End the process with the connection.
    WATCH_BUS = 16
    # Its processes are visible here, so that they can be counted and killed.
    EXPOSE_PROCESSES = 32


class Portal:
    """A connection to the portal for one process."""

    def __init__(self, bus: Gio.DBusConnection) -> None:
        self._bus = bus
        self._pid = 0
        # The signal of a process's end may arrive before the reply to Spawn.
        self._statuses: dict[int, int] = {}
        self._changed = asyncio.Event()
        self.is_lost = False
        self._closed = bus.connect("closed", self._on_lost)
        self._watch = Gio.bus_watch_name_on_connection(
            bus, _NAME, Gio.BusNameWatcherFlags.AUTO_START, None, self._on_lost
        )
        self._exits = bus.signal_subscribe(
            _NAME, _INTERFACE, "SpawnExited", _PATH, None, Gio.DBusSignalFlags.NONE, self._on_exit
        )

    @classmethod
    async def connect(cls, environ: Mapping[str, str]) -> Portal:
        address = environ.get("DBUS_SESSION_BUS_ADDRESS")
        if not address:
            raise PortalError(N_("There is no session bus, so there is no Flatpak portal."))
        answer: asyncio.Future[Gio.AsyncResult] = asyncio.get_running_loop().create_future()
        flags = Gio.DBusConnectionFlags
        Gio.DBusConnection.new_for_address(
            address,
            flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION,
            None,
            None,
            _answering(answer),
        )
        try:
            bus = Gio.DBusConnection.new_for_address_finish(await answer)
        except GLib.Error as error:
            text = N_("Cannot connect to the session bus: {why}")
            raise PortalError(text, why=_why(error)) from error
        portal = cls(bus)
        try:
            await portal._check()
        except BaseException:
            portal.close()
            raise
        return portal

    async def _check(self) -> None:
        given = GLib.Variant("(s)", (_INTERFACE,))
        found = await self._call("GetAll", given, "(a{sv})", "org.freedesktop.DBus.Properties")
        properties = found.unpack()[0]
        if properties.get("version", 0) < _OLDEST:
            raise PortalError(N_("The Flatpak portal is too old to start an inner sandbox."))
        if not properties.get("supports", 0) & _SUPPORTS_EXPOSED_PROCESSES:
            raise PortalError(N_("The Flatpak portal does not show the processes it starts."))

    async def spawn(
        self,
        argv: Sequence[bytes],
        descriptors: Mapping[int, int],
        folders: Sequence[int],
        flags: Flags,
    ) -> None:
        """Start a program; `folders` are writable inside. The caller closes the descriptors."""
        passed = Gio.UnixFDList.new()
        handles = {number: passed.append(given) for number, given in descriptors.items()}
        exposed = GLib.Variant("ah", [passed.append(folder) for folder in folders])
        given = GLib.Variant(
            "(ayaaya{uh}a{ss}ua{sv})",
            (
                b"/\0",
                [word + b"\0" for word in argv],
                handles,
                {},
                int(flags),
                {"sandbox-expose-fd": exposed},
            ),
        )
        found = await self._call("Spawn", given, "(u)", descriptors=passed)
        self._pid = int(found.unpack()[0])

    async def exit_status(self) -> int | None:
        """Wait for the end and return waitpid()'s status, or None if the portal is lost."""
        while self._pid not in self._statuses:
            if self.is_lost:
                return None
            await self._changed.wait()
            self._changed.clear()
        return self._statuses[self._pid]

    def kill(self) -> None:
        """Kill the process group. All other processes of the sandbox end with its first one."""
        if not self._pid or self.is_lost:
            return
        given = GLib.Variant("(uub)", (self._pid, signal.SIGKILL, True))
        self._bus.call(
            _NAME,
            _PATH,
            _INTERFACE,
            "SpawnSignal",
            given,
            None,
            Gio.DBusCallFlags.NO_AUTO_START,
            _TIMEOUT,
            None,
            _ignore_reply,
        )

    def close(self) -> None:
        """Disconnect, which ends what is still running."""
        self._bus.disconnect(self._closed)
        Gio.bus_unwatch_name(self._watch)
        self._bus.signal_unsubscribe(self._exits)
        if not self._bus.is_closed():
            self._bus.close(None, _ignore_reply)

    async def _call(
        self,
        method: str,
        given: GLib.Variant,
        kind: str,
        interface: str = _INTERFACE,
        descriptors: Gio.UnixFDList | None = None,
    ) -> GLib.Variant:
        answer: asyncio.Future[Gio.AsyncResult] = asyncio.get_running_loop().create_future()
        self._bus.call_with_unix_fd_list(
            _NAME,
            _PATH,
            interface,
            method,
            given,
            GLib.VariantType(kind),
            Gio.DBusCallFlags.NONE,
            _TIMEOUT,
            descriptors,
            None,
            _answering(answer),
        )
        try:
            found, _descriptors = self._bus.call_with_unix_fd_list_finish(await answer)
        except GLib.Error as error:
            text = N_("The Flatpak portal refused: {why}")
            raise PortalError(text, why=_why(error)) from error
        return found

    def _on_exit(
        self,
        _bus: Gio.DBusConnection,
        _sender: str,
        _path: str,
        _interface: str,
        _name: str,
        given: GLib.Variant,
    ) -> None:
        pid, status = given.unpack()
        self._statuses[pid] = status
        self._changed.set()

    def _on_lost(self, *_args: object) -> None:
        self.is_lost = True
        self._changed.set()


def _answering(
    answer: asyncio.Future[Gio.AsyncResult],
) -> Callable[[object, Gio.AsyncResult], None]:
    def answered(_source: object, result: Gio.AsyncResult) -> None:
        # The waiting task may have been cancelled.
        if not answer.done():
            answer.set_result(result)

    return answered


def _ignore_reply(*_args: object) -> None:
    """Do nothing: the end of the process shows whether it worked."""


def _why(error: GLib.Error) -> str:
    text = error.message.partition("GDBus.Error:")[2].partition(": ")[2] or error.message
    return f"{text.strip().rstrip('.')}."
