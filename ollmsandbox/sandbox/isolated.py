# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program that reads untrusted data and returns the result, and can do nothing else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence

from ..paths import Paths
from .plan.mounts import DevicesAndProcesses
from .probe.probe import probe
from .seccomp import FilterRules, open_filter
from .starter.client import memory_file

# It may read all files, but nobody gets to know of it: it has no network, no sockets and no other
# process around it. All it can write to is its output.
_OPTIONS = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
    *("--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/", "--ro-bind", "/", "/", "--tmpfs", "/run"),
)


def run_isolated(
    argv: Sequence[str],
    data: bytes | int,
    environ: Mapping[str, str],
    *,
    most: int,
    timeout: float,
    paths: Paths | None = None,
) -> bytes | None:
    """Return what the program writes when it reads `data`, `most` bytes of it at most; None if it
    fails, takes longer, or cannot be isolated here. The data may be an open file. Blocks."""
    paths = paths or Paths.from_environ(environ)
    found = probe(paths, environ)
    if not found.can_wrap:
        return None
    system = DevicesAndProcesses(is_root=os.getuid() == 0)
    with contextlib.ExitStack() as closing:
        filter_ = open_filter(FilterRules(unix_sockets=False, netlink=False), paths.cache)
        closing.callback(os.close, filter_)
        stdin = os.dup(data) if isinstance(data, int) else memory_file("data", data)
        closing.callback(os.close, stdin)
        process = closing.enter_context(
            subprocess.Popen(
                [found.bwrap, *_OPTIONS, *system.args(), "--seccomp", str(filter_), "--", *argv],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(filter_,),
                env={},
            )
        )
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        closing.callback(timer.cancel)
        closing.callback(process.kill)
        assert process.stdout is not None
        written = process.stdout.read(most + 1)
        return written if len(written) <= most and process.wait() == 0 else None
