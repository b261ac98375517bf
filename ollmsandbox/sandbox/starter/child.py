# SPDX-License-Identifier: GPL-3.0-or-later
"""The starter's forked child: it makes the mounts of an order and starts bwrap. See server.py."""

from __future__ import annotations

import _socket as socket
import ctypes
import fcntl
import os
import resource
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    # The module around this one, and that around _socket, load enum, selectors and more: that takes
    # longer than all other imports here.
    import _signal as signal

_CLONE_PIDFD = 0x00001000
_NAMESPACES = {"mount": 0x00020000, "user": 0x10000000, "pid": 0x20000000}
# The same numbers on all architectures but Alpha and MIPS.
_SYS_CLONE3, _SYS_CLOSE_RANGE = 435, 436
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 0x20, 0x1000, 0x4000, 0x40000
# nosuid, nodev, noexec, noatime, nodiratime: the same numbers in mount() and statvfs().
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_PR_SET_PDEATHSIG = 1
MOST_DESCRIPTORS = 16
_INT = struct.calcsize("i")
# Seconds. A process that ends together with the command may need a moment.
_PATIENCE = 0.1
# The user's own programs come first.
_NICE = 10
# What multiplies faster than it is counted must not keep a run from ending.
_MOST_COUNTED = 5000

# PyDLL keeps the interpreter's lock, which a call that forks needs.
_libc = ctypes.PyDLL(None, use_errno=True)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * _INT)
    data, ancillary, _flags, _address = connection.recvmsg(64, room)
    found = (struct.unpack_from(f"{len(part) // _INT}i", part) for _level, _kind, part in ancillary)
    return data, [number for numbers in found for number in numbers]


def rights(descriptors: list[int]) -> tuple[int, int, bytes]:
    """Return the control message that passes these descriptors on through a socket."""
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, packed


def clone(namespaces: tuple[str, ...]) -> tuple[int, int]:
    """Fork into new namespaces; return the process id and its pidfd, or a negative error number.

    The child is the first process of a PID namespace. However early it is killed, all that it has
    started dies with it, and its pidfd becomes readable when all are dead.
    """
    flags = sum(_NAMESPACES[name] for name in namespaces)
    pidfd = ctypes.c_int(-1)
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, and six zeros
    words = (flags | _CLONE_PIDFD, ctypes.addressof(pidfd), 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    arguments = (ctypes.c_uint64 * len(words))(*words)
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    pid = _libc.syscall(_SYS_CLONE3, ctypes.byref(arguments), size)
    return (pid, pidfd.value) if pid >= 0 else (-ctypes.get_errno(), -1)


def run(
    order: dict[str, Any],
    namespaces: tuple[str, ...],
    given: list[int],
    alive: int,
    uid: int,
    gid: int,
) -> NoReturn:
    """Make the mounts and start bwrap, in the child. Report an error to the last descriptor.

    In a PID namespace of its own, the child stays as its first process until bwrap has ended. If
    not, it becomes bwrap.
    """
    step, errors = "start", given[-1]
    try:
        die_with_parent(alive)
        prefer_oom_kill()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        if "user" in namespaces:
            step = "enter a user namespace"
            map_user_to_root(uid, gid)
            leave_inotify()
        leave_queues()
        lower_rights()
        os.chdir(order["folder"])
        if "mount" in namespaces:
            step = f"protect {os.fsdecode(order['protect'])}"
            prepare_mounts(order["protect"], namespaces)
            for mount in order["mounts"]:
                if "names" in mount:
                    step = f"bind folders into {os.fsdecode(mount['target'])}"
                    bind_inside(mount)
                    continue
                step = f"mount an overlay over {os.fsdecode(mount['lower'][-1])}"
                mount_overlay(mount)
        if order["processes"] is not None:
            # Counted in the new user namespace alone, not with the user's other programs.
            resource.setrlimit(resource.RLIMIT_NPROC, (order["processes"], order["processes"]))
        if order["file_size"] is not None:
            limit_file_size(order["file_size"])
        os.nice(_NICE)
        step = f"start {os.fsdecode(order['argv'][0])}"
        errors = keep_only(given)
        if "pid" in namespaces:
            # Not a fork, which would copy the tables of this process's memory.
            bwrap = os.posix_spawn(order["argv"][0], order["argv"], {})
            os.closerange(0, errors)
            report_left_running(bwrap, errors)
            os._exit(0)
        os.execve(order["argv"][0], order["argv"], {})
    except BaseException as problem:  # noqa: BLE001 - any error is reported to the other side
        report_error(errors, step, problem)
    finally:
        os._exit(127)


def report_left_running(bwrap: int, status: int) -> None:
    """Wait for bwrap, and report how many processes the command left. They die with this one."""
    while os.wait()[0] != bwrap:
        continue
    signal.signal(signal.SIGALRM, give_up_waiting)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return
    except TimeoutError:
        # For BwrapStatus, among bwrap's own reports.
        if left := count_left_running():
            os.write(status, b'{"left-running": %d}\n' % left)


def give_up_waiting(_number: int, _frame: object) -> NoReturn:
    raise TimeoutError


def count_left_running() -> int:
    # Where /proc is the machine's, this process has another number in it.
    below, count = [int(os.readlink("/proc/self"))], -1
    for pid in below:
        if len(below) > _MOST_COUNTED:
            break
        try:
            # The second field is a name, which may contain spaces and brackets.
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
            count += state not in b"ZX"
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    below += map(int, file.read().split())
        except OSError:
            continue  # it has just ended
    # Without the first process inside, which waits for all the others.
    return max(0, count - 1)


def keep_mounts_alive(pipe: int, namespace: int) -> NoReturn:
    """Hold a mount namespace, in another child, until the starter has let go of it."""
    first, last = sorted((pipe, namespace))
    os.closerange(0, first)
    os.closerange(first + 1, last)
    os.closerange(last + 1, 1 << 16)
    os.read(pipe, 1)
    os._exit(0)


def prepare_mounts(protect: bytes, namespaces: tuple[str, ...]) -> None:
    check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    if "pid" in namespaces:
        # bwrap looks its child up by the number that it has here, and ends if no process has it.
        # Where this is not allowed, the machine's /proc stays, where another process mostly has it.
        _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    if protect:
        bind_read_only(protect)


def report_error(descriptor: int, step: str, error: BaseException) -> None:
    import json

    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    os.write(descriptor, json.dumps({"error": f"Could not {step}: {reason}."}).encode() + b"\n")


def leave_ends_to_kernel() -> None:
    """Have the kernel reap the children of this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def die_with_parent(alive: int) -> None:
    """Have the kernel kill this process when the starter dies, and end if it is dead already.

    The starter locks `alive`. The end of a pipe would not do: a child that was forked just before
    still holds it, and the number of the parent is 0 in a PID namespace.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        os.lockf(alive, os.F_TEST, 0)
    except OSError:
        return  # locked, so the starter lives
    os._exit(1)


def prefer_oom_kill() -> None:
    """Make the kernel kill the sandbox before other programs when memory is short."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"500")
    except OSError:
        return  # some containers forbid it, which is no reason not to run


def limit_file_size(wanted: int) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def leave_inotify() -> None:
    """Leave half of the user's inotify instances and watches to other programs: the kernel counts
    them for each user, but a user namespace may have a lower limit."""
    try:
        for name in ("instances", "watches"):
            with open(f"/proc/sys/fs/inotify/max_user_{name}", "rb") as file:
                most = int(file.read())
            with open(f"/proc/sys/user/max_inotify_{name}", "wb") as file:
                file.write(b"%d" % max(1, most // 2))
    except OSError:
        return  # some containers forbid it, which is no reason not to run


def leave_queues() -> None:
    """Leave half of the signals and messages that the kernel keeps for a user to others."""
    for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE):
        soft, _hard = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(kind, (soft // 2, soft // 2))


def lower_rights() -> None:
    """Take what the user may have: real-time priority, which would stop other programs, a better
    nice value, and memory dumps. With 1, unlike 0, the kernel starts no program outside for one."""
    for kind, most in (
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_CORE, 1),
    ):
        _soft, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def map_user_to_root(uid: int, gid: int) -> None:
    """Make the user root in the new user namespace, where only root may mount."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, line.encode())
        os.close(descriptor)


def mount_overlay(mount: dict[str, Any]) -> None:
    lower, upper, work = mount["lower"], mount["upper"], mount["work"]
    # By descriptor: commas and colons in a path would be taken for the options' own.
    folders = [*lower, *([upper, work] if upper else [])]
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]
    names = [b"/proc/self/fd/%d" % number for number in opened]
    data = b"%b,lowerdir=%b" % (mount["options"], b":".join(names[: len(lower)]))
    if upper:
        data += b",upperdir=%b,workdir=%b" % (names[-2], names[-1])
    # bwrap sets nosuid and nodev where they are missing, with a call for each mount.
    flags = _MS_NOSUID | _MS_NODEV | (0 if upper else _MS_RDONLY)
    check(_libc.mount(b"overlay", mount["target"], b"overlay", flags, data))
    for number in opened:
        os.close(number)


def bind_inside(mount: dict[str, Any]) -> None:
    """Bind folders of an overlay over the same ones of another, if they are folders in both.

    A command may have put a link there, and that would lead out.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    roots = [os.open(mount[where], flags) for where in ("source", "target")]
    for name in mount["names"]:
        opened = [open_inside(root, name, flags) for root in roots]
        if -1 not in opened:
            source, target = (b"/proc/self/fd/%d" % number for number in opened)
            check(_libc.mount(source, target, None, _MS_BIND, None))
        for number in opened:
            if number >= 0:
                os.close(number)
    for root in roots:
        os.close(root)


def open_inside(folder: int, path: bytes, flags: int) -> int:
    """Open a folder by its path in another one, or return -1 if there is a link on the way."""
    number = os.dup(folder)
    for name in path.split(b"/"):
        around = number
        try:
            number = os.open(name, flags, dir_fd=around)
        except OSError:
            number = -1
        os.close(around)
        if number < 0:
            break
    return number


def bind_read_only(path: bytes) -> None:
    """Make bwrap's file read-only: bwrap is the first process inside, and /proc/1/exe leads to it
    through the mount it was started from."""
    check(_libc.mount(path, path, None, _MS_BIND, None))
    # Flags that a user namespace has locked have to be given again.
    kept = os.statvfs(path).f_flag & _LOCKED_FLAGS
    check(_libc.mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept, None))


def keep_only(given: list[int]) -> int:
    """Move these descriptors to 0, 1, 2, ..., close all others, and return the last."""
    # First out of the way: a number may belong to one that is still to be moved. No further than
    # needed, since the user may have set a low limit.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(given)) for number in given]
    for new, number in enumerate(moved):
        os.dup2(number, new)
    if _libc.syscall(_SYS_CLOSE_RANGE, len(moved), 0x7FFFFFFF, 0) != 0:
        # An older kernel. Not up to the limit: one may be above it if it was lowered later.
        for name in os.listdir("/proc/self/fd"):
            if int(name) >= len(moved):
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the one that listdir used
    return len(moved) - 1


def check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
