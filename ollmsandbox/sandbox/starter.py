# SPDX-License-Identifier: GPL-3.0-or-later
"""A small process that starts sandboxes: it forks, mounts what only lies outside of bwrap's
reach, and becomes bwrap.

`unshare`, a shell and `mount` would do the same in twice the time, for each of them is a program
to load; and a fork of the program with the window costs more the more it has open. It runs by
itself (`python -I -S starter.py`), so it imports nothing of ours and as little as it can.

Spoken to over a socket, one packet each way. To it: the names of the namespaces, and descriptors,
the first of which holds the order (marshalled: no module has to be loaded for that), the last of
which is told of errors. From it: a process id and its pidfd.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import marshal
import os
import resource
import select
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CLONE_PIDFD = 0x00001000
_NAMESPACES = {"mount": 0x00020000, "user": 0x10000000, "pid": 0x20000000}
# The same numbers on all architectures that we know of.
_SYS_CLONE3, _SYS_CLOSE_RANGE = 435, 436
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 0x20, 0x1000, 0x4000, 0x40000
# nosuid, nodev, noexec, noatime, nodiratime: the same numbers in mount() and statvfs().
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 16
_SHORT_WHILE = 4  # milliseconds

# PyDLL keeps the interpreter's lock: a process may come back from a call here as two.
_libc = ctypes.PyDLL(None, use_errno=True)


def main() -> None:
    talk = socket.socket(fileno=int(sys.argv[1]))
    os.setsid()
    # What is cleaned up here is copied first: every child has the same memory until it is written.
    gc.disable()
    # Nobody waits for what is started: the other side holds its pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    mounts = os.open("/proc/self/mountinfo", os.O_RDONLY)
    poll = select.poll()
    poll.register(talk, select.POLLIN)
    poll.register(mounts, select.POLLPRI)
    nursery = Nursery()
    wanted: tuple[str, ...] = ("mount", "pid") if os.getuid() == 0 else ("user", "mount", "pid")
    spare: Child | None = None
    while True:
        # A process that is in its namespaces already takes half as long to become bwrap; the next
        # one is made when the one before is on its way.
        ready = {
            descriptor for descriptor, _events in poll.poll(_SHORT_WHILE if not spare else None)
        }
        if not ready:
            spare = nursery.child(wanted)
        if mounts in ready and spare:
            # It knows the mounts of before, and would hold on to what is unmounted.
            spare.dismiss()
            spare = None
        if talk.fileno() not in ready:
            continue
        data, given = receive(talk)
        if not data:
            # The program is gone, however it ended; what was started here goes with us.
            return
        wanted = tuple(data.decode().split())
        if spare and (wanted != spare.namespaces or not spare.pid):
            spare.dismiss()
            spare = None
        child = spare or nursery.child(wanted)
        spare = None
        child.take(data, given)
        pidfd = array.array("i", [child.pidfd])
        talk.sendmsg([b"%d" % child.pid], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pidfd)])
        child.let_go()
        for descriptor in given:
            os.close(descriptor)


def receive(talk: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _flags, _address = talk.recvmsg(64, room)
    for _level, _kind, content in ancillary:
        descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


class Nursery:
    """Makes processes that wait, in namespaces of their own, for what they shall become."""

    def __init__(self) -> None:
        # Only we hold the end that is never written to: as long as we live, it is not at its end.
        self._life, self._we = os.pipe()

    def child(self, namespaces: tuple[str, ...]) -> Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ids = os.getuid(), os.getgid()
        pid, pidfd = clone(namespaces)
        if pid == 0:
            os.close(self._we)
            ours.close()
            become(namespaces, theirs, self._life, *ids)
        theirs.close()
        return Child(namespaces, ours, pid, pidfd)


class Child:
    def __init__(
        self, namespaces: tuple[str, ...], line: socket.socket, pid: int, pidfd: int
    ) -> None:
        self.namespaces = namespaces
        self._line = line
        self._error = -pid
        self.pid = max(pid, 0)
        self.pidfd = pidfd

    def take(self, data: bytes, given: list[int]) -> None:
        if self.pid:
            rights = array.array("i", given)
            self._line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            return
        tell(given[-1], "make a namespace", OSError(self._error, os.strerror(self._error)))
        # Something that is over already, for the one who waits for it.
        self.pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 127"], {})
        self.pidfd = os.pidfd_open(self.pid)

    def let_go(self) -> None:
        self._line.close()
        os.close(self.pidfd)

    def dismiss(self) -> None:
        """It ends when it finds the line closed."""
        self._line.close()
        if self.pid:
            os.close(self.pidfd)


def clone(namespaces: tuple[str, ...]) -> tuple[int, int]:
    """A fork, at once in new namespaces. What becomes bwrap is the first process of a PID namespace
    then: however early it is killed, everything that it has started by that time dies with it, and
    its pidfd tells when all are dead."""
    flags = sum(_NAMESPACES[name] for name in namespaces)
    pidfd = ctypes.c_int(-1)
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, and six that are 0
    words = (flags | _CLONE_PIDFD, ctypes.addressof(pidfd), 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    arguments = (ctypes.c_uint64 * len(words))(*words)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    pid = _libc.syscall(_SYS_CLONE3, ctypes.byref(arguments), size)
    return (pid, pidfd.value) if pid >= 0 else (-ctypes.get_errno(), -1)


def become(
    namespaces: tuple[str, ...], line: socket.socket, life: int, uid: int, gid: int
) -> NoReturn:
    """In the child: wait for the order; then the mounts, then bwrap."""
    step, told = "start", -1
    error: BaseException | None = None
    try:
        die_with(life)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            if "user" in namespaces:
                step = "enter a user namespace"
                be_root(uid, gid)
        except OSError as problem:
            error = problem
        data, given = receive(line)
        if not data:
            os._exit(0)
        paper, *given = given
        told = given[-1]
        if error:
            raise error
        order = marshal.loads(os.read(paper, os.fstat(paper).st_size))
        os.chdir(order["folder"])
        if "mount" in namespaces:
            step = "make mounts private"
            check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
            if order["protect"]:
                step = f"protect {os.fsdecode(order['protect'])}"
                bind_read_only(order["protect"])
            for mount in order["mounts"]:
                step = f"mount an overlay over {os.fsdecode(mount['lower'][-1])}"
                mount_overlay(**mount)
        if order["processes"] is not None:
            # Counted in the new user namespace alone, not with the person's other programs.
            resource.setrlimit(resource.RLIMIT_NPROC, (order["processes"], order["processes"]))
        first_to_go()
        step = f"start {os.fsdecode(order['argv'][0])}"
        told = take_places(given)
        os.execve(order["argv"][0], order["argv"], {})
    except BaseException as problem:  # noqa: BLE001 - told to the other side, whatever it is
        if told >= 0:
            tell(told, step, problem)
    finally:
        os._exit(127)


def tell(descriptor: int, step: str, error: BaseException) -> None:
    import json

    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    os.write(descriptor, json.dumps({"error": f"Could not {step}: {reason}."}).encode() + b"\n")


def die_with(life: int) -> None:
    """With the starter: from now on by a signal, and if it was dead before, at once."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if select.select([life], [], [], 0)[0]:
        os._exit(1)


def first_to_go() -> None:
    """Of all programs the sandbox is the one to end when memory is short."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"500")
    except OSError:
        return  # not to be had in some containers, and no reason not to run


def be_root(uid: int, gid: int) -> None:
    """The person, under the number that may mount."""
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, line.encode())
        os.close(descriptor)


def mount_overlay(
    *, lower: list[bytes], target: bytes, options: str, upper: bytes, work: bytes
) -> None:
    # By descriptor: a path's commas and colons would be taken for the mount's own.
    folders = [*lower, *([upper, work] if upper else [])]
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]
    names = [f"/proc/self/fd/{number}" for number in opened]
    data = f"{options},lowerdir={':'.join(names[: len(lower)])}"
    if upper:
        data += f",upperdir={names[-2]},workdir={names[-1]}"
    check(_libc.mount(b"overlay", target, b"overlay", 0 if upper else _MS_RDONLY, data.encode()))
    for number in opened:
        os.close(number)


def bind_read_only(path: bytes) -> None:
    """bwrap goes on inside as the first process, and /proc/1/exe leads to it: by the mount it was
    started from, which must not be a writable one."""
    check(_libc.mount(path, path, None, _MS_BIND, None))
    # Flags that a user namespace has locked have to be given again.
    kept = os.statvfs(path).f_flag & _LOCKED_FLAGS
    check(_libc.mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept, None))


def take_places(given: list[int]) -> int:
    """Descriptors 0, 1, 2, ... in the order given and no others; returns the last."""
    # First out of the way: a place may be held by one that is still to be moved.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 64) for number in given]
    for place, number in enumerate(moved):
        os.dup2(number, place)
    if _libc.syscall(_SYS_CLOSE_RANGE, len(moved), 0x7FFFFFFF, 0) != 0:
        # An older kernel. By their names, not up to the limit: one may be above a limit that was
        # lowered later.
        for name in os.listdir("/proc/self/fd"):
            if int(name) >= len(moved):
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the listing's own
    return len(moved) - 1


def check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
