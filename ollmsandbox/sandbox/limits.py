# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch the limits of a profile while a command runs.

`watch_limits` polls what the kernel does not limit everywhere, and says which limit is exceeded;
`Running` in process.py then has the command killed. If the user has set a memory limit and systemd
runs, a scope (a control group) holds it, and a witness in it reports whether the kernel killed a
process.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..files.trees import measure
from .process import Stop, read_status, tasks_below
from .profile.profile import Limits

# A control group disappears with its last process, and its counters with it. So this process stays
# in it, outside the sandbox, until we close its pipe; then it reports what the kernel counted and
# ends. systemd may stop the whole scope once a process was killed, but has to wait for this one.
_WITNESS = """\
( (
    exec <&{pipe} >&{status} 2>/dev/null {pipe}<&- {status}>&- {options}<&- {filter_}<&-
    trap "" HUP INT TERM
    read -r nothing
    while IFS=: read -r number controllers group; do
        [ "$number" = 0 ] && break
    done </proc/self/cgroup
    while read -r name count; do
        [ "$name" = oom_kill ] && echo "{{\\"{key}\\": $count}}"
    done <"/sys/fs/cgroup$group/memory.events"
) & )
exec "$@" {pipe}<&-
"""
# The key of that number, in the format of bwrap's own status.
KILLS = "oom-kills"


def scope_command(systemd_run: str, memory: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that starts another one in a scope of systemd with a memory limit.

    systemd-run needs the session bus, but what it starts must not have its address.
    """
    names = [n for n in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR") if n in environ]
    return (
        *("/usr/bin/env", *(f"{name}={environ[name]}" for name in names)),
        *(systemd_run, "--user", "--scope", "--quiet", "--collect"),
        *("-p", f"MemoryMax={memory}", "-p", "MemorySwapMax=0"),
        *("-p", "CPUWeight=25", "--"),
        *("/usr/bin/env", "-i"),
    )


def witness_command(*, options: int, filter_: int, pipe: int, status: int) -> tuple[str, ...]:
    """Return the command that starts the witness and then becomes bwrap. The numbers are
    descriptors, of one digit each: a shell knows no others."""
    script = _WITNESS.format(options=options, filter_=filter_, pipe=pipe, status=status, key=KILLS)
    return ("/bin/sh", "-c", script, "sh")


class WitnessPipe:
    """A pipe whose end makes the witness report. It also ends when this process is killed."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def release(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


_INTERVAL = 0.25
_SMALL_WRITE = 16 << 20
# The starter's child, and two of bwrap.
_OWN_PROCESSES = 3
# What a file counts at least: an empty one takes an inode, and records in the database.
_BYTES_PER_FILE = 4096
# The part of a disk's inodes that must stay free.
_FREE_INODES = 1 / 50
# Measuring a folder again waits this many times as long as the last time took.
_PAUSE_FACTOR = 20
# Nanoseconds that a file system's clock may be behind.
_SLACK = 1_000_000_000


class DiskWatch:
    """Measures what a command adds to folders on disk.

    Folders that only this command writes to are measured regularly. Others, which may be large, are
    measured when the disk fills; what other programs delete meanwhile delays that. With `unlock`,
    a command can hide nothing by taking away permissions.
    """

    def __init__(
        self,
        limits: Limits,
        own: Sequence[str] = (),
        shared: Sequence[str] = (),
        *,
        unlock: bool = True,
    ) -> None:
        self._limits = limits
        self._unlock = unlock
        self._before = {folder: _usage(folder)[0] for folder in (*own, *shared)}
        self._inodes_before = {folder: _usage(folder)[1] for folder in self._before}
        # When each is measured again.
        self._due = dict.fromkeys(own, 0.0)
        self._began = time.time_ns() - _SLACK

    def exceeded(self, processes: Sequence[int] = ()) -> Stop | None:
        """Return the limit that is exceeded now. Files that these processes have open count even
        if they were deleted."""
        limits, before = self._limits, self._before
        for folder in before:
            used, inodes, free, has_few_inodes = _usage(folder)
            # What other programs delete meanwhile must not raise the command's limit.
            before[folder] = min(before[folder], used)
            added = used - before[folder]
            # New files count this many bytes at least.
            in_inodes = (inodes - self._inodes_before[folder]) * _BYTES_PER_FILE
            began = time.monotonic()
            is_due = began >= self._due.get(folder, math.inf)
            if limits.disk is not None and (max(added, in_inodes) > limits.disk or is_due):
                size = self._size(folder, processes)
                if size > limits.disk:
                    return Stop.DISK
                # Other programs use the disk, too.
                before[folder] += max(0, added - size)
                if is_due:
                    ended = time.monotonic()
                    self._due[folder] = ended + _PAUSE_FACTOR * (ended - began)
            # On a disk that was full before, a command that writes little may go on.
            if limits.free is not None and added > _SMALL_WRITE and free < limits.free:
                return Stop.FULL
            if limits.free is not None and in_inodes > _SMALL_WRITE and has_few_inodes:
                return Stop.FULL
        return None

    def _size(self, folder: str, processes: Sequence[int]) -> int:
        _, size = measure(
            Path(folder), since=self._began, unlock=self._unlock, least=_BYTES_PER_FILE
        )
        return size + _deleted_size(processes, self._began)


def watch_limits(
    limits: Limits,
    first_process: int,
    disk: DiskWatch,
    over: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> Stop | None:
    """Return the limit that a process and its descendants exceed, or None once `over` is set.
    `clock` counts the seconds for the time limit."""
    end = clock() + limits.time if limits.time is not None else None
    while True:
        pause = _INTERVAL if end is None else min(_INTERVAL, max(0.0, end - clock()))
        if over.wait(pause):
            return None
        if end is not None and clock() >= end:
            return Stop.TIME
        found = disk.exceeded(tasks_below(first_process, 1 << 20)[0])
        found = found or _processes(limits, first_process)
        if found is not None:
            return found


def _processes(limits: Limits, first: int) -> Stop | None:
    # RLIMIT_NPROC does not apply to root, and memory has no limit without a control group.
    most = limits.processes if limits.processes is not None else 1 << 20
    found, threads = tasks_below(first, most + _OWN_PROCESSES)
    if threads > most + _OWN_PROCESSES:
        return Stop.PROCESSES
    if limits.tmp is not None and _files_in_memory(found) > limits.tmp // _BYTES_PER_FILE:
        return Stop.DISK
    memory = limits.memory
    if memory is None:
        return None
    unlinked = _memfd_size(found[:256])
    # The first sum counts shared memory once for each process; the second is exact, and slow.
    ways = (("status", "RssAnon", "RssShmem"), ("smaps_rollup", "Pss_Anon", "Pss_Shmem"))
    is_exceeded = all(
        sum((_memory(pid, file, *names) for pid in found), unlinked) > memory
        for file, *names in ways
    )
    return Stop.MEMORY if is_exceeded else None


def _files_in_memory(found: Sequence[int]) -> int:
    """Return how many files the folders in memory hold: bwrap limits their size alone, and an
    empty file takes a kilobyte of the kernel's memory."""
    count = 0
    for folder in _folders_in_memory(found):
        with contextlib.suppress(OSError):
            size = os.statvfs(folder)
            count = max(count, size.f_files - size.f_ffree)
    return count


def _folders_in_memory(found: Sequence[int]) -> dict[str, int]:
    """Return the sandbox's own folders in memory and their devices."""
    folders = {}
    # The last of our own is the first process inside.
    for pid in found[_OWN_PROCESSES - 1 : _OWN_PROCESSES]:
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            inside = f"/proc/{pid}/root{folder}"
            with contextlib.suppress(OSError):
                # While bwrap starts, or without a sandbox, it is the machine's own.
                if (device := os.stat(inside).st_dev) != os.stat(folder).st_dev:
                    folders[inside] = device
    return folders


def _deleted_size(found: Sequence[int], since: int) -> int:
    """Return the size of deleted files that are open and were changed since a time (in ns), except
    those in memory, which has a limit of its own."""
    in_memory = _folders_in_memory(found).values()
    return sum(
        file.st_blocks * 512
        for file in _unlinked_files(found, are_memfds=False)
        if file.st_ctime_ns >= since and file.st_dev not in in_memory
    )


def _memfd_size(found: Sequence[int]) -> int:
    """Return the size of open files that only ever were in memory, without a name."""
    return sum(file.st_blocks * 512 for file in _unlinked_files(found, are_memfds=True))


def _unlinked_files(found: Sequence[int], *, are_memfds: bool) -> list[os.stat_result]:
    """Return the open files without a name: those of memfd_create, or deleted ones."""
    files: dict[tuple[int, int], os.stat_result] = {}
    for pid in found:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:") is not are_memfds:
                        continue
                    file = entry.stat()
                    if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                        files[file.st_dev, file.st_ino] = file
    return list(files.values())


def _memory(pid: int, file: str, *names: str) -> int:
    """Return the sum in bytes of sizes that the kernel gives in KiB."""
    return sum(
        size << 10 for sizes in read_status(pid, *names, file=file).values() for size in sizes
    )


def _usage(folder: str) -> tuple[int, int, int, bool]:
    """Return how many bytes and inodes of the folder's disk are in use, how many bytes are free,
    and whether nearly all inodes are in use. Some file systems have no number of them."""
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        has_few_inodes = found.f_favail < found.f_files * _FREE_INODES
        free = found.f_bavail * found.f_frsize
        return used, found.f_files - found.f_ffree, free, has_few_inodes
    return 0, 0, 1 << 62, False
