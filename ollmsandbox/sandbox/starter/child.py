# SPDX-License-Identifier: GPL-3.0-or-later
"""What a child of the starter does: it makes the mounts that are always the same, waits for an
order, makes the others, and becomes bwrap. See starter.py."""

from __future__ import annotations

import array
import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_CLONE_PIDFD = 0x00001000
_NAMESPACES = {"mount": 0x00020000, "user": 0x10000000, "pid": 0x20000000}
# The same numbers on all architectures but Alpha and MIPS.
_SYS_CLONE3, _SYS_CLOSE_RANGE = 435, 436
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 0x20, 0x1000, 0x4000, 0x40000
# nosuid, nodev, noexec, noatime, nodiratime: the same numbers in mount() and statvfs().
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_PLAIN = 2 | 4 | 8  # nosuid, nodev, noexec
_PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 16

# PyDLL keeps the interpreter's lock: a process may come back from a call here as two.
_libc = ctypes.PyDLL(None, use_errno=True)


class Habit:
    """What runs have in common: it is made before the next one is asked for."""

    def __init__(self, namespaces: tuple[str, ...], order: dict[str, Any] | None) -> None:
        self.namespaces = namespaces
        # None: nothing is known of the next one.
        self.protect: bytes | None = order["protect"] if order else None
        self.protected = order["protected"] if order else None
        mounts = order["mounts"] if order else []
        # What comes after the first folder that is written is the run's own.
        count = next((n for n, mount in enumerate(mounts) if mount["upper"]), len(mounts))
        self.layers = mounts[:count]

    def serves(self, other: Habit) -> bool:
        """Whether who has this habit can do the other's work. By the files' numbers too: a name
        may be another one's by now."""
        if self.namespaces != other.namespaces or self.protect is None:
            return self.namespaces == other.namespaces
        mine = self.protect, self.protected, self.layers
        return mine == (other.protect, other.protected, other.layers)


def receive(talk: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _flags, _address = talk.recvmsg(64, room)
    for _level, _kind, content in ancillary:
        descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


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


def become(habit: Habit, line: socket.socket, life: int, uid: int, gid: int) -> NoReturn:
    """In the child: what is always the same, wait for the order; then the mounts, then bwrap."""
    step, told = "start", -1
    error: BaseException | None = None
    try:
        die_with(life)
        first_to_go()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            if "user" in habit.namespaces:
                step = "enter a user namespace"
                be_root(uid, gid)
        except OSError as problem:
            error = problem
        if habit.protect is not None:
            # Whatever is wrong with it is told by who does it anew, with an order in hand.
            if error:
                os._exit(1)
            if "mount" in habit.namespaces:
                prepare(habit.protect, habit.namespaces)
                for mount in habit.layers:
                    mount_overlay(mount)
            line.send(b"y")
        data, given = receive(line)
        if not data:
            os._exit(0)
        paper, *given = given
        told = given[-1]
        if error:
            raise error
        order = marshal.loads(os.pread(paper, os.fstat(paper).st_size, 0))
        os.chdir(order["folder"])
        if "mount" in habit.namespaces:
            done = len(habit.layers)
            if habit.protect is None:
                step = f"protect {os.fsdecode(order['protect'])}"
                prepare(order["protect"], habit.namespaces)
            for mount in order["mounts"][done:]:
                step = f"mount an overlay over {os.fsdecode(mount['lower'][-1])}"
                mount_overlay(mount)
        if order["processes"] is not None:
            # Counted in the new user namespace alone, not with the person's other programs.
            resource.setrlimit(resource.RLIMIT_NPROC, (order["processes"], order["processes"]))
        step = f"start {os.fsdecode(order['argv'][0])}"
        told = take_places(given)
        os.execve(order["argv"][0], order["argv"], {})
    except BaseException as problem:  # noqa: BLE001 - told to the other side, whatever it is
        if told >= 0:
            tell(told, step, problem)
    finally:
        os._exit(127)


def outlast(line: int, held: int) -> NoReturn:
    """In another child: hold on to something until the starter does not, and end."""
    first, last = sorted((line, held))
    os.closerange(0, first)
    os.closerange(first + 1, last)
    os.closerange(last + 1, 1 << 16)
    os.read(line, 1)
    os._exit(0)


def prepare(protect: bytes, namespaces: tuple[str, ...]) -> None:
    """What needs to be known of no run."""
    check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    if "pid" in namespaces:
        # bwrap looks its child up by the number that it has here, and ends if nobody has it. Where
        # this is not allowed, the machine's own stays, where that number is most often another's.
        _libc.mount(b"proc", b"/proc", b"proc", _PLAIN, None)
    if protect:
        bind_read_only(protect)


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


def mount_overlay(mount: dict[str, Any]) -> None:
    lower, upper, work = mount["lower"], mount["upper"], mount["work"]
    # By descriptor: a path's commas and colons would be taken for the mount's own.
    folders = [*lower, *([upper, work] if upper else [])]
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]
    names = [f"/proc/self/fd/{number}" for number in opened]
    data = f"{mount['options']},lowerdir={':'.join(names[: len(lower)])}"
    if upper:
        data += f",upperdir={names[-2]},workdir={names[-1]}"
    flags = 0 if upper else _MS_RDONLY
    check(_libc.mount(b"overlay", mount["target"], b"overlay", flags, data.encode()))
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
