# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishes a port of a command: whoever connects to a port of this computer's loopback device
reaches what the command listens on, while it runs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ... import N_
from ...errors import SandboxError
from .inside import NetworkNamespace
from .pump import MOST_LINKS, Link, Pump, reset

# The command may listen on either of them, or on both.
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
# Sockets inside are made in advance, this many of each kind.
_STOCK = 16
_BACKLOG = 128
# Numbers to try, if the port is in use.
_ATTEMPTS = 20


class PortLink(Link):
    """A connection of a program of this computer to the command."""

    def __init__(self, client: socket.socket) -> None:
        super().__init__(client)
        self.families = deque(_LOOPBACK)


class PublishedPort(Pump[PortLink]):
    """A port of the command, and the one of this computer that leads to it: the same number, if it
    is free. Connections wait until `serve` is called."""

    def __init__(self, port: int) -> None:
        listeners = _listen(port)
        super().__init__("published port")
        self.port = port
        self.host_port: int = listeners[0].getsockname()[1]
        for listener in listeners:
            self._serve_connections(listener)
        self._namespace: NetworkNamespace | None = None
        # Sockets inside that are not connected yet, and the links that wait for one.
        self._stock: dict[socket.AddressFamily, deque[socket.socket]] = {
            family: deque() for family, _address in _LOOPBACK
        }
        self._waiting: deque[PortLink] = deque()
        self._pool = ThreadPoolExecutor(1, "published port")
        self._making: Future[list[socket.socket | None]] | None = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.host_port}"

    def serve(self, namespace: NetworkNamespace) -> None:
        """Carry connections into the namespace, in a thread."""
        self._namespace = namespace
        self._thread.start()

    def close(self) -> None:
        super().close()
        self._pool.shutdown(cancel_futures=True)
        if self._making is not None and self._making.done():
            self._take_in(self._making)
        for stock in self._stock.values():
            for one in stock:
                one.close()

    def _begin(self, client: socket.socket) -> None:
        if len(self._links) >= MOST_LINKS:
            reset(client)
            return
        link = PortLink(client)
        self._links.add(link)
        self._try_next(link)

    def _try_next(self, link: PortLink) -> None:
        self._close_server(link)
        while link.families:
            family, address = link.families[0]
            if not self._stock[family]:
                self._waiting.append(link)
                self._make_sockets()
                return
            link.families.popleft()
            if self._connect(link, self._stock[family].popleft(), (address, self.port)):
                return
        self._end(link)

    def _make_sockets(self) -> None:
        """Have more sockets made inside, in another thread."""
        if self._making is not None or self._namespace is None:
            return
        wanted = []
        for family, address in _LOOPBACK:
            wanted += [("connect", address, 0)] * (_STOCK - len(self._stock[family]))
        self._making = self._pool.submit(self._namespace.make_sockets, wanted)
        self._making.add_done_callback(lambda _made: self.wake())

    def _go_on(self) -> None:
        if self._making is None or not self._making.done():
            return
        made, self._making = self._making, None
        is_made = self._take_in(made)
        waiting, self._waiting = self._waiting, deque()
        for link in waiting:
            if is_made:
                self._try_next(link)
            else:
                self._end(link)

    def _take_in(self, made: Future[list[socket.socket | None]]) -> bool:
        """Add sockets to the stock; return False if there are none, because the command ends."""
        with contextlib.suppress(SandboxError, OSError):
            found = [one for one in made.result() if one is not None]
            for one in found:
                self._stock[one.family].append(one)
            return bool(found)
        return False


@dataclass(eq=False)
class CommandPorts:
    """The ports of one command: those it listens on, and those that are published."""

    _find_namespace: Callable[[], NetworkNamespace | None]
    _our_places: Callable[[], Sequence[tuple[str, int]]]
    _published: dict[int, PublishedPort] = field(default_factory=dict)
    # Held while ports are published or closed, which different threads do.
    _changing: threading.Lock = field(default_factory=threading.Lock)
    is_closed: bool = False

    @property
    def published(self) -> list[PublishedPort]:
        return list(self._published.values())

    def listening(self) -> list[int]:
        """Return the ports that the command listens on, of those that can be published."""
        namespace = self._find_namespace()
        if namespace is None:
            return []
        theirs = namespace.listening().difference(self._our_places())
        return sorted({port for _address, port in theirs})

    def open(self, wanted: Sequence[int]) -> None:
        """Open ports of this computer, before the command starts."""
        for port in wanted:
            self._published[port] = PublishedPort(port)

    def serve(self) -> None:
        """Serve the open ports: the command has started."""
        namespace = self._find_namespace()
        if namespace is not None:
            for one in self.published:
                one.serve(namespace)

    def publish(self, port: int) -> PublishedPort:
        """Publish a port of the running command, unless it is published already."""
        with self._changing:
            namespace = self._find_namespace()
            if namespace is None or self.is_closed:
                raise SandboxError(N_("The command has ended."))
            if port not in self._published:
                self._published[port] = PublishedPort(port)
                self._published[port].serve(namespace)
            return self._published[port]

    def close(self) -> None:
        with self._changing:
            self.is_closed = True
            for one in self.published:
                one.close()


def _listen(port: int) -> list[socket.socket]:
    """Listen on a port of the loopback device, or on another one if it is in use."""
    for number in (port, *[0] * _ATTEMPTS):
        with contextlib.ExitStack() as closing:
            made: list[socket.socket] = []
            try:
                for family, address in _LOOPBACK:
                    if family == socket.AF_INET6 and not _has_ipv6():
                        continue
                    one = closing.enter_context(socket.socket(family, socket.SOCK_STREAM))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind((address, made[0].getsockname()[1] if made else number))
                    one.listen(_BACKLOG)
                    made.append(one)
            except OSError:
                continue  # another program uses it, or only root may
            closing.pop_all()
            return made
    raise SandboxError(N_("No port of this computer is free."))


def _has_ipv6() -> bool:
    """Return whether the loopback device has its IPv6 address."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as one:
        one.bind(("::1", 0))
        return True
    return False
