# SPDX-License-Identifier: GPL-3.0-or-later
"""The first program in a Flatpak's inner sandbox: it checks the sandbox, then runs the command.

It talks to runner.py over a socket. It receives what to expect, answers with one of the codes
below, and receives the command; both messages are marshalled and preceded by their size. When the
socket is closed, the command is ended.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypedDict

from ..unsandboxed import child

# Descriptors that the program is started with.
CHANNEL, STDOUT, STDERR = 3, 4, 5
_SIZE = struct.Struct("!Q")


class InnerCheck(Enum):
    """The result of the checks that this program makes inside the sandbox."""

    READY = b"ready"
    NO_WORKING_DIR = b"no working directory"
    PROJECT_READ_ONLY = b"project is read-only"
    OWN_FILES_VISIBLE = b"own files are visible"
    NETWORK_ON = b"network is on"


# Device and inode.
Identity = tuple[int, int]


class Expected(TypedDict):
    writable: list[tuple[bytes, Identity | None]]
    hidden: list[tuple[bytes, Identity | None]]
    start: bytes
    # The network namespace that it must not be in, or 0.
    foreign_network: int


class Order(TypedDict):
    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]


def main() -> int:
    if os.environ.keys() - {"LC_CTYPE"}:
        # Flatpak passes on the user's session, with its tokens, and other processes can read the
        # variables that a program was started with. (Python itself sets LC_CTYPE.)
        os.execve(sys.executable, sys.orig_argv, {})
    channel = socket.socket(fileno=CHANNEL)
    for descriptor in (CHANNEL, STDOUT, STDERR):
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    expected: Expected = marshal.loads(_receive(channel))
    channel.sendall(_examine(expected).value)
    message = _receive(channel)
    if not message or not _end_with(channel):
        return 0
    order: Order = marshal.loads(message)
    os.dup2(STDOUT, 1)
    os.dup2(STDERR, 2)
    os.close(STDOUT)
    os.close(STDERR)
    os.chdir(order["folder"])
    os.environb.clear()
    os.environb.update(order["environment"])
    return child.main([os.fsdecode(word) for word in order["argv"]])


def pack_expected(
    writable: Sequence[bytes], hidden: Sequence[bytes], start: bytes, foreign_network: int
) -> bytes:
    return _sized(
        marshal.dumps(
            {
                "writable": [(folder, _identity(folder)) for folder in writable],
                "hidden": [(folder, _identity(folder)) for folder in hidden],
                "start": start,
                "foreign_network": foreign_network,
            }
        )
    )


def pack_order(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> bytes:
    # As bytes: inside, Python does not know the user's locale.
    return _sized(
        marshal.dumps(
            {
                "argv": [os.fsencode(word) for word in argv],
                "folder": os.fsencode(folder),
                "environment": {os.fsencode(k): os.fsencode(v) for k, v in environment.items()},
            }
        )
    )


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _receive(channel: socket.socket) -> bytes:
    """Return a message, or nothing if the other end is closed."""
    head = _receive_all(channel, _SIZE.size)
    return _receive_all(channel, _SIZE.unpack(head)[0]) if head else b""


def _receive_all(channel: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = channel.recv(size - len(found))
        if not piece:
            return b""
        found += piece
    return found


def _examine(expected: Expected) -> InnerCheck:
    for folder, known in expected["writable"]:
        if _identity(folder) != known or not os.access(folder, os.W_OK):
            return InnerCheck.PROJECT_READ_ONLY
    for folder, known in expected["hidden"]:
        if known is not None and _identity(folder) == known:
            return InnerCheck.OWN_FILES_VISIBLE
    if os.stat("/proc/self/ns/net").st_ino == expected["foreign_network"]:
        return InnerCheck.NETWORK_ON
    return InnerCheck.READY if os.path.isdir(expected["start"]) else InnerCheck.NO_WORKING_DIR


def _identity(folder: bytes) -> Identity | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end_with(channel: socket.socket) -> bool:
    """Have the kernel send SIGTERM when the other end is closed: from now on the program waits for
    the command, not for the socket. Return False if it is closed already."""
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(channel, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(channel, fcntl.F_SETFL, fcntl.fcntl(channel, fcntl.F_GETFL) | os.O_ASYNC)
    return not select.select([channel], [], [], 0)[0]
