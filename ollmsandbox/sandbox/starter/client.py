# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's side of the starter, the process that starts sandboxes (server.py).

Imports little: the command line starts that process before it loads the rest of the program, and
finds it ready after that.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import marshal
import os
import signal
import socket
import sys
from _thread import allocate_lock
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ... import N_
from ...errors import SandboxError
from ...record import Record

if TYPE_CHECKING:
    from ..plan.mounts import BindMounts, OverlayMount

_STARTER = os.path.join(os.path.dirname(__file__), "server.py")
# Imported, since Python compiles a script each time. Our folder comes last on the path, so that
# nothing in it replaces a module of Python's own.
_MAIN = """\
import os.path, sys
sys.path.append(os.path.abspath(sys.argv[1] + "/../../../.."))
from ollmsandbox.sandbox.starter.server import main
main(int(sys.argv[2]))
"""
_TIMEOUT = 15.0
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class StartOrder(Record):
    """A request to the starter. The descriptors sent along become 0, 1, 2 and so on."""

    argv: Sequence[str]
    folder: str
    namespaces: Sequence[str] = ()
    mounts: Sequence[OverlayMount | BindMounts] = ()
    processes: int | None = None
    # The size that a file can grow to.
    file_size: int | None = None
    # A program that must not be writable inside.
    protect: str = ""


class SocketOrder(Record):
    """A request for sockets in a network namespace. They are sent to the only descriptor."""

    # A file in /proc, and its inode: the process may have ended, and another have its number.
    namespace: str
    inode: int
    # Addresses for the loopback device, each with its mask.
    addresses: Sequence[tuple[str, str]]
    # The kind, the address and the port of each: "udp" receives there, "tcp" listens, and "connect"
    # is to be connected to such an address later.
    sockets: Sequence[tuple[str, str, int]]
    namespaces: Sequence[str] = ()


class StartedProcess(Record):
    pid: int
    pidfd: int


class Starter:
    """The running starter. It answers as soon as it has forked, so callers wait for it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        # A thread may probe the machine while another starts a command: each gets its own answer.
        self._asking = allocate_lock()
        ours.settimeout(_TIMEOUT)
        self.pid = _launch_server(theirs)

    def start(self, order: StartOrder | SocketOrder, descriptors: Sequence[int]) -> StartedProcess:
        """Start a process. The descriptors stay the caller's, and the pidfd becomes theirs."""
        order_file = memory_file("order", marshal.dumps(_packed(order)))
        rights = array.array("i", [order_file, *descriptors])
        room = socket.CMSG_LEN(rights.itemsize)
        names = " ".join(order.namespaces).encode() or b" "
        # Until it is closed, if it is lost: no other thread may get the answer to this.
        with self._asking:
            try:
                self._socket.sendmsg([names], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            except OSError as error:
                raise self._lost(_NotSentError) from error
            finally:
                os.close(order_file)
            try:
                text, ancillary, _flags, _address = self._socket.recvmsg(64, room, _CLOEXEC)
            except OSError as error:
                raise self._lost() from error
            if not text or not ancillary:
                raise self._lost()
        pidfd = array.array("i")
        pidfd.frombytes(ancillary[0][2])
        return StartedProcess(int(text), pidfd[0])

    def close(self) -> None:
        """End the process, and all sandboxes with it."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # It may hang.
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _lost(self, kind: type[SandboxError] = SandboxError) -> SandboxError:
        _shared.forget(self)
        return kind(N_("The process that starts sandboxes has ended."), N_("Try again."))


def _packed(value: object) -> dict[str, Any] | list[Any] | bytes | int | None:
    """Return what the starter reads: records as dictionaries, and texts as bytes, since it does not
    have the user's locale to encode them."""
    if isinstance(value, str):
        return os.fsencode(value)
    if isinstance(value, Record):
        return {name: _packed(inner) for name, inner in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_packed(inner) for inner in value]
    assert value is None or isinstance(value, int)
    return value


def _launch_server(connection: socket.socket) -> int:
    """Start server.py with this socket, and without our environment; return its process id.

    Its 0, 1 and 2 are /dev/null: a reader of our output must not have to wait for its end. It
    closes whatever else it inherits.
    """
    with connection:
        # Not 0, 1 or 2, if the program was started without them.
        number = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, 3)
    # The same number in the process: it is in use here, so nothing that is opened for the launch
    # can have it.
    argv = [sys.executable, "-I", "-S", "-c", _MAIN, _STARTER, str(number)]
    actions: list[tuple[int | str, ...]] = [
        # Of a descriptor to itself, this lets it through.
        (os.POSIX_SPAWN_DUP2, number, number),
        *((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(3)),
    ]
    try:
        # It does not fork, which takes long in a program with a window.
        return os.posix_spawn(sys.executable, argv, {}, file_actions=actions)
    finally:
        os.close(number)


class _NotSentError(SandboxError):
    """The starter had ended before it got the order, so nothing of it was done."""


class _SharedStarter:
    """The program's starter, which takes longer to start than a sandbox does. Several threads may
    ask for it, and notice its end."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget it without a lock, in a fork of this process: that must not use the same socket,
        and the thread that held the lock does not exist there."""
        self._changing = allocate_lock()
        self._starter: Starter | None = None

    def get(self) -> Starter:
        with self._changing:
            if self._starter is None:
                self._starter = Starter()
            return self._starter

    def forget(self, lost: Starter) -> None:
        """Have another one started when it is needed next."""
        with self._changing:
            # Another thread may have replaced it.
            if self._starter is lost:
                self._starter = None
                lost.close()


_shared = _SharedStarter()
os.register_at_fork(after_in_child=_shared.reset)


def shared_starter() -> Starter:
    """Return the program's starter."""
    return _shared.get()


def start_process(order: StartOrder | SocketOrder, descriptors: Sequence[int]) -> StartedProcess:
    """Start a process with the program's starter, or with a new one if that has ended."""
    try:
        return shared_starter().start(order, descriptors)
    except _NotSentError:
        return shared_starter().start(order, descriptors)


def memory_file(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
