# SPDX-License-Identifier: GPL-3.0-or-later
"""The far end of inner.py: the first program in the Flatpak's inner sandbox. It looks whether the
sandbox is what it should be, says so, and when it is told to, runs the command.

Spoken to over a socket. To it: what should be so, and then the command, each marshalled and after
its size. From it: one answer. The end of the socket is the end of the command.
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

from ..plain import child

LINE, STDOUT, STDERR = 3, 4, 5
_SIZE = struct.Struct("!Q")


class InnerCheck(Enum):
    """What the sandbox is like, seen from inside."""

    READY = b"ready"
    NO_PROJECT = b"no project"
    OWN_FILES_OPEN = b"own files open"
    NETWORK_OPEN = b"network open"
    NO_WORKING_DIR = b"no working directory"


# Which folder it is, wherever it is mounted.
Identity = tuple[int, int]


class Expected(TypedDict):
    written: list[tuple[bytes, Identity | None]]
    hidden: list[tuple[bytes, Identity | None]]
    start: bytes
    # The network that it must not be in, if any.
    foreign_network: int


class Order(TypedDict):
    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]


def main() -> int:
    if os.environ.keys() - {"LC_CTYPE"}:
        # Flatpak gave us what the person's session has, tokens among it, and what a program was
        # started with can be read by others as long as it runs. (Python itself sets LC_CTYPE.)
        os.execve(sys.executable, sys.orig_argv, {})
    talk = socket.socket(fileno=LINE)
    for descriptor in (LINE, STDOUT, STDERR):
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    expected: Expected = marshal.loads(_receive(talk))
    talk.sendall(_examine(expected).value)
    paper = _receive(talk)
    if not paper or not _end_with(talk):
        return 0
    order: Order = marshal.loads(paper)
    os.dup2(STDOUT, 1)
    os.dup2(STDERR, 2)
    os.close(STDOUT)
    os.close(STDERR)
    os.chdir(order["folder"])
    os.environb.clear()
    os.environb.update(order["environment"])
    return child.main([os.fsdecode(word) for word in order["argv"]])


def pack_expected(
    written: Sequence[bytes], hidden: Sequence[bytes], start: bytes, foreign_network: int
) -> bytes:
    return _sized(
        marshal.dumps(
            {
                "written": [(folder, _identity(folder)) for folder in written],
                "hidden": [(folder, _identity(folder)) for folder in hidden],
                "start": start,
                "foreign_network": foreign_network,
            }
        )
    )


def pack_order(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> bytes:
    # As bytes: the far end has no locale of the person's to encode them by.
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


def _receive(talk: socket.socket) -> bytes:
    """Nothing if the other end has gone."""
    head = _receive_all(talk, _SIZE.size)
    return _receive_all(talk, _SIZE.unpack(head)[0]) if head else b""


def _receive_all(talk: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = talk.recv(size - len(found))
        if not piece:
            return b""
        found += piece
    return found


def _examine(expected: Expected) -> InnerCheck:
    for folder, known in expected["written"]:
        if _identity(folder) != known or not os.access(folder, os.W_OK):
            return InnerCheck.NO_PROJECT
    for folder, known in expected["hidden"]:
        if known is not None and _identity(folder) == known:
            return InnerCheck.OWN_FILES_OPEN
    if os.stat("/proc/self/ns/net").st_ino == expected["foreign_network"]:
        return InnerCheck.NETWORK_OPEN
    return InnerCheck.READY if os.path.isdir(expected["start"]) else InnerCheck.NO_WORKING_DIR


def _identity(folder: bytes) -> Identity | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end_with(talk: socket.socket) -> bool:
    """From here on the end of the other side is a signal, for a command is waited for and not the
    socket. False if that end has come already."""
    fcntl.fcntl(talk, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(talk, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(talk, fcntl.F_SETFL, fcntl.fcntl(talk, fcntl.F_GETFL) | os.O_ASYNC)
    return not select.select([talk], [], [], 0)[0]
