# SPDX-License-Identifier: GPL-3.0-or-later
"""The Flatpak portal's Spawn, with bubblewrap in place of Flatpak: run as a program with the home
folder that a sandbox must not see, it says when it is ready.

What follows the folder makes it a portal with a fault:
  refuse            it starts nothing
  old, blind        it says that it can do less
  broken            what it starts fails before it begins
  forget-folders    folders are not there inside, and it does not say so (as the real one)
  leave-network     the network is there though it should not be
  show-home         all of the home folder is there inside
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Sequence

from gi.repository import Gio, GLib

NAME = "org.freedesktop.portal.Flatpak"
PATH = "/org/freedesktop/portal/Flatpak"
INTERFACE = f"""
<node><interface name="{NAME}">
  <method name="Spawn"><arg type="ay" direction="in"/><arg type="aay" direction="in"/>
    <arg type="a{{uh}}" direction="in"/><arg type="a{{ss}}" direction="in"/>
    <arg type="u" direction="in"/><arg type="a{{sv}}" direction="in"/>
    <arg type="u" direction="out"/></method>
  <method name="SpawnSignal"><arg type="u" direction="in"/><arg type="u" direction="in"/>
    <arg type="b" direction="in"/></method>
  <signal name="SpawnExited"><arg type="u"/><arg type="u"/></signal>
  <property name="version" type="u" access="read"/>
  <property name="supports" type="u" access="read"/>
</interface></node>
"""
SANDBOX, NO_NETWORK, WATCH_BUS, EXPOSE_PROCESSES = 4, 8, 16, 32


Spawn = tuple[list[int], list[list[int]], dict[int, int], dict[str, str], int, dict[str, list[int]]]


class Portal:
    def __init__(self, bus: Gio.DBusConnection, home: str, faults: Sequence[str]) -> None:
        self._bus = bus
        self._home = home
        self._faults = faults
        # Who started it, by process.
        self._running: dict[int, str] = {}
        node = Gio.DBusNodeInfo.new_for_xml(INTERFACE)
        bus.register_object(PATH, node.interfaces[0], self._call, self._get, None)

    def _get(self, _bus: object, _sender: str, _path: str, _of: str, name: str) -> GLib.Variant:
        if name == "version":
            return GLib.Variant("u", 2 if "old" in self._faults else 6)
        return GLib.Variant("u", 0 if "blind" in self._faults else 1)

    def _call(
        self,
        _bus: object,
        sender: str,
        _path: str,
        _interface: str,
        method: str,
        given: GLib.Variant,
        reply: Gio.DBusMethodInvocation,
    ) -> None:
        if method == "SpawnSignal":
            pid, number, to_group = given.unpack()
            if self._running.get(pid) != sender:
                reply.return_dbus_error(f"{NAME}.Unknown", "No such pid")
                return
            (os.killpg if to_group else os.kill)(pid, number)
            reply.return_value(None)
        elif "refuse" in self._faults:
            reply.return_dbus_error("org.freedesktop.DBus.Error.AccessDenied", "Not for you")
        else:
            passed = reply.get_message().get_unix_fd_list()
            descriptors = passed.steal_fds() if passed is not None else []
            try:
                pid = self._spawn(given.unpack(), descriptors, sender)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            reply.return_value(GLib.Variant("(u)", (pid,)))

    def _spawn(self, given: Spawn, descriptors: Sequence[int], sender: str) -> int:
        folder, words, handles, _variables, flags, options = given
        assert bytes(folder) == b"/\0"
        assert flags & WATCH_BUS and flags & EXPOSE_PROCESSES
        argv = [os.fsdecode(bytes(word).removesuffix(b"\0")) for word in words]
        exposed = [descriptors[handle] for handle in options["sandbox-expose-fd"]]
        # First out of the way of each other; these are closed when the program begins.
        high = {
            n: fcntl.fcntl(descriptors[h], fcntl.F_DUPFD_CLOEXEC, 100) for n, h in handles.items()
        }
        places = [(os.POSIX_SPAWN_DUP2, given, number) for number, given in high.items()]
        command = [*self._bwrap(flags, exposed), "--", *argv]
        pid = os.posix_spawnp(command[0], command, {}, file_actions=places, setsid=True)
        for descriptor in high.values():
            os.close(descriptor)
        self._running[pid] = sender
        GLib.child_watch_add(GLib.PRIORITY_DEFAULT, pid, self._exited)  # type: ignore[no-untyped-call]
        Gio.bus_watch_name_on_connection(
            self._bus, sender, Gio.BusNameWatcherFlags.NONE, None, self._caller_gone
        )
        return pid

    def _bwrap(self, flags: int, exposed: Sequence[int]) -> list[str]:
        if "broken" in self._faults:
            return ["sh", "-c", "echo 'cannot make a sandbox' >&2; exit 1"]
        words = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
        # The session's.
        words += ["--setenv", "SESSION_TOKEN", "s3cret"]
        if flags & SANDBOX and "show-home" not in self._faults:
            words += ["--tmpfs", self._home]
        for descriptor in exposed if "forget-folders" not in self._faults else ():
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            words += ["--bind", path, path]
        if flags & NO_NETWORK and "leave-network" not in self._faults:
            words.append("--unshare-net")
        return words

    def _exited(self, pid: int, status: int) -> None:
        sender = self._running.pop(pid)
        self._bus.emit_signal(
            sender, PATH, NAME, "SpawnExited", GLib.Variant("(uu)", (pid, status))
        )

    def _caller_gone(self, _bus: object, name: str) -> None:
        for pid, sender in self._running.items():
            if sender == name:
                os.killpg(pid, signal.SIGINT)


def main(home: str, *faults: str) -> None:
    bus = Gio.bus_get_sync(Gio.BusType.SESSION)
    Portal(bus, home, faults)
    Gio.bus_own_name_on_connection(
        bus, NAME, Gio.BusNameOwnerFlags.NONE, lambda *_: print("ready", flush=True), None
    )
    while True:
        GLib.MainContext.default().iteration(True)


if __name__ == "__main__":
    main(*sys.argv[1:])
