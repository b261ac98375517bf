# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program that reads untrusted data and returns the result, and can do nothing else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from ..paths import Paths, is_inside
from .plan.mounts import DevicesAndProcesses
from .probe.probe import probe
from .seccomp import FilterRules, open_filter
from .starter.client import memory_file

# It has no network, no sockets and no other process around it. All it can write to is its output,
# and /run, which is gone with it. Commands may see what becomes of the output: so it can read
# nothing of the user's either.
_OPTIONS = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
    *("--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/", "--tmpfs", "/run"),
)
# Where programs and their libraries are.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store"),
    *("/etc/alternatives", "/etc/ld.so.cache"),
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
    read = [*_SYSTEM]
    own = (sys.base_prefix, sys.prefix) if argv[0] == sys.executable else ()
    for path in (*own, *filter(os.path.isabs, argv)):
        # What is bound already may be a link, and a bind over that fails.
        if not is_inside(path, *read):
            read.append(path)
    options = [word for path in read for word in ("--ro-bind-try", path, path)]
    options += [*DevicesAndProcesses(is_root=os.getuid() == 0).args(), "--remount-ro", "/"]
    with contextlib.ExitStack() as closing:
        filter_ = open_filter(FilterRules(unix_sockets=False, netlink=False), paths.cache)
        closing.callback(os.close, filter_)
        stdin = os.dup(data) if isinstance(data, int) else memory_file("data", data)
        closing.callback(os.close, stdin)
        process = closing.enter_context(
            subprocess.Popen(
                [found.bwrap, *_OPTIONS, *options, "--seccomp", str(filter_), "--", *argv],
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
