# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits that no kernel interface holds for us everywhere: looked at while a command runs.

systemd's scope around a command: the control group that holds the memory limit, and how it is
found out that the kernel ended something in it.

The limits that no kernel interface holds for us everywhere: looked at while a command runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..files.trees import measure
from .process import Stop, tasks_below
from .profile.profile import Limits

# A group is gone with its last process, and with it what it could tell. So a process stays in it,
# outside of the sandbox, until we let go of it; it tells what the kernel counted and ends. systemd
# may want to stop all of the scope as soon as one process was killed: this one it has to wait for.
_WITNESS = """\
( (
    exec <&{life} >&{status} 2>/dev/null {life}<&- {status}>&- {options}<&- {filter_}<&-
    trap "" HUP INT TERM
    read -r nothing
    while IFS=: read -r number controllers group; do
        [ "$number" = 0 ] && break
    done </proc/self/cgroup
    while read -r name count; do
        [ "$name" = oom_kill ] && echo "{{\\"{key}\\": $count}}"
    done <"/sys/fs/cgroup$group/memory.events"
) & )
exec "$@" {life}<&-
"""
# What it calls the number, in the language of bwrap's own status.
KILLS = "oom-kills"


def scope_for(systemd_run: str, memory: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """systemd needs the session bus; what it starts must not know of it."""
    names = [n for n in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR") if n in environ]
    return (
        *("/usr/bin/env", *(f"{name}={environ[name]}" for name in names)),
        *(systemd_run, "--user", "--scope", "--quiet", "--collect"),
        *("-p", f"MemoryMax={memory}", "-p", "MemorySwapMax=0", "--"),
        *("/usr/bin/env", "-i"),
    )


def witness(*, options: int, filter_: int, life: int, status: int) -> tuple[str, ...]:
    """What goes before bwrap. The numbers are descriptors, of one digit each: a shell's."""
    script = _WITNESS.format(options=options, filter_=filter_, life=life, status=status, key=KILLS)
    return ("/bin/sh", "-c", script, "sh")


class Hold:
    """What a witness waits for the end of. It ends with us too, however we end."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def release(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


_INTERVAL = 0.25
_BRIEFLY = 0.05
_LITTLE = 16 << 20
# bwrap's own processes.
_OWN = 2
_MOST_LOOKED_AT = 256
# In ns: by so much a file system's clock may be behind.
_SLACK = 1_000_000_000


async def watch(
    limits: Limits,
    first_process: int,
    folders: Sequence[str],
    written: asyncio.Event | None = None,
) -> Stop:
    """Return when a limit is passed by the process or what is below it. Who knows that something
    was `written` has it looked at sooner; it is looked at in any case."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.time if limits.time is not None else None
    before = {folder: _used(folder) for folder in folders}
    began = time.time_ns() - _SLACK
    while True:
        pause = _INTERVAL if end is None else min(_INTERVAL, max(0.0, end - loop.time()))
        if written is None:
            await asyncio.sleep(pause)
        else:
            await asyncio.sleep(min(pause, _BRIEFLY))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause - _BRIEFLY)):
                    await written.wait()
            written.clear()
        if end is not None and loop.time() >= end:
            return Stop.TIME
        found = await _disk(limits, before, began, first_process)
        found = found or _processes(limits, first_process)
        if found is not None:
            return found


async def _disk(limits: Limits, before: dict[str, int], began: int, first: int) -> Stop | None:
    for folder in before:
        used = _used(folder)
        # What others delete meanwhile must not make room for the command.
        before[folder] = min(before[folder], used)
        added = used - before[folder]
        if limits.disk is not None and added > limits.disk:
            # The disk is everybody's: what counts was written to the folder since, or was deleted
            # there and is still held open. The rest is looked at once.
            _, size = await asyncio.to_thread(measure, Path(folder), since=began)
            held = _without_name(tasks_below(first, 1 << 20)[0], in_memory=False)
            size += max(0, min(held, added - size))
            if size > limits.disk:
                return Stop.DISK
            before[folder] += added - size
        # A disk that was full before is no reason to end a command that writes little.
        if limits.free is not None and added > _LITTLE and _free(folder) < limits.free:
            return Stop.FULL
    return None


def _processes(limits: Limits, first: int) -> Stop | None:
    # RLIMIT_NPROC is not held against root, and memory has no limit without a control group.
    most = limits.processes if limits.processes is not None else 1 << 20
    found, threads = tasks_below(first, most + _OWN)
    if threads > most + _OWN:
        return Stop.PROCESSES
    memory = limits.memory
    if memory is None:
        return None
    without_name = _without_name(found[:_MOST_LOOKED_AT], in_memory=True)
    # The first sum counts memory that several share once for each; the second is exact, and slow.
    if sum(map(_at_most, found), without_name) > memory:
        return Stop.MEMORY if sum(map(_share, found), without_name) > memory else None
    return None


def _without_name(found: Sequence[int], *, in_memory: bool) -> int:
    """Files in nobody's folder: held by a descriptor, they need not be mapped to take up room.
    Some are in memory only (memfd), the others were deleted."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in found:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:") is not in_memory:
                        continue
                    file = entry.stat()
                    if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                        sizes[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(sizes.values())


def _at_most(pid: int) -> int:
    return sum(_lines(f"/proc/{pid}/status", ("RssAnon", "RssShmem")))


def _share(pid: int) -> int:
    return sum(_lines(f"/proc/{pid}/smaps_rollup", ("Pss_Anon", "Pss_Shmem")))


def _lines(file: str, names: tuple[str, ...]) -> list[int]:
    """The sizes behind these names, in bytes."""
    found = []
    with contextlib.suppress(OSError, ValueError), open(file, encoding="utf-8") as opened:
        for line in opened:
            name, _, value = line.partition(":")
            if name in names:
                found.append(int(value.split()[0]) << 10)
    return found


def _used(folder: str) -> int:
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


def _free(folder: str) -> int:
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
    return 1 << 62
