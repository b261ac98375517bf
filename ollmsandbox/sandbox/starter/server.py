# SPDX-License-Identifier: GPL-3.0-or-later
"""A small process that starts sandboxes: it forks, and the child (child.py) makes the mounts that
bwrap cannot make, and starts bwrap.

`unshare`, a shell and `mount` would take twice the time, since each is a program to load; and a
fork of the window costs more the more it has open. This process imports only child.py of ours, and
as little as possible of the library.

The other side (client.py) talks to it over a socket, one packet each way. A request has the names
of the namespaces and descriptors: the first holds the order (marshalled, which needs no module),
the last receives errors, and all but the first become the child's 0, 1, 2 and so on. The answer is
a process id and its pidfd.
"""

from __future__ import annotations

import _socket as socket
import gc
import marshal
import os
import select

from .child import (
    clone,
    keep_mounts_alive,
    keep_only,
    leave_ends_to_kernel,
    receive,
    report_error,
    rights,
    run,
)
from .sockets import make_sockets


def main(descriptor: int) -> None:
    os.setsid()
    # Children share this memory until it is written to, and collecting garbage would write to it.
    gc.disable()
    # The other side holds the pidfds of the children.
    leave_ends_to_kernel()
    # The program may have left other descriptors open to its children.
    connection = keep_only([0, 1, 2, descriptor])
    StarterServer(socket.socket(fileno=connection)).serve()
    os._exit(0)


class StarterServer:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._running: dict[int, Child] = {}
        # Locked for as long as this process lives: a child does not inherit the lock.
        self.alive = os.memfd_create("alive")
        os.lockf(self.alive, os.F_LOCK, 0)

    def serve(self) -> None:
        while True:
            ready = {descriptor for descriptor, _events in self._poll.poll()}
            for pidfd in ready & self._running.keys():
                self._poll.unregister(pidfd)
                self._running.pop(pidfd).reap()
            if self._connection.fileno() in ready and not self._answer():
                # The program has ended, and the sandboxes end with this process.
                return

    def _answer(self) -> bool:
        data, given = receive(self._connection)
        if not data:
            return False
        order_file, *given = given
        order = marshal.loads(os.pread(order_file, os.fstat(order_file).st_size, 0))
        os.close(order_file)
        child = self._start(tuple(data.decode().split()), order, given)
        for descriptor in given:
            os.close(descriptor)
        self._connection.sendmsg([b"%d" % child.pid], [rights([child.pidfd])])
        self._running[child.pidfd] = child
        self._poll.register(child.pidfd, select.POLLIN)
        return True

    def _start(
        self, namespaces: tuple[str, ...], order: dict[str, object], given: list[int]
    ) -> Child:
        uid, gid = os.getuid(), os.getgid()
        pid, pidfd = clone(namespaces)
        if pid == 0 and "sockets" in order:
            make_sockets(order, given[-1])
        if pid == 0:
            run(order, namespaces, given, self.alive, uid, gid)
        if pid < 0:
            report_error(given[-1], "make a namespace", OSError(-pid, os.strerror(-pid)))
            # The other side expects a process: one that ends at once.
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 127"], {})
            pidfd, namespaces = os.pidfd_open(pid), ()
        return Child(pid, pidfd, has_mounts="mount" in namespaces)


class Child:
    def __init__(self, pid: int, pidfd: int, *, has_mounts: bool) -> None:
        self.pid = pid
        self.pidfd = pidfd
        # While this is open, the end of the child does not wait until its mounts are taken down.
        self._namespace = -1
        if has_mounts:
            try:
                self._namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                pass  # then its end takes a little longer

    def reap(self) -> None:
        """Let go of a child that has ended.

        Deleted files go from the disk together with the mounts. That can take longer than the next
        order may wait, so another process has the last hold on them.
        """
        os.close(self.pidfd)
        if self._namespace < 0:
            return
        ours, theirs = os.pipe()
        pid, pidfd = clone(())
        if pid == 0:
            keep_mounts_alive(ours, self._namespace)
        os.close(ours)
        if pid > 0:
            os.close(pidfd)
        os.close(self._namespace)
        os.close(theirs)
