# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the sockets inside a sandbox, in a thread: names, and connections that wait for an answer
and are then relayed.

A connection ends at an address that stands for a name. Only after a yes is the name looked up here,
and the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ...net.addresses import Reach, reach_of
from .hello import NotYet, server_name
from .hosts import HostUse, Trouble
from .names import Names, is_host_name
from .proxy import Handshake, Proxy, ProxyError
from .pump import AT_ONCE, MOST_LINKS, READ, Link, Pump, reset

_MOST_HOSTS = 500
_MOST_SERVED = 50
_LARGEST_QUERY = 4096
# What programs show or understand if a host is refused: a page, and TLS's "access denied". After a
# mere end of the connection, some try again for minutes.
_FORBIDDEN = (
    "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{why}\n"
)
_ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"
_LINGER = 2.0


# Returns whether a host and a port may be reached; None if that is not known yet. Then `Relay.wake`
# follows it. With an address, the question is whether that may be used although it is private. May
# be called from the relay's thread.
Decide = Callable[[str, int, str], bool | None]
# Serves a connection to a name that exists only in one sandbox, in a thread of its own, until one
# side ends it.
Service = Callable[[socket.socket], None]


class HostLink(Link):
    """A connection from inside to a host."""

    def __init__(self, client: socket.socket, use: HostUse) -> None:
        super().__init__(client)
        self.use = use
        self.addresses: deque[str] = deque()
        self.has_waited = False
        self.proxy: Proxy | None = None
        self.handshake: Handshake | None = None
        # What the client said first, until it was looked at.
        self.first: bytes | None = None if use.is_local else b""


class Relay(Pump[HostLink]):
    """Serves the sockets of one sandbox until it is closed."""

    def __init__(
        self,
        names: Names,
        dns: Sequence[socket.socket],
        listeners: Sequence[socket.socket],
        decide: Decide,
        resolve: Callable[[str, int], Sequence[str]],
        environ: Mapping[str, str],
        services: Mapping[str, Service],
    ) -> None:
        super().__init__("relay")
        self._names = names
        self._decide = decide
        self._environ = environ
        self._resolve = resolve
        # By name, on port 80.
        self._services = services
        self._served: set[socket.socket] = set()
        # Those that wait for an answer, and for addresses.
        self._asking: set[HostLink] = set()
        self._resolving: dict[tuple[str, int], set[HostLink]] = {}
        self._resolved: deque[tuple[tuple[str, int], Sequence[str] | None]] = deque()
        self.uses: dict[tuple[str, int], HostUse] = {}
        self._pool = ThreadPoolExecutor(4, "resolve")
        udp, tcp = dns
        self._serve(udp, lambda _mask: self._on_datagrams(udp))
        self._serve(tcp, lambda _mask: self._on_dns_connection(tcp))
        for listener in listeners:
            self._serve_connections(listener)
        self._thread.start()

    def close(self) -> None:
        super().close()
        for client in list(self._served):
            with contextlib.suppress(OSError):  # it has just ended
                client.shutdown(socket.SHUT_RDWR)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _go_on(self) -> None:
        for link in list(self._asking):
            self._asking.discard(link)
            self._ask(link)
        while self._resolved:
            key, found = self._resolved.popleft()
            for link in self._resolving.pop(key, ()):
                self._check(link, found)

    # --- names -------------------------------------------------------------------------------

    def _on_datagrams(self, udp: socket.socket) -> None:
        for _ in range(AT_ONCE):
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
            if len(self._selector.get_map()) > 2 * MOST_LINKS:
                client.close()
                return
            received = bytearray()
            on_query = lambda _mask: self._on_dns_query(client, received)  # noqa: E731
            self._selector.register(client, READ, on_query)
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

    def _begin(self, client: socket.socket) -> None:
        address, port = client.getsockname()[:2]
        host = self._names.name_of(address)
        if not host or len(self._links) >= MOST_LINKS:
            reset(client)
            return
        if host in self._services:
            self._begin_service(client, host, port)
            return
        if (host, port) not in self.uses and len(self.uses) >= _MOST_HOSTS:
            reset(client)
            return
        use = self.uses.setdefault((host, port), HostUse(host, port))
        link = HostLink(client, use)
        self._links.add(link)
        self._ask(link)

    def _begin_service(self, client: socket.socket, host: str, port: int) -> None:
        if port != 80 or len(self._served) >= _MOST_SERVED:
            reset(client)
            return
        self._served.add(client)
        client.settimeout(None)
        arguments = (self._services[host], client)
        threading.Thread(target=self._run_service, args=arguments, name=host, daemon=True).start()

    def _run_service(self, service: Service, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                service(client)
        finally:
            self._served.discard(client)

    def _ask(self, link: HostLink) -> None:
        allowed = self._decide(link.use.host, link.use.port, "")
        if allowed is None:
            self._wait(link)
            return
        link.use.allowed = allowed
        if not allowed:
            self._refuse(link)
        elif link.use.is_local:
            link.addresses = deque(("127.0.0.1", "::1"))
            self._try_next(link)
        else:
            link.proxy = Proxy.find(link.use.host, link.use.port, self._environ)
            self._look_up(link)

    def _wait(self, link: HostLink) -> None:
        link.has_waited = True
        self._asking.add(link)

    def _look_up(self, link: HostLink) -> None:
        """Look up the address to connect to, in another thread."""
        to = link.proxy or link.use
        key = (to.host, to.port)
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

    def _check(self, link: HostLink, found: Sequence[str] | None) -> None:
        """Connect to the addresses of a host, unless they are special, or private and not
        allowed."""
        if not found:
            link.use.trouble = Trouble.NOT_FOUND if link.proxy is None else Trouble.PROXY
            self._end(link)
            return
        if link.proxy is not None:
            # The user's choice. It looks the host up.
            link.addresses = deque(found)
            self._try_next(link)
            return
        kinds = {address: reach_of(address) for address in found}
        if Reach.SPECIAL in kinds.values():
            link.use.trouble = Trouble.SPECIAL
            self._refuse(link)
            return
        for address, kind in kinds.items():
            if kind is Reach.PRIVATE:
                allowed = self._decide(link.use.host, link.use.port, address)
                if allowed is None:
                    self._wait(link)
                    return
                if not allowed:
                    link.use.trouble = Trouble.PRIVATE
                    self._refuse(link)
                    return
        link.addresses = deque(found)
        self._try_next(link)

    def _refuse(self, link: HostLink) -> None:
        """Tell the client that the host is not allowed, in the words of its protocol."""
        # It may have been reached before its name led to another address.
        link.use.allowed = link.use.was_reached
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
        self._selector.register(link.client, READ, lambda _mask: self._on_refused(link))

    def _on_refused(self, link: HostLink) -> None:
        data = self._receive(link.client)
        if data is not None and not data:
            self._end(link)

    def _try_next(self, link: HostLink) -> None:
        self._close_server(link)
        link.handshake = None
        while link.addresses:
            address = link.addresses.popleft()
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                server = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                break
            if self._connect(link, server, (address, (link.proxy or link.use).port)):
                return
        if link.use.allowed:
            link.use.trouble = Trouble.UNREACHABLE if link.proxy is None else Trouble.PROXY
        self._end(link)

    def _begin_to_carry(self, link: HostLink) -> None:
        if link.proxy is not None and link.handshake is None:
            try:
                link.handshake = link.proxy.handshake(link.use.host, link.use.port)
                assert link.server is not None
                link.server.send(next(link.handshake))
            except (OSError, ProxyError):
                self._try_next(link)
                return
            self._selector.register(link.server, READ, lambda _mask: self._on_proxy(link))
            return
        if link.use.trouble is not Trouble.OTHER_NAME:
            link.use.trouble = None
        if link.has_waited and _has_left(link.client):
            link.use.was_late = True
        else:
            link.use.was_reached = True
        super()._begin_to_carry(link)

    def _on_proxy(self, link: HostLink) -> None:
        if link.server is None or link.handshake is None:
            return
        try:
            data = self._receive(link.server)
            if data is None:
                return
            if not data:
                raise ProxyError
            if said := link.handshake.send(bytes(data)):
                link.server.send(said)
        except StopIteration as end:
            link.to_client += end.value
            self._selector.unregister(link.server)
            self._begin_to_carry(link)
        except (OSError, ProxyError):
            self._try_next(link)

    def _note_traffic(self, link: HostLink, *, sent: int = 0, received: int = 0) -> None:
        link.use.sent += sent
        link.use.received += received

    def _end(self, link: HostLink) -> None:
        self._asking.discard(link)
        super()._end(link)

    def _checked(self, link: HostLink, data: memoryview) -> memoryview | bytes:
        """Return what goes to the server, after a look at the client's first words: a TLS hello
        that names another host than the allowed one ends the connection."""
        if link.first is None:
            return data
        first = link.first = link.first + data
        try:
            name = server_name(first)
        except NotYet:
            return b""
        except ConnectionAbortedError:
            name = "?"
        if name is not None and name != link.use.host:
            link.use.trouble = Trouble.OTHER_NAME
            # It may be any text of the command's.
            link.use.other_name = name if is_host_name(name) else repr(name[:80])
            raise ConnectionAbortedError
        link.first = None
        return first


def _has_left(client: socket.socket) -> bool:
    """Return whether a client has nothing more to say, even if not all of it was received."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(0))


def sorted_uses(uses: Mapping[tuple[str, int], HostUse]) -> tuple[HostUse, ...]:
    """Return the hosts in order, those that were refused first."""
    return tuple(sorted(uses.values(), key=lambda use: (bool(use.allowed), use.host, use.port)))
