# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishes a port of a command: whoever connects to a port of this computer's loopback device
reaches what the command listens on, while it runs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ... import N_
from ...errors import SandboxError
from .inside import NetworkNamespace
from .pump import MOST_LINKS, Link, Pump, reset

# The command may listen on either of them, or on both.
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_BACKLOG = 128
# Numbers to try, if the port is in use.
_ATTEMPTS = 20


class PortLink(Link):
    """A connection of a program of this computer to the command."""

    def __init__(self, client: socket.socket) -> None:
        super().__init__(client)
        # Sockets inside that are not connected yet, each with an address.
        self.sockets: list[tuple[socket.socket, str]] = []


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
        # One at a time, in another thread: each takes some milliseconds.
        self._pool = ThreadPoolExecutor(1, "published port")
        self._ready: deque[PortLink] = deque()

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
        for link in self._ready:
            self._end(link)

    def _begin(self, client: socket.socket) -> None:
        if len(self._links) >= MOST_LINKS:
            reset(client)
            return
        link = PortLink(client)
        self._links.add(link)
        self._pool.submit(self._make_sockets, link)

    def _make_sockets(self, link: PortLink) -> None:
        """Make a socket inside for each address of the loopback device, in another thread. There
        are none if the command ends."""
        assert self._namespace is not None
        with contextlib.suppress(SandboxError, OSError):
            made = self._namespace.make_sockets([("connect", place, 0) for _, place in _LOOPBACK])
            places = zip(made, _LOOPBACK, strict=True)
            link.sockets = [(one, place) for one, (_, place) in places if one is not None]
        self._ready.append(link)
        self.wake()

    def _go_on(self) -> None:
        while self._ready:
            self._try_next(self._ready.popleft())

    def _try_next(self, link: PortLink) -> None:
        self._close_server(link)
        while link.sockets:
            one, place = link.sockets.pop(0)
            if self._connect(link, one, (place, self.port)):
                return
        self._end(link)

    def _end(self, link: PortLink) -> None:
        while link.sockets:
            link.sockets.pop()[0].close()
        super()._end(link)


@dataclass(eq=False)
class CommandPorts:
    """The ports of one command: those it listens on, and those that are published."""

    _find_namespace: Callable[[], NetworkNamespace | None]
    _our_places: Callable[[], Sequence[tuple[str, int]]]
    _published: dict[int, PublishedPort] = field(default_factory=dict)
    # Held while ports are published or closed, which different threads do.
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

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
            if namespace is None or self._is_closed:
                raise SandboxError(N_("The command has ended."))
            if port not in self._published:
                self._published[port] = PublishedPort(port)
                self._published[port].serve(namespace)
            return self._published[port]

    def close(self) -> None:
        with self._changing:
            self._is_closed = True
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
