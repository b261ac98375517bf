# SPDX-License-Identifier: GPL-3.0-or-later
"""Our side of the process that starts sandboxes.

Imports little at the top: the command line starts that process before it loads asyncio and GLib,
and finds it ready when it has.
"""

from __future__ import annotations

import array
import contextlib
import marshal
import os
import socket
import sys
from _thread import allocate_lock
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ... import N_
from ...errors import SandboxError

if TYPE_CHECKING:
    from ..plan.mounts import OverlayMount

_STARTER = os.path.join(os.path.dirname(__file__), "server.py")
# Imported, not run as a script: that would be compiled anew each time. The folder comes last on the
# path, so nothing in it takes the place of a module of Python's own.
_MAIN = """\
import os.path, sys
sys.path.append(os.path.abspath(sys.argv[1] + "/../../../.."))
from ollmsandbox.sandbox.starter.server import main
main(int(sys.argv[2]))
"""
_PATIENCE = 15.0
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


@dataclass(frozen=True)
class Order:
    """What the starter is told, besides the descriptors, which become 0, 1, 2 and so on."""

    argv: Sequence[str]
    folder: str
    namespaces: Sequence[str] = ()
    mounts: Sequence[OverlayMount] = ()
    processes: int | None = None
    # A program that stays visible inside and must not be writable there.
    protect: str = ""
    protected: tuple[int, int] = (0, 0)

    def packed(self) -> bytes:
        # As bytes: the starter has no locale of the person's to encode them by.
        return marshal.dumps(
            {
                "argv": [os.fsencode(word) for word in self.argv],
                "folder": os.fsencode(self.folder),
                "mounts": [mount.packed() for mount in self.mounts],
                "processes": self.processes,
                "protect": os.fsencode(self.protect),
                "protected": self.protected,
            }
        )


@dataclass(frozen=True)
class Started:
    pid: int
    pidfd: int


class Starter:
    """The small process that starts sandboxes, kept for the next one.

    It answers as soon as it has forked, before anything that could take long, so it is waited for.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        # A machine is probed in a thread while a command is started in another: each question has
        # to get its own answer.
        self._asking = allocate_lock()
        ours.settimeout(_PATIENCE)
        with theirs:
            place = 3
            argv = [sys.executable, "-I", "-S", "-c", _MAIN, _STARTER, str(place)]
            actions: list[tuple[int | str, ...]] = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), place),
                # Who reads our output must not wait for the end of a process they know nothing of.
                *((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(place)),
            ]
            self.pid = os.posix_spawn(sys.executable, argv, {}, file_actions=actions)

    def start(self, order: Order, descriptors: Sequence[int]) -> Started:
        """The descriptors stay the caller's; the pidfd becomes theirs."""
        paper = memory_file("order", order.packed())
        rights = array.array("i", [paper, *descriptors])
        room = socket.CMSG_LEN(rights.itemsize)
        try:
            names = " ".join(order.namespaces).encode() or b" "
            with self._asking:
                self._socket.sendmsg([names], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                text, ancillary, _flags, _address = self._socket.recvmsg(64, room, _CLOEXEC)
        except OSError as error:
            raise self._lost() from error
        finally:
            os.close(paper)
        if not text or not ancillary:
            raise self._lost()
        pidfd = array.array("i")
        pidfd.frombytes(ancillary[0][2])
        return Started(int(text), pidfd[0])

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _lost(self) -> SandboxError:
        shared_starter.cache_clear()
        return SandboxError(N_("The process that starts sandboxes is gone."), N_("Try again."))


@cache
def shared_starter() -> Starter:
    """One for the program: it takes longer to come up than a sandbox does."""
    return Starter()


# A copy of this process must not speak on the same line.
os.register_at_fork(after_in_child=shared_starter.cache_clear)


def memory_file(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
