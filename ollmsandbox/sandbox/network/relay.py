# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the sockets inside a sandbox, in a thread: names, and connections that wait for an answer
and are then relayed.

A connection ends at an address that stands for a name. Only after a yes is the name looked up here,
and the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from ...net.addresses import Reach, reach_of
from .hello import NotYet, server_name
from .hosts import HostUse, Trouble
from .names import Names

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_PIECE = 1 << 18
# Bytes that wait for a slow receiver.
_MOST_WAITING = 1 << 20
_MOST_LINKS = 3000
_MOST_HOSTS = 500
_MOST_SERVED = 50
# Datagrams at once: connections have a turn, too.
_AT_ONCE = 64
# Seconds to connect to one address.
_PATIENCE = 20.0
_PAUSE = 0.05
_RESET = struct.pack("ii", 1, 0)
_LARGEST_QUERY = 4096
# What programs show or understand if a host is refused: a page, and TLS's "access denied". After a
# mere end of the connection, some try again for minutes.
_FORBIDDEN = (
    "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{why}\n"
)
_ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"
_LINGER = 2.0


class Listener(NamedTuple):
    """A listening socket inside, and the host it stands for if that is not told by the address."""

    socket: socket.socket
    host: str = ""
    # For a service of this computer.
    is_local: bool = False


class Gate(Protocol):
    """Decides about hosts. May be called from the relay's thread."""

    def decide(self, host: str, port: int, address: str = "") -> bool | None:
        """Return the answer; None if it is not known yet. Then `Relay.wake` follows it. With an
        `address`, the question is whether a private address may be used."""


class Service(Protocol):
    """Serves a name that exists only in one sandbox."""

    def __call__(self, client: socket.socket) -> None:
        """Serve a connection, in a thread of its own, until one side ends it."""


class _Link:
    """A connection from inside, and ours to the server."""

    def __init__(self, client: socket.socket, listener: Listener, use: HostUse) -> None:
        self.client = client
        self.is_local = listener.is_local
        self.use = use
        self.server: socket.socket | None = None
        self.addresses: deque[str] = deque()
        self.deadline = 0.0
        self.is_connected = False
        # What the client said first, until it was looked at.
        self.first: bytes | None = None if listener.is_local else b""
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.client_ended = self.server_ended = False


class Relay:
    """Serves the sockets of one sandbox until it is closed."""

    def __init__(
        self,
        names: Names,
        dns: Sequence[socket.socket],
        listeners: Sequence[Listener],
        gate: Gate,
        resolve: Callable[[str, int], Sequence[str]],
        services: Mapping[str, Service] | None = None,
    ) -> None:
        self._names = names
        self._gate = gate
        self._resolve = resolve
        # By name, on port 80.
        self._services = services or {}
        self._served: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()
        self._own: list[socket.socket] = [*dns, *(one.socket for one in listeners)]
        self._links: set[_Link] = set()
        # Those that wait for an answer, and for addresses.
        self._asking: set[_Link] = set()
        self._resolving: dict[tuple[str, int], set[_Link]] = {}
        self._resolved: deque[tuple[tuple[str, int], Sequence[str] | None]] = deque()
        self.uses: dict[tuple[str, int], HostUse] = {}
        self._pool = ThreadPoolExecutor(4, "resolve")
        self._is_closed = False
        # One for all: new memory for each piece would take half of the time.
        self._piece = memoryview(bytearray(_PIECE))
        # Not a pipe: a lookup may end after this is closed, and its number may be another file's.
        self._awake, self._waker = socket.socketpair()
        self._awake.settimeout(0)
        self._waker.settimeout(0)
        self._selector.register(self._awake, _READ, self._on_wake)
        for one in self._own:
            one.settimeout(0)
        udp, tcp = dns
        self._selector.register(udp, _READ, lambda _mask: self._on_datagrams(udp))
        self._selector.register(tcp, _READ, lambda _mask: self._on_dns_connection(tcp))
        for listener in listeners:
            self._selector.register(listener.socket, _READ, self._accepter(listener))
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at open questions again."""
        with contextlib.suppress(OSError):
            self._waker.send(b".")

    def close(self) -> None:
        """End all connections. May block for a moment."""
        self._is_closed = True
        self.wake()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        try:
            looked = 0.0
            while not self._is_closed:
                for key, mask in self._selector.select(1.0 if self._links else None):
                    key.data(mask)
                if (now := time.monotonic()) > looked + 1.0:
                    looked = now
                    self._give_up(now)
        finally:
            for link in list(self._links):
                self._end(link)
            for client in list(self._served):
                with contextlib.suppress(OSError):  # it has just ended
                    client.shutdown(socket.SHUT_RDWR)
            self._selector.close()
            for one in self._own:
                one.close()
            self._awake.close()
            self._waker.close()

    def _on_wake(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(1 << 12)
        for link in list(self._asking):
            self._asking.discard(link)
            self._ask(link)
        while self._resolved:
            key, found = self._resolved.popleft()
            for link in self._resolving.pop(key, ()):
                self._check(link, found)

    def _give_up(self, now: float) -> None:
        for link in [one for one in self._links if 0 < one.deadline < now]:
            self._try_next(link)

    # --- names -------------------------------------------------------------------------------

    def _on_datagrams(self, udp: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                query, sender = udp.recvfrom(_LARGEST_QUERY)
                if (answer := self._names.answer(query)) is not None:
                    udp.sendto(answer, sender)
            except OSError:
                return

    def _on_dns_connection(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client, _address = listener.accept()
            client.settimeout(0)
            if len(self._selector.get_map()) > 2 * _MOST_LINKS:
                client.close()
                return
            received = bytearray()
            on_query = lambda _mask: self._on_dns_query(client, received)  # noqa: E731
            self._selector.register(client, _READ, on_query)
            self._own.append(client)

    def _on_dns_query(self, client: socket.socket, received: bytearray) -> None:
        data = self._receive(client)
        if data is None:
            return
        received += data
        size = int.from_bytes(received[:2], "big")
        is_whole = len(received) >= 2 + size
        if data and not is_whole and size <= _LARGEST_QUERY:
            return
        answer = self._names.answer(bytes(received[2 : 2 + size])) if is_whole else None
        with contextlib.suppress(OSError):
            if answer is not None:
                client.send(len(answer).to_bytes(2, "big") + answer)
        self._selector.unregister(client)
        self._own.remove(client)
        client.close()

    # --- connections -------------------------------------------------------------------------

    def _accepter(self, listener: Listener) -> Callable[[int], None]:
        def accept(_mask: int) -> None:
            for _ in range(_AT_ONCE):
                try:
                    client, _address = listener.socket.accept()
                except BlockingIOError:
                    return
                except OSError:
                    # Such as too many descriptors: it is still there when others are closed.
                    time.sleep(_PAUSE)
                    return
                self._begin(client, listener)

        return accept

    def _begin(self, client: socket.socket, listener: Listener) -> None:
        address, port = client.getsockname()[:2]
        host = listener.host or self._names.name_of(address) or ""
        if not host or len(self._links) >= _MOST_LINKS:
            _reset(client)
            return
        if host in self._services:
            self._begin_service(client, host, port)
            return
        if (host, port) not in self.uses and len(self.uses) >= _MOST_HOSTS:
            _reset(client)
            return
        use = self.uses.setdefault((host, port), HostUse(host, port))
        client.settimeout(0)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, listener, use)
        self._links.add(link)
        self._ask(link)

    def _begin_service(self, client: socket.socket, host: str, port: int) -> None:
        if port != 80 or len(self._served) >= _MOST_SERVED:
            _reset(client)
            return
        self._served.add(client)
        client.settimeout(None)
        arguments = (self._services[host], client)
        threading.Thread(target=self._serve, args=arguments, name=host, daemon=True).start()

    def _serve(self, service: Service, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                service(client)
        finally:
            self._served.discard(client)

    def _ask(self, link: _Link, address: str = "") -> None:
        """Go on with a connection if it is allowed."""
        allowed = self._gate.decide(link.use.host, link.use.port, address)
        if allowed is None:
            self._asking.add(link)
            return
        link.use.allowed = allowed
        if not allowed:
            self._refuse(link)
        elif link.is_local:
            link.addresses = deque(("127.0.0.1", "::1"))
            self._try_next(link)
        else:
            self._look_up(link)

    def _look_up(self, link: _Link) -> None:
        key = (link.use.host, link.use.port)
        waiting = self._resolving.setdefault(key, set())
        waiting.add(link)
        if len(waiting) == 1:
            self._pool.submit(self._look_up_in_thread, key)

    def _look_up_in_thread(self, key: tuple[str, int]) -> None:
        try:
            found: Sequence[str] | None = self._resolve(*key)
        except (OSError, UnicodeError):
            found = None
        self._resolved.append((key, found))
        self.wake()

    def _check(self, link: _Link, found: Sequence[str] | None) -> None:
        """Connect to the addresses of a host, unless they are special, or private and not
        allowed."""
        if not found:
            link.use.trouble = Trouble.NOT_FOUND
            self._end(link)
            return
        kinds = {address: reach_of(address) for address in found}
        if Reach.SPECIAL in kinds.values():
            link.use.trouble = Trouble.SPECIAL
            self._refuse(link)
            return
        for address, kind in kinds.items():
            if kind is Reach.PRIVATE:
                allowed = self._gate.decide(link.use.host, link.use.port, address)
                if allowed is None:
                    self._asking.add(link)
                    return
                if not allowed:
                    link.use.trouble = Trouble.PRIVATE
                    self._refuse(link)
                    return
        link.addresses = deque(found)
        self._try_next(link)

    def _refuse(self, link: _Link) -> None:
        """Tell the client that the host is not allowed, in the words of its protocol."""
        link.use.allowed = False
        if link.use.port == 80:
            text = f"The host {link.use.host} was not allowed."
            link.to_client += _FORBIDDEN.format(why=text).encode()
        elif link.use.port == 443:
            link.to_client += _ACCESS_DENIED
        try:
            link.client.send(link.to_client)
            link.client.shutdown(socket.SHUT_WR)
        except OSError:
            self._end(link)
            return
        # What it said has to be read: otherwise the end of the connection would overtake the text.
        link.to_client.clear()
        link.deadline = time.monotonic() + _LINGER
        self._selector.register(link.client, _READ, lambda _mask: self._on_refused(link))

    def _on_refused(self, link: _Link) -> None:
        data = self._receive(link.client)
        if data is not None and not data:
            self._end(link)

    def _try_next(self, link: _Link) -> None:
        """Connect to the next address of a host."""
        self._close_server(link)
        while link.addresses:
            address = link.addresses.popleft()
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                server = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            except OSError:
                break
            link.server = server
            with contextlib.suppress(BlockingIOError):
                try:
                    server.connect((address, link.use.port))
                except BlockingIOError:
                    raise
                except OSError:
                    self._close_server(link)
                    continue
            link.deadline = time.monotonic() + _PATIENCE
            self._selector.register(server, _WRITE, lambda _mask: self._on_connected(link))
            return
        if link.use.allowed:
            link.use.trouble = Trouble.UNREACHABLE
        self._end(link)

    def _on_connected(self, link: _Link) -> None:
        assert link.server is not None
        if link.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._try_next(link)
            return
        link.deadline = 0.0
        link.is_connected = True
        link.use.trouble = None
        link.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.unregister(link.server)
        self._watch(link)

    # --- relaying ----------------------------------------------------------------------------

    def _watch(self, link: _Link) -> None:
        """Wait for what a connection can do next, or end it."""
        assert link.server is not None
        if link.client_ended and link.server_ended and not link.to_client and not link.to_server:
            self._end(link)
            return
        ours = (link.client, link.client_ended, link.to_server, link.to_client, self._on_client)
        theirs = (link.server, link.server_ended, link.to_client, link.to_server, self._on_server)
        for one, has_ended, filled, waiting, react in (ours, theirs):
            events = 0 if has_ended or len(filled) >= _MOST_WAITING else _READ
            events |= _WRITE if waiting else 0
            known = self._selector.get_map().get(one)
            if known is not None and known.events == events:
                continue
            if known is not None and not events:
                self._selector.unregister(one)
            elif known is not None:
                self._selector.modify(one, events, known.data)
            elif events:
                self._selector.register(one, events, lambda mask, react=react: react(link, mask))

    def _on_client(self, link: _Link, mask: int) -> None:
        with self._ending(link):
            assert link.server is not None
            if mask & _WRITE:
                _send(link.client, link.to_client)
            if mask & _READ:
                data = self._receive(link.client)
                if data is not None and not data:
                    link.client_ended = True
                elif data is not None and (said := self._checked(link, data)):
                    link.use.sent += len(said)
                    _send(link.server, link.to_server, said)
            self._shut_down(link)

    def _on_server(self, link: _Link, mask: int) -> None:
        with self._ending(link):
            assert link.server is not None
            if mask & _WRITE:
                _send(link.server, link.to_server)
            if mask & _READ:
                data = self._receive(link.server)
                if data is not None and not data:
                    link.server_ended = True
                elif data is not None:
                    link.use.received += len(data)
                    _send(link.client, link.to_client, data)
            self._shut_down(link)

    def _checked(self, link: _Link, data: memoryview) -> memoryview | bytes:
        """Return what goes to the server, after a look at the client's first words: a TLS hello
        must name the host that was allowed."""
        if link.first is None:
            return data
        first = link.first = link.first + data
        try:
            name = server_name(first)
        except NotYet:
            return b""
        if name is not None and name != link.use.host:
            link.use.trouble, link.use.other_name = Trouble.OTHER_NAME, name
            raise ConnectionAbortedError
        link.first = None
        return first

    def _receive(self, source: socket.socket) -> memoryview | None:
        """Return what has arrived, nothing at the end, and None if there is nothing yet."""
        try:
            return self._piece[: source.recv_into(self._piece)]
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return self._piece[:0]

    def _shut_down(self, link: _Link) -> None:
        """Pass on that a side has nothing more to say."""
        assert link.server is not None
        if link.client_ended and not link.to_server:
            link.server.shutdown(socket.SHUT_WR)
        if link.server_ended and not link.to_client:
            link.client.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def _ending(self, link: _Link) -> Iterator[None]:
        """End the connection if an error occurs; otherwise go on with it."""
        try:
            yield
        except OSError:
            self._end(link)
        else:
            self._watch(link)

    def _end(self, link: _Link) -> None:
        self._links.discard(link)
        self._asking.discard(link)
        self._close_server(link)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.client)
        if link.is_connected and link.client_ended:
            link.client.close()
        else:
            _reset(link.client)

    def _close_server(self, link: _Link) -> None:
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


def _reset(client: socket.socket) -> None:
    """Close a connection so that the other side sees an error at once."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()


def sorted_uses(uses: Mapping[tuple[str, int], HostUse]) -> tuple[HostUse, ...]:
    """Return the hosts in order, those that were refused first."""
    return tuple(sorted(uses.values(), key=lambda use: (bool(use.allowed), use.host, use.port)))
