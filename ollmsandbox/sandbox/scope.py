# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's scope around a command: the control group that holds the memory limit, and how it is
found out that the kernel ended something in it."""

from __future__ import annotations

import os
from collections.abc import Mapping

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
