# SPDX-License-Identifier: GPL-3.0-or-later
"""A thread that carries bytes between pairs of connections: those of relay.py, which lead out of a
sandbox, and those of publish.py, which lead into one."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
MOST_LINKS = 3000
# Connections or datagrams at once: others have a turn, too.
AT_ONCE = 64
_PIECE = 1 << 18
# Bytes that wait for a slow receiver.
_MOST_WAITING = 1 << 20
# Seconds to connect to one address.
_PATIENCE = 20.0
_PAUSE = 0.05
_RESET = struct.pack("ii", 1, 0)


class Link:
    """A connection of a client, and ours to the server."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        # When to give up connecting; 0 for never.
        self.deadline = 0.0
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.client_ended = self.server_ended = False
        # The server broke the connection off: what it sent before is not all.
        self.was_reset = False
        client.settimeout(0)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


L = TypeVar("L", bound=Link)


class Pump(Generic[L]):
    """Serves sockets and links until it is closed. Subclasses accept and connect."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._own: list[socket.socket] = []
        self._links: set[L] = set()
        self._is_closed = False
        # One for all: new memory for each piece would take half of the time.
        self._piece = memoryview(bytearray(_PIECE))
        # Not a pipe: a lookup may end after this is closed, and its number may be another file's.
        self._awake, self._waker = socket.socketpair()
        self._awake.settimeout(0)
        self._waker.settimeout(0)
        self._selector.register(self._awake, READ, self._on_wake)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _serve(self, one: socket.socket, react: Callable[[int], None]) -> None:
        """Call `react` whenever something arrives at a socket, which is closed in the end."""
        one.settimeout(0)
        self._own.append(one)
        self._selector.register(one, READ, react)

    def _serve_connections(self, listener: socket.socket) -> None:
        """Call `_begin` with each connection that arrives at a listener."""

        def accept(_mask: int) -> None:
            for _ in range(AT_ONCE):
                try:
                    client, _address = listener.accept()
                except BlockingIOError:
                    return
                except OSError:
                    # Such as too many descriptors: it is still there when others are closed.
                    time.sleep(_PAUSE)
                    return
                self._begin(client)

        self._serve(listener, accept)

    def _begin(self, client: socket.socket) -> None:
        """Serve a client that has just connected."""
        raise NotImplementedError

    def wake(self) -> None:
        """Look at open questions again."""
        with contextlib.suppress(OSError):
            self._waker.send(b".")

    def close(self) -> None:
        """End all connections. May block for a moment."""
        self._is_closed = True
        if self._thread.ident is None:
            self._clean_up()
        else:
            self.wake()
            self._thread.join()

    def _run(self) -> None:
        try:
            looked = 0.0
            while not self._is_closed:
                for key, mask in self._selector.select(1.0 if self._links else None):
                    key.data(mask)
                if (now := time.monotonic()) > looked + 1.0:
                    looked = now
                    for link in [one for one in self._links if 0 < one.deadline < now]:
                        self._try_next(link)
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        for link in list(self._links):
            self._end(link)
        self._selector.close()
        for one in (*self._own, self._awake, self._waker):
            one.close()

    def _on_wake(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(1 << 12)
        self._go_on()

    def _go_on(self) -> None:
        """Go on with what others have found out."""
        raise NotImplementedError

    # --- connecting --------------------------------------------------------------------------

    def _try_next(self, link: L) -> None:
        """Connect to the next address of a server, or end the link."""
        raise NotImplementedError

    def _connect(self, link: L, server: socket.socket, where: tuple[str, int]) -> bool:
        """Begin to connect, and return whether that may succeed."""
        link.server = server
        server.settimeout(0)
        try:
            server.connect(where)
        except BlockingIOError:
            pass
        except OSError:
            self._close_server(link)
            return False
        link.deadline = time.monotonic() + _PATIENCE
        self._selector.register(server, WRITE, lambda _mask: self._on_connected(link))
        return True

    def _on_connected(self, link: L) -> None:
        if link.server is None:
            return  # it has ended a moment ago, in the same turn
        if link.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._close_server(link)
            self._try_next(link)
            return
        link.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.unregister(link.server)
        self._begin_to_carry(link)

    def _begin_to_carry(self, link: L) -> None:
        link.deadline = 0.0
        self._watch(link)

    # --- carrying ----------------------------------------------------------------------------

    def _watch(self, link: L) -> None:
        """Wait for what a connection can do next, or end it."""
        assert link.server is not None
        if link.client_ended and link.server_ended and not link.to_client and not link.to_server:
            self._end(link)
            return
        ours = (link.client, link.client_ended, link.to_server, link.to_client, self._on_client)
        theirs = (link.server, link.server_ended, link.to_client, link.to_server, self._on_server)
        for one, has_ended, filled, waiting, react in (ours, theirs):
            events = 0 if has_ended or len(filled) >= _MOST_WAITING else READ
            events |= WRITE if waiting else 0
            known = self._selector.get_map().get(one)
            if known is not None and known.events == events:
                continue
            if known is not None and not events:
                self._selector.unregister(one)
            elif known is not None:
                self._selector.modify(one, events, known.data)
            elif events:
                self._selector.register(one, events, lambda mask, react=react: react(link, mask))

    def _on_client(self, link: L, mask: int) -> None:
        with self._ending(link):
            if link.server is None:
                return  # it has ended a moment ago, in the same turn
            if mask & WRITE:
                _send(link.client, link.to_client)
            if mask & READ:
                data = self._receive(link.client)
                if data is not None and not data:
                    link.client_ended = True
                elif data is not None and (said := self._checked(link, data)):
                    self._note_traffic(link, sent=len(said))
                    _send_to_server(link, said)
            self._shut_down(link)

    def _on_server(self, link: L, mask: int) -> None:
        with self._ending(link):
            if link.server is None:
                return  # it has ended a moment ago, in the same turn
            if mask & WRITE:
                _send_to_server(link)
            if mask & READ:
                received = self._carry(link)
                if received == 0:
                    link.server_ended = True
                elif received is not None:
                    self._note_traffic(link, received=received)
            self._shut_down(link)

    def _carry(self, link: L) -> int | None:
        """Pass on what a server has sent; return how much, or None if there is nothing yet."""
        assert link.server is not None
        try:
            received = link.server.recv_into(self._piece)
        except BlockingIOError:
            return None
        except OSError:
            link.was_reset = True
            return 0
        _send(link.client, link.to_client, self._piece[:received])
        return received

    def _checked(self, link: L, data: memoryview) -> memoryview | bytes:
        """Return what of a client's words goes to the server."""
        return data

    def _note_traffic(self, link: L, *, sent: int = 0, received: int = 0) -> None:
        """Take note of the bytes that a link carries."""

    def _receive(self, source: socket.socket) -> memoryview | None:
        """Return what has arrived, nothing at the end, and None if there is nothing yet."""
        try:
            return self._piece[: source.recv_into(self._piece)]
        except BlockingIOError:
            return None
        except OSError:
            return self._piece[:0]

    def _shut_down(self, link: L) -> None:
        """Pass on that a side has nothing more to say."""
        assert link.server is not None
        if link.was_reset and link.server_ended and not link.to_client:
            raise ConnectionResetError
        # What has ended in both directions is no longer connected.
        with contextlib.suppress(OSError):
            if link.client_ended and not link.to_server:
                link.server.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            if link.server_ended and not link.to_client:
                link.client.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def _ending(self, link: L) -> Iterator[None]:
        """End the connection if an error occurs; otherwise go on with it."""
        try:
            yield
        except OSError:
            self._end(link)
        if link in self._links:
            self._watch(link)

    def _end(self, link: L) -> None:
        self._links.discard(link)
        self._close_server(link)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.client)
        if link.client_ended and link.server_ended and not link.was_reset:
            link.client.close()
        else:
            reset(link.client)

    def _close_server(self, link: L) -> None:
        link.deadline = 0.0
        if link.server is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(link.server)
            link.server.close()
            link.server = None


def _send(target: socket.socket, waiting: bytearray, new: memoryview | bytes = b"") -> None:
    """Send what waits, then what is new; what cannot be sent yet waits."""
    with contextlib.suppress(BlockingIOError):
        if waiting:
            del waiting[: target.send(waiting)]
        if not waiting and new:
            new = new[target.send(new) :]
    waiting += new


def _send_to_server(link: Link, new: memoryview | bytes = b"") -> None:
    assert link.server is not None
    try:
        _send(link.server, link.to_server, new)
    except OSError:
        # It does not want to hear more. What it answered before is still to be read.
        link.was_reset = True
        link.to_server.clear()


def reset(client: socket.socket) -> None:
    """Close a connection so that the other side sees an error at once."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()
