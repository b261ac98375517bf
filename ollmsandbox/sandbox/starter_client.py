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
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..errors import SandboxError

if TYPE_CHECKING:
    import asyncio

    from .mounts import OverlayMount

_STARTER = os.path.join(os.path.dirname(__file__), "starter.py")
_PATIENCE = 15.0


@dataclass(frozen=True)
class Order:
    """What the starter is told, besides the descriptors, which become 0, 1, 2 and so on."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    namespaces: Sequence[str] = ()
    mounts: Sequence[OverlayMount] = ()
    processes: int | None = None

    def packed(self) -> bytes:
        return marshal.dumps(
            {
                "argv": list(self.argv),
                "environment": dict(self.environment),
                "folder": self.folder,
                "namespaces": list(self.namespaces),
                "mounts": [vars(mount) for mount in self.mounts],
                "processes": self.processes,
            }
        )


@dataclass(frozen=True)
class Started:
    pid: int
    pidfd: int


class Starter:
    """The small process that starts sandboxes, kept for the next one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock: asyncio.Lock | None = None
        with theirs:
            place = 3
            argv = [sys.executable, "-I", "-S", _STARTER, str(place), str(os.getpid())]
            actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), place)]
            self.pid = os.posix_spawn(sys.executable, argv, {}, file_actions=actions)

    async def start(self, order: Order, descriptors: Sequence[int]) -> Started:
        """The descriptors stay the caller's; the pidfd becomes theirs."""
        import asyncio

        from .output import readable

        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            self._send(order, descriptors)
            try:
                async with asyncio.timeout(_PATIENCE):
                    await readable(self._socket.fileno())
            except TimeoutError as error:
                raise self._lost("does not answer") from error
            return self._receive()

    def start_and_wait(self, order: Order, descriptors: Sequence[int], patience: float) -> bool:
        """For trials: whether it could be started and ended within the time."""
        self._send(order, descriptors)
        if not select.select([self._socket], [], [], patience)[0]:
            raise self._lost("does not answer")
        pidfd = self._receive().pidfd
        try:
            return bool(select.select([pidfd], [], [], patience)[0])
        finally:
            os.close(pidfd)

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _send(self, order: Order, descriptors: Sequence[int]) -> None:
        paper = memory_file("order", order.packed())
        try:
            rights = array.array("i", [paper, *descriptors])
            self._socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as error:
            raise self._lost("is gone") from error
        finally:
            os.close(paper)

    def _receive(self) -> Started:
        rights = array.array("i")
        room = socket.CMSG_LEN(rights.itemsize)
        text, ancillary, _flags, _address = self._socket.recvmsg(64, room)
        for _level, _kind, content in ancillary:
            rights.frombytes(content)
        if not text or not rights:
            raise self._lost("is gone")
        os.set_inheritable(rights[0], False)  # noqa: FBT003 - takes no keyword
        return Started(int(text), rights[0])

    def _lost(self, how: str) -> SandboxError:
        shared_starter.cache_clear()
        return SandboxError(f"The process that starts sandboxes {how}.", "Try again.")


@cache
def shared_starter() -> Starter:
    """One for the program: it takes longer to come up than a sandbox does."""
    return Starter()


def memory_file(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
