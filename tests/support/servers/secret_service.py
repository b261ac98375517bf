# SPDX-License-Identifier: GPL-3.0-or-later
"""A keyring on the session bus, as small as one can be: run as a program, it says when it is ready.

With `--silent` it takes every question and never answers. With FILE it writes there what it keeps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gi.repository import Gio, GLib

ROOT = "/org/freedesktop/secrets"
SECRET = "(oayays)"
INTERFACES = """
<node>
  <interface name="org.freedesktop.Secret.Service">
    <method name="OpenSession"><arg type="s" direction="in"/><arg type="v" direction="in"/>
      <arg type="v" direction="out"/><arg type="o" direction="out"/></method>
    <method name="SearchItems"><arg type="a{ss}" direction="in"/>
      <arg type="ao" direction="out"/><arg type="ao" direction="out"/></method>
    <method name="Unlock"><arg type="ao" direction="in"/>
      <arg type="ao" direction="out"/><arg type="o" direction="out"/></method>
    <method name="GetSecrets"><arg type="ao" direction="in"/><arg type="o" direction="in"/>
      <arg type="a{o(oayays)}" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.Secret.Collection">
    <method name="CreateItem"><arg type="a{sv}" direction="in"/>
      <arg type="(oayays)" direction="in"/><arg type="b" direction="in"/>
      <arg type="o" direction="out"/><arg type="o" direction="out"/></method>
    <property name="Locked" type="b" access="read"/>
  </interface>
  <interface name="org.freedesktop.Secret.Item">
    <method name="Delete"><arg type="o" direction="out"/></method>
    <property name="Locked" type="b" access="read"/>
    <property name="Attributes" type="a{ss}" access="read"/>
    <property name="Label" type="s" access="read"/>
  </interface>
</node>
"""


class Keyring:
    def __init__(self, bus: Gio.DBusConnection, silent: bool, file: str) -> None:
        self._bus = bus
        self._silent = silent
        self._file = file
        self._items: dict[str, tuple[dict[str, str], bytes]] = {}
        self._node = Gio.DBusNodeInfo.new_for_xml(INTERFACES)
        self._put(ROOT, "Service")
        self._put(f"{ROOT}/aliases/default", "Collection")

    def _put(self, path: str, kind: str) -> None:
        interface = self._node.lookup_interface(f"org.freedesktop.Secret.{kind}")
        assert interface is not None
        self._bus.register_object(path, interface, self._call, self._get, None)

    def _get(
        self, _bus: object, _sender: str, path: str, _interface: str, name: str
    ) -> GLib.Variant:
        if name == "Locked":
            return GLib.Variant("b", False)
        attributes = self._items[path][0]
        return GLib.Variant("s", "") if name == "Label" else GLib.Variant("a{ss}", attributes)

    def _call(
        self,
        _bus: object,
        _sender: str,
        path: str,
        _interface: str,
        method: str,
        given: GLib.Variant,
        reply: Gio.DBusMethodInvocation,
    ) -> None:
        if self._silent:
            return
        arguments = given.unpack()
        if method == "OpenSession":
            if arguments[0] != "plain":
                name = "org.freedesktop.DBus.Error.NotSupported"
                reply.return_dbus_error(name, "only plain")
                return
            answer = GLib.Variant("(vo)", (GLib.Variant("s", ""), f"{ROOT}/session/1"))
        elif method == "SearchItems":
            wanted = arguments[0].items()
            found = [at for at, (has, _) in self._items.items() if wanted <= has.items()]
            answer = GLib.Variant("(aoao)", (found, []))
        elif method == "Unlock":
            answer = GLib.Variant("(aoo)", (arguments[0], "/"))
        elif method == "GetSecrets":
            session, kind = arguments[1], "text/plain"
            secrets = {at: (session, b"", self._items[at][1], kind) for at in arguments[0]}
            answer = GLib.Variant(f"(a{{o{SECRET}}})", (secrets,))
        elif method == "CreateItem":
            at = self._create(arguments[0], bytes(arguments[1][2]))
            answer = GLib.Variant("(oo)", (at, "/"))
        else:
            del self._items[path]
            self._write()
            answer = GLib.Variant("(o)", ("/",))
        reply.return_value(answer)

    def _create(self, properties: dict[str, object], secret: bytes) -> str:
        attributes = properties["org.freedesktop.Secret.Item.Attributes"]
        assert isinstance(attributes, dict)
        same = [at for at, (has, _) in self._items.items() if has == attributes]
        at = same[0] if same else f"{ROOT}/collection/login/{len(self._items) + 1}"
        if not same:
            self._put(at, "Item")
        self._items[at] = (attributes, secret)
        self._write()
        return at

    def _write(self) -> None:
        if self._file:
            kept = {has["connection"]: secret.decode() for has, secret in self._items.values()}
            Path(self._file).write_text(json.dumps(kept))


def main() -> None:
    bus = Gio.bus_get_sync(Gio.BusType.SESSION)
    Keyring(bus, silent="--silent" in sys.argv, file=sys.argv[-1] if len(sys.argv) > 1 else "")
    Gio.bus_own_name_on_connection(
        bus,
        "org.freedesktop.secrets",
        Gio.BusNameOwnerFlags.NONE,
        lambda *_: print("ready", flush=True),
        None,
    )
    context = GLib.MainContext.default()
    while True:
        context.iteration(True)


if __name__ == "__main__":
    main()
