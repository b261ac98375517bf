# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the session of a client in the window, if that is open, and asks there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping

from gi.repository import Gio, GLib

from ...chat.events import CallBegan, ChatEvent, CommandOutput, CommandStarted, FilesChanged
from ...permission.bus import INTERFACE, NAMES, PATH, request_to_json
from ...permission.request import Answer, PermissionRequest, Unanswered
from ..agent.events import JsonPrinter

# What the bus answers in place of a window that has gone.
_WITHOUT_WINDOW = tuple(
    f"org.freedesktop.DBus.Error.{name}" for name in ("ServiceUnknown", "NameHasNoOwner", "NoReply")
)


class WindowLink:
    """Talks to the window over the session bus. Use it only on the loop's own thread."""

    def __init__(self, session_id: str, project: str) -> None:
        self._session_id = session_id
        self._project = project
        # Set by the session: stops a call for the user.
        self.stop: Callable[[str], None] = lambda _call: None
        self._events = JsonPrinter(project)
        self._bus: Gio.DBusConnection | None = None
        # Who has each of the window's names; "" while nobody does.
        self._owners = dict.fromkeys(NAMES, "")
        self._client = ""
        # The calls that are running, as they were told.
        self._calls: dict[str, dict[str, object]] = {}
        # What is still to be sent of the output, by call, and whether some is on its way.
        self._output: dict[str, bytearray] = {}
        self._is_sending = False

    @property
    def _window(self) -> str:
        return next(filter(None, self._owners.values()), "")

    async def connect(self, environ: Mapping[str, str]) -> None:
        """Look for the window, now and later. Without a session bus there is none."""
        address = environ.get("DBUS_SESSION_BUS_ADDRESS") or _usual_address()
        if not address:
            return
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
            bus = self._bus = Gio.DBusConnection.new_for_address_finish(await answer)
        except GLib.Error:
            return
        bus.set_exit_on_close(False)
        bus.signal_subscribe(
            None, INTERFACE, "Stop", PATH, None, Gio.DBusSignalFlags.NONE, self._on_stop
        )
        looked = asyncio.Event()
        left = set(NAMES)

        def note(_bus: Gio.DBusConnection, name: str, owner: str = "") -> None:
            self._note_owner(name, owner)
            left.discard(name)
            if not left:
                looked.set()

        for name in NAMES:
            # Called when the name appears, and when it vanishes.
            flag = Gio.BusNameWatcherFlags.NONE
            Gio.bus_watch_name_on_connection(bus, name, flag, note, note)
        # The first question may come soon.
        await looked.wait()

    # --- events --------------------------------------------------------------------------------

    def begin(self, client: str) -> None:
        """Show the session, before its first call."""
        if not self._client:
            self._client = client
            self._follow()

    def hear(self, event: ChatEvent) -> None:
        match event:
            case CommandOutput(call_id, _, data):
                kept = self._output.setdefault(call_id, bytearray())
                kept += data
                # What comes faster than it is sent is left out.
                del kept[: -(1 << 16)]
                self._send_output()
            case CallBegan() | CommandStarted() | FilesChanged():
                document = self._events.document(event)
                assert document is not None
                if isinstance(event, CallBegan):
                    self._calls[event.call.id] = document
                self._tell(document)

    def end_call(self, call_id: str) -> None:
        """Show the end of a call, which is in the database now."""
        self._calls.pop(call_id, None)
        self._output.pop(call_id, None)
        self._tell({"event": "result", "call_id": call_id})

    def _follow(self) -> None:
        if self._client:
            given = (self._session_id, self._client, self._project)
            self._send("Follow", GLib.Variant("(sss)", given))
            for document in self._calls.values():
                self._tell(document)

    def _tell(self, document: Mapping[str, object]) -> None:
        self._send("Tell", GLib.Variant("(ss)", (self._session_id, json.dumps(document))))

    def _send_output(self) -> None:
        """Send output, but not before the window has taken what was sent before."""
        if self._is_sending or not self._window or not self._output:
            return
        call_id, data = self._output.popitem()
        text = data.decode("utf-8", "replace")
        document = {"event": "output", "call_id": call_id, "stream": "stdout", "text": text}
        self._is_sending = True
        given = GLib.Variant("(ss)", (self._session_id, json.dumps(document)))
        self._send("Tell", given, self._on_sent)

    def _on_sent(self, *_args: object) -> None:
        self._is_sending = False
        self._send_output()

    # --- questions -----------------------------------------------------------------------------

    async def ask(self, request: PermissionRequest) -> Answer | None:
        """Return the user's answer, or None if there is no window."""
        if self._bus is None or not self._window:
            return None
        given = GLib.Variant("(ss)", (self._session_id, request_to_json(request)))
        try:
            found = await self._ask(self._bus, given)
        except GLib.Error as error:
            # Without a name, it is an error of the connection itself.
            if Gio.DBusError.get_remote_error(error) in (None, *_WITHOUT_WINDOW):
                return None
            raise Unanswered("The window did not ask you.") from error
        except asyncio.CancelledError:
            self._send("Withdraw", GLib.Variant("(ss)", (self._session_id, request.id)))
            raise
        try:
            return Answer(found.unpack()[0])
        except ValueError:
            raise Unanswered("The window did not answer.") from None

    # --- the bus -------------------------------------------------------------------------------

    def _send(
        self, method: str, given: GLib.Variant, done: Callable[..., None] | None = None
    ) -> None:
        if self._bus is not None and self._window:
            self._bus.call(
                self._window, PATH, INTERFACE, method, given, None,
                Gio.DBusCallFlags.NO_AUTO_START, -1, None, done,
            )  # fmt: skip

    async def _ask(self, bus: Gio.DBusConnection, given: GLib.Variant) -> GLib.Variant:
        answer: asyncio.Future[Gio.AsyncResult] = asyncio.get_running_loop().create_future()
        bus.call(
            self._window, PATH, INTERFACE, "Ask", given, GLib.VariantType("(s)"),
            Gio.DBusCallFlags.NO_AUTO_START, GLib.MAXINT, None, _answering(answer),
        )  # fmt: skip
        return bus.call_finish(await answer)

    def _note_owner(self, name: str, owner: str) -> None:
        before = self._window
        self._owners[name] = owner
        if self._window != before:
            self._is_sending = False
            self._follow()

    def _on_stop(
        self,
        _bus: object,
        sender: str,
        _path: str,
        _interface: str,
        _name: str,
        given: GLib.Variant,
    ) -> None:
        session_id, call_id = given.unpack()
        if sender == self._window and session_id == self._session_id:
            self.stop(call_id)


def _answering(answer: asyncio.Future[Gio.AsyncResult]) -> Callable[..., None]:
    def answered(_source: object, result: Gio.AsyncResult) -> None:
        # The waiting task may have been cancelled.
        if not answer.done():
            answer.set_result(result)

    return answered


def _usual_address() -> str:
    """Return where the session bus usually is: some agents pass on few variables."""
    socket = f"/run/user/{os.getuid()}/bus"
    return f"unix:path={socket}" if os.path.exists(socket) else ""
