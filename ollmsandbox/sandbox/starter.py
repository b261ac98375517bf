# SPDX-License-Identifier: GPL-3.0-or-later
"""A small process that starts sandboxes: it forks, mounts what only lies outside of bwrap's
reach, and becomes bwrap.

`unshare`, a shell and `mount` would do the same in twice the time, for each of them is a program
to load; and a fork of the program with the window costs more the more it has open. It runs by
itself (`python -I -S starter.py`), so it imports nothing of ours and as little as it can.

Spoken to over a socket, one packet each way. To it: descriptors, the first of which holds the
order (marshalled: no module has to be loaded for that), the last of which is told of errors. From
it: a process id and its pidfd.
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
    from typing import Any, NoReturn

_CLONE_PIDFD = 0x00001000
_NAMESPACES = {"mount": 0x00020000, "user": 0x10000000, "pid": 0x20000000}
# The same number on all architectures that we know of.
_SYS_CLONE3 = 435
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 0x20, 0x1000, 0x4000, 0x40000
# nosuid, nodev, noexec, noatime, nodiratime: the same numbers in mount() and statvfs().
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 16

# PyDLL keeps the interpreter's lock: a process may come back from a call here as two.
_libc = ctypes.PyDLL(None, use_errno=True)


def main() -> None:
    talk = socket.socket(fileno=int(sys.argv[1]))
    os.setsid()
    # What is cleaned up here is copied first: every child has the same memory until it is written.
    gc.disable()
    # Nobody waits for what is started: the other side holds its pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Only we hold the end that is never written to: as long as we live, it is not at its end.
    life, we = os.pipe()
    size = array.array("i").itemsize
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * size)
    while True:
        data, ancillary, _flags, _address = talk.recvmsg(16, room)
        if not data:
            # The program is gone, however it ended; what was started here goes with us.
            return
        descriptors = array.array("i")
        for _level, _kind, content in ancillary:
            descriptors.frombytes(content[: len(content) - len(content) % size])
        with os.fdopen(descriptors[0], "rb") as file:
            order = marshal.load(file)
        given = list(descriptors[1:])
        ids = os.getuid(), os.getgid()
        pid, pidfd = clone(order["namespaces"])
        if pid == 0:
            os.close(we)
            become(order, given, life, *ids)
        if pid < 0:
            tell(given[-1], "make a namespace", OSError(-pid, os.strerror(-pid)))
            # Something that is over already, for the one who waits for it.
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 127"], {})
            pidfd = os.pidfd_open(pid)
        rights = array.array("i", [pidfd])
        talk.sendmsg([b"%d" % pid], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        for descriptor in (*given, pidfd):
            os.close(descriptor)


def clone(namespaces: list[str]) -> tuple[int, int]:
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


def become(order: dict[str, Any], given: list[int], life: int, uid: int, gid: int) -> NoReturn:
    """In the child: the mounts, then bwrap."""
    step = "start"
    told = given[-1]
    try:
        die_with(life)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.chdir(order["folder"])
        if "user" in order["namespaces"]:
            step = "enter a user namespace"
            be_root(uid, gid)
        if "mount" in order["namespaces"]:
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
    except BaseException as error:  # noqa: BLE001 - told to the other side, whatever it is
        tell(told, step, error)
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


def mount_overlay(*, lower: list[bytes], target: bytes, options: str) -> None:
    # By descriptor: a path's commas and colons would be taken for the mount's own.
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in lower]
    layers = ":".join(f"/proc/self/fd/{number}" for number in opened)
    data = f"{options},lowerdir={layers}".encode()
    check(_libc.mount(b"overlay", target, b"overlay", _MS_RDONLY, data))
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
    # By their names, not up to the limit: one may be above a limit that was lowered later.
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
