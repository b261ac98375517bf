# SPDX-License-Identifier: GPL-3.0-or-later
"""The network namespace of a running sandbox: sockets that are made in it, and the ports that its
command listens on."""

from __future__ import annotations

import array
import os
import socket
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ... import N_
from ...errors import SandboxError
from ...files.dirfd import allow_many_descriptors
from ..starter.client import SocketOrder, start_process

_TIMEOUT = 10.0
_AT_ONCE = 250
_LISTENS = b"0A"
# The kernel lists sockets that listen before all others.
_MUCH = 1 << 16


class NetworkNamespace(NamedTuple):
    """The namespace of a process, given by its folder in /proc."""

    process: str
    # Of the namespace: the process may have ended, and another have its number.
    inode: int

    def make_sockets(
        self, sockets: Sequence[tuple[str, str, int]], addresses: Sequence[tuple[str, str]] = ()
    ) -> list[socket.socket | None]:
        """Make sockets, and None in place of those that cannot be made; first give addresses to the
        loopback device. See SocketOrder for their kinds. Blocks."""
        allow_many_descriptors()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.settimeout(_TIMEOUT)
            with theirs:
                order = SocketOrder(f"{self.process}/ns/net", self.inode, addresses, sockets)
                started = start_process(order, [theirs.fileno()])
            os.close(started.pidfd)
            return _receive_sockets(ours, len(sockets))

    def listening(self) -> set[tuple[str, int]]:
        """Return the addresses and ports on which somebody listens; nothing if the command has
        ended."""
        try:
            with (
                open(f"{self.process}/net/tcp", "rb") as four,
                open(f"{self.process}/net/tcp6", "rb") as six,
            ):
                if os.stat(f"{self.process}/ns/net").st_ino != self.inode:
                    return set()
                lines = [*four.read(_MUCH).splitlines()[1:], *six.read(_MUCH).splitlines()[1:]]
        except OSError:
            return set()
        entries = (line.split() for line in lines)
        return {_place(words[1]) for words in entries if len(words) > 3 and words[3] == _LISTENS}


def _place(text: bytes) -> tuple[str, int]:
    """Return an address and a port from the kernel's list, which has an address as numbers of 32
    bits each, read from memory in this computer's order."""
    address, port = text.split(b":")
    numbers = (int(address[start : start + 8], 16) for start in range(0, len(address), 8))
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    family = socket.AF_INET6 if len(packed) == 16 else socket.AF_INET
    return socket.inet_ntop(family, packed), int(port, 16)


def _receive_sockets(connection: socket.socket, number: int) -> list[socket.socket | None]:
    """Return the sockets that were made, and None for those that were not."""
    try:
        made = connection.recv(1 << 16)
        if not made or made.startswith(b"!"):
            raise SandboxError(
                N_("The network of the sandbox could not be prepared: {why}."),
                why=made[1:].decode("utf-8", "replace") or "no answer",
            )
        found: list[int] = []
        while len(found) < sum(made):
            room = socket.CMSG_LEN(_AT_ONCE * array.array("i").itemsize)
            _data, ancillary, _flags, _from = connection.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
            for _level, _kind, content in ancillary:
                found += array.array("i", content)
            if not ancillary:
                raise SandboxError(N_("The network of the sandbox could not be prepared."))
    except TimeoutError as error:
        raise SandboxError(N_("The network of the sandbox could not be prepared.")) from error
    left = iter(found)
    return [socket.socket(fileno=next(left)) if is_made else None for is_made in made[:number]]
