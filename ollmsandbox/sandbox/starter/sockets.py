# SPDX-License-Identifier: GPL-3.0-or-later
"""A forked child of the starter that makes sockets in a sandbox's network namespace, and sends them
out. A socket belongs to the namespace in which it was made, whoever holds it. See server.py.

The starter has one thread, which entering a user namespace needs.
"""

from __future__ import annotations

import _socket as socket
import ctypes
import errno
import fcntl
import os
import struct
import time

from .child import check, rights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_NS_GET_USERNS = 0xB701
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8913, 0x8916, 0x891C
_IFF_UP = 1
# Seconds.
_PATIENCE, _PAUSE = 8.0, 0.0005
# In one message, SCM_MAX_FD of the kernel.
_AT_ONCE = 250
_libc = ctypes.PyDLL(None, use_errno=True)


def make_sockets(order: dict[str, Any], answer: int) -> NoReturn:
    """Enter the namespace, make the sockets of an order, and send them to a socket: first whether
    each could be made, then those that could."""
    connection = socket.socket(fileno=answer)
    try:
        enter(order["namespace"], order["inode"])
        control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        wait_for_loopback(control)
        for number, (address, mask) in enumerate(order["addresses"], 1):
            add_address(control, number, address.decode(), mask.decode())
        sockets = order["sockets"]
        made = [make_socket(kind.decode(), place.decode(), port) for kind, place, port in sockets]
        connection.send(bytes(1 if one is not None else 0 for one in made))
        found = [one.fileno() for one in made if one is not None]
        for start in range(0, len(found), _AT_ONCE):
            connection.sendmsg([b"."], [rights(found[start : start + _AT_ONCE])])
    except OSError as error:
        connection.send(b"!" + str(error).encode())
    finally:
        os._exit(0)


def enter(namespace: bytes, inode: int) -> None:
    """Enter a network namespace, by the user namespace that owns it. Raise OSError if its number is
    another one: then the process whose namespace it was has ended."""
    net = os.open(namespace, os.O_RDONLY)
    if os.fstat(net).st_ino != inode:
        raise ProcessLookupError
    owner = fcntl.ioctl(net, _NS_GET_USERNS)
    # Nobody may enter the namespace they are in.
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        check(_libc.setns(owner, _NEWUSER))
    check(_libc.setns(net, _NEWNET))


def wait_for_loopback(control: socket.socket) -> None:
    """Wait until bwrap has set the loopback device up: it reports its child before that."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        if struct.unpack_from("H", answer, 16)[0] & _IFF_UP:
            return
        time.sleep(_PAUSE)
    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def add_address(control: socket.socket, number: int, address: str, mask: str) -> None:
    """Give an address to the loopback device. There, all addresses of its network are local."""
    name = b"lo:%d" % number
    for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, mask)):
        given = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(value))
        fcntl.ioctl(control, request, given)


def make_socket(kind: str, address: str, port: int) -> socket.socket | None:
    """Return a socket of a kind (see SocketOrder in client.py), or None if its port is in use or
    its address unknown."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    type_ = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    try:
        made = socket.socket(family, type_)
    except OSError:
        return None  # this kernel has no IPv6
    if kind == "connect":
        return made
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        if kind == "tcp":
            made.listen(1024)
    except OSError:
        made.close()
        return None
    return made
