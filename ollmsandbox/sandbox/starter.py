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
import marshal
import os
import resource
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 0x20, 0x1000, 0x4000, 0x40000
# nosuid, nodev, noexec, noatime, nodiratime: the same numbers in mount() and statvfs().
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 16

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    talk = socket.socket(fileno=int(sys.argv[1]))
    os.setsid()
    # Nobody waits for what is started: the other side holds its pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
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
        answer(talk, list(descriptors))


def answer(talk: socket.socket, descriptors: list[int]) -> None:
    with os.fdopen(descriptors[0], "rb") as file:
        order = marshal.load(file)
    given = descriptors[1:]
    pid = os.fork()
    if pid == 0:
        become(order, given)
    pidfd = os.pidfd_open(pid)
    rights = array.array("i", [pidfd])
    talk.sendmsg([b"%d" % pid], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    for descriptor in (*given, pidfd):
        os.close(descriptor)


def become(order: dict[str, Any], given: list[int]) -> NoReturn:
    """In the child: the mounts, then bwrap."""
    step = "start"
    told = given[-1]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        die_with(os.getppid())
        os.chdir(order["folder"])
        if order["namespaces"]:
            step = "make a namespace"
            new_namespaces(with_user="user" in order["namespaces"])
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
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        import json

        os.write(told, json.dumps({"error": f"Could not {step}: {reason}."}).encode() + b"\n")
    finally:
        os._exit(127)


def die_with(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def first_to_go() -> None:
    """Of all programs the sandbox is the one to end when memory is short."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"500")
    except OSError:
        return  # not to be had in some containers, and no reason not to run


def new_namespaces(*, with_user: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    check(_libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if with_user else 0)))
    if with_user:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "wb") as file:
                file.write(line.encode())
    check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))


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
