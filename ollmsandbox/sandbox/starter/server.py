# SPDX-License-Identifier: GPL-3.0-or-later
"""A small process that starts sandboxes: it forks, mounts what only lies outside of bwrap's
reach, and becomes bwrap.

`unshare`, a shell and `mount` would do the same in twice the time, for each of them is a program
to load; and a fork of the program with the window costs more the more it has open. It runs by
itself, so of ours it imports only what its children do (becoming.py), and else as little as it can.

Spoken to over a socket, one packet each way. To it: the names of the namespaces, and descriptors,
the first of which holds the order (marshalled: no module has to be loaded for that), the last of
which is told of errors. From it: a process id and its pidfd.
"""

from __future__ import annotations

import array
import gc
import marshal
import os
import select
import signal
import socket

from .child import Habit, become, clone, outlast, receive, tell

_SHORT_WHILE, _LONG_WHILE = 4, 1000  # milliseconds


def main(line: int) -> None:
    talk = socket.socket(fileno=line)
    os.setsid()
    # What is cleaned up here is copied first: every child has the same memory until it is written.
    gc.disable()
    # Nobody waits for what is started: the other side holds its pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    wanted = ("mount", "pid") if os.getuid() == 0 else ("user", "mount", "pid")
    Desk(talk, Habit(wanted, None)).work()
    # Nothing is left to be tidied up.
    os._exit(0)


class Desk:
    """Takes orders, one after the other, and has a child ready for the next one."""

    def __init__(self, talk: socket.socket, habit: Habit) -> None:
        self._talk = talk
        self._habit = habit
        self._spare: Child | None = None
        self._mounts = os.open("/proc/self/mountinfo", os.O_RDONLY)
        self._poll = select.poll()
        self._poll.register(talk, select.POLLIN)
        self._poll.register(self._mounts, select.POLLPRI)
        self._running: dict[int, Child] = {}
        # Only we hold the end that is never written to: as long as we live, it is not at its end.
        self._life, self._we = os.pipe()

    def work(self) -> None:
        while True:
            ready = {descriptor for descriptor, _events in self._poll.poll(self._patience())}
            for pidfd in ready & self._running.keys():
                self._poll.unregister(pidfd)
                self._running.pop(pidfd).bury()
            if self._mounts in ready:
                # It knows the mounts of before, and would hold on to what is unmounted.
                self._dismiss_spare()
            if not ready:
                self._spare = self._child(self._habit)
            if self._talk.fileno() in ready and not self._answer():
                # The program is gone, however it ended; what was started here goes with us.
                return

    def _patience(self) -> int | None:
        """The next one is made when the one before is over: both at once would take their time from
        each other. A command that runs for long is not waited for."""
        if self._spare:
            return None
        return _LONG_WHILE if self._running else _SHORT_WHILE

    def _dismiss_spare(self) -> None:
        if self._spare:
            self._spare.dismiss()
            self._spare = None

    def _answer(self) -> bool:
        data, given = receive(self._talk)
        if not data:
            return False
        self._start(data, given)
        for descriptor in given:
            os.close(descriptor)
        return True

    def _start(self, data: bytes, given: list[int]) -> None:
        order = marshal.loads(os.pread(given[0], os.fstat(given[0]).st_size, 0))
        habit = Habit(tuple(data.decode().split()), order)
        if self._spare and not (self._spare.habit.serves(habit) and self._spare.is_ready()):
            self._dismiss_spare()
        child = self._spare or self._child(Habit(habit.namespaces, None))
        self._spare = None
        child.take(data, given)
        pidfd = array.array("i", [child.pidfd])
        self._talk.sendmsg([b"%d" % child.pid], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pidfd)])
        self._running[child.pidfd] = child
        self._poll.register(child.pidfd, select.POLLIN)
        self._habit = habit

    def _child(self, habit: Habit) -> Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ids = os.getuid(), os.getgid()
        pid, pidfd = clone(habit.namespaces)
        if pid == 0:
            os.close(self._we)
            ours.close()
            for other in self._running.values():
                # Else it would be the last to hold on to their mounts, until its turn comes.
                other.end()
            become(habit, theirs, self._life, *ids)
        theirs.close()
        return Child(habit, ours, pid, pidfd)


class Child:
    def __init__(self, habit: Habit, line: socket.socket, pid: int, pidfd: int) -> None:
        self.habit = habit
        self._line = line
        self._error = -pid
        self.pid = max(pid, 0)
        self.pidfd = pidfd
        # As long as we hold on to its mounts, they are not taken down while somebody waits for its
        # end, but by us, a moment later.
        self._home = -1
        if pid > 0 and "mount" in habit.namespaces:
            try:
                self._home = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
            except OSError:
                pass  # it takes a little longer then

    def is_ready(self) -> bool:
        """Whether it could make what it is used to make."""
        if not self.pid:
            return False
        if self.habit.protect is None:
            return True
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        return bool(poll.poll(_SHORT_WHILE) and self._line.recv(1))

    def take(self, data: bytes, given: list[int]) -> None:
        if self.pid:
            rights = array.array("i", given)
            self._line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self._line.close()
            return
        tell(given[-1], "make a namespace", OSError(self._error, os.strerror(self._error)))
        # Something that is over already, for the one who waits for it.
        self.pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 127"], {})
        self.pidfd = os.pidfd_open(self.pid)

    def dismiss(self) -> None:
        """It ends when it finds the line closed."""
        self._line.close()
        if self.pid:
            self.end()

    def bury(self) -> None:
        """What was deleted goes from the disk when the mounts go, and that may take longer than the
        next order can wait: somebody else has the last hold on them."""
        if self._home >= 0:
            ours, theirs = os.pipe()
            pid, pidfd = clone(())
            if pid == 0:
                outlast(ours, self._home)
            os.close(ours)
            if pid > 0:
                os.close(pidfd)
            self.end()
            os.close(theirs)
        else:
            self.end()

    def end(self) -> None:
        os.close(self.pidfd)
        if self._home >= 0:
            os.close(self._home)
