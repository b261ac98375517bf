# SPDX-License-Identifier: GPL-3.0-or-later
"""Start bwrap with what a plan allows: its command line, options, descriptors and pipes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import N_
from ..errors import SandboxError
from ..files.atomic import write_atomically
from ..files.locks import FileLock
from ..paths import Paths, is_inside
from ..record import Record
from .limits import WitnessPipe, witness_command
from .plan import mask_layer, mounts
from .plan.plan import Plan
from .seccomp import open_filter
from .starter.client import StartOrder, memory_file, start_process

if TYPE_CHECKING:
    from .probe.probe import Capabilities
    from .terminal import CommandTerminal

# For our own scripts. A command's text runs in `text_shell`.
SHELL = "/bin/sh"
_BASH = "/bin/bash"
# execve() takes no longer argument (MAX_ARG_STRLEN).
_SMALL = 1 << 20
_LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - 1

# Where bwrap makes the only user namespace, the process limit is set inside of it: it must not
# count the user's other programs.
_INNER = '{ ulimit -u "$1" || ulimit -p "$1"; } 2>/dev/null; shift; exec "$@"'

# A terminal is of use only to a session whose leader has taken it: job control, Ctrl+C, /dev/tty.
# bwrap makes a session for its first process, which takes no terminal.
_LEAD = 'exec setsid -c "$@"'
# The same if standard input is not the terminal.
_LEAD_WITH_INPUT = 'exec setsid -c "$0" -c \'exec "$@" <&3 3<&-\' sh "$@" 3<&0 <&1'


class LaunchedBwrap(Record):
    """A started bwrap, with our ends of its pipes."""

    pid: int
    pidfd: int
    stdout: int
    stderr: int
    # Where bwrap and the witness report, for `BwrapStatus`.
    status: int
    # Whether the started process is the first of a PID namespace, so that all others die with it.
    has_own_pids: bool
    witness: WitnessPipe | None
    # The command starts when this is closed; -1 if it does not wait.
    block: int = -1


def launch(
    plan: Plan,
    argv: Sequence[str],
    found: Capabilities,
    paths: Paths,
    stdin: int | None,
    closing: contextlib.ExitStack,
    terminal: CommandTerminal | None = None,
    scope: Sequence[str] = (),
) -> LaunchedBwrap:
    """Start bwrap; `closing` closes our ends of its pipes. Without `stdin` it reads nothing, if not
    from a terminal. `scope` is the command that limits the memory, if a limit is set and systemd
    runs."""
    if terminal is not None:
        lead = _LEAD if terminal.gives_input else _LEAD_WITH_INPUT
        argv = [SHELL, "-c", lead, SHELL, *argv]
    order, arguments = _make_order(plan, argv, found, paths, scope)
    ours, theirs, witness = [], [], None
    with contextlib.ExitStack() as handed_over:
        for _ in range(3):
            reader, writer = os.pipe()
            closing.callback(os.close, reader)
            handed_over.callback(os.close, writer)
            ours.append(reader)
            theirs.append(writer)
        if terminal is not None:
            arguments += ["--setenv", "TERM", terminal.kind]
            handed_over.callback(os.close, terminal.slave)
            ours[0], theirs[0] = terminal.master, terminal.slave
            theirs[1] = terminal.slave if terminal.takes_errors else theirs[1]
            stdin = terminal.slave if terminal.gives_input else stdin
        if stdin is None:
            stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            handed_over.callback(os.close, stdin)
        filter_ = open_filter(plan.rules, paths.cache)
        handed_over.callback(os.close, filter_)
        options = memory_file("options", os.fsencode("\0".join(arguments) + "\0"))
        handed_over.callback(os.close, options)
        given = [stdin, theirs[0], theirs[1], options, filter_, theirs[2]]
        if scope:
            witness = WitnessPipe()
            closing.callback(witness.release)
            handed_over.callback(os.close, witness.theirs)
            given.insert(-1, witness.theirs)
        block = -1
        if plan.by_host:
            waiting, block = os.pipe()
            handed_over.callback(os.close, waiting)
            given.insert(-1, waiting)
        started = start_process(order, given)
        closing.callback(os.close, started.pidfd)
    stdout, stderr, status = ours
    has_own_pids = "pid" in order.namespaces
    return LaunchedBwrap(
        started.pid, started.pidfd, stdout, stderr, status, has_own_pids, witness, block
    )


def _make_order(
    plan: Plan, argv: Sequence[str], found: Capabilities, paths: Paths, scope: Sequence[str]
) -> tuple[StartOrder, list[str]]:
    """Create the folders that the plan needs, and return the order and bwrap's options.

    The options go through a descriptor, so that other users do not see them in `ps`.
    """
    runtime = paths.runtime
    for mount in plan.mounts:
        if isinstance(mount, mounts.ResolverFile):
            _write_once(mount)
        if isinstance(mount, mounts.CacheFolders):
            # Its base may be no mount of its own.
            mask_layer.prepare(runtime, mount.base.spec)
        if isinstance(mount, mounts.MaskedFolder):
            mask_layer.prepare(runtime, mount.spec)
        if isinstance(mount, mounts.AgentSettings):
            os.makedirs(mount.empty, 0o700, exist_ok=True)
    overlays = plan.overlay_mounts()
    for overlay in overlays:
        # Others are mounted in place.
        if is_inside(overlay.target, str(runtime)):
            mask_layer.prepare_mount_point(overlay.target)
    # As in `launch`, after the three standard streams.
    options, filter_, witness_pipe = 3, 4, 5
    block = witness_pipe + 1 if scope else witness_pipe
    status = block + 1 if plan.by_host else block
    bwrap = [found.bwrap, "--args", str(options), "--"]
    if scope:
        before = witness_command(options=options, filter_=filter_, pipe=witness_pipe, status=status)
        bwrap = [*scope, *before, *bwrap]
    arguments = [*plan.args(), "--seccomp", str(filter_), "--json-status-fd", str(status)]
    arguments += ["--block-fd", str(block)] if plan.by_host else []
    # systemd only knows process ids of the host's namespace.
    namespaces = [n for n in found.namespaces if n != "pid" or not scope]
    if "pid" not in namespaces:
        arguments.append("--die-with-parent")
    limit, disk = plan.limits.processes, plan.limits.disk
    has_user_namespace = "user" in found.namespaces
    # The kernel does not limit root's processes: `watch_limits` does.
    if limit is not None and not has_user_namespace and os.getuid() != 0:
        argv = [SHELL, "-c", _INNER, "sh", str(limit), *argv]
    order = StartOrder(
        argv=[*bwrap, *argv],
        folder=str(runtime),
        namespaces=namespaces,
        mounts=overlays,
        processes=limit if has_user_namespace else None,
        # A little more, so that reaching it means that the disk limit is exceeded. Not for a root
        # file system, whose files may have holes.
        file_size=disk + _SMALL if disk is not None and plan.project else None,
        protect=found.bwrap,
    )
    return order, arguments


def _write_once(file: mounts.ResolverFile) -> None:
    """Write the file, unless it is there: it must not be replaced while another command's bwrap
    binds it."""
    if not file.is_written():
        # Another program may come here, too.
        with FileLock(file.runtime / "layers.lock"):
            if not file.is_written():
                write_atomically(file.source, file.text)


def text_shell(root: str = "") -> str:
    """Return the shell that runs a command's text: bash if the system in `root` has it, because
    that is what users and models write for."""
    # Not followed: an absolute link in a root file system is meant to be read inside of it.
    return _BASH if os.path.lexists(f"{root}{_BASH}") else SHELL


def check_command(argv: Sequence[str]) -> None:
    """Raise if execve() cannot take the command."""
    if not argv:
        raise SandboxError(N_("The command is empty."), N_("Enter a command."))
    for word in argv:
        try:
            size = len(os.fsencode(word))
        except UnicodeEncodeError as error:
            raise SandboxError(N_("The command contains invalid Unicode.")) from error
        if "\0" in word:
            raise SandboxError(N_("The command contains a NUL character."))
        if size > _LONGEST:
            raise SandboxError(
                N_("The command is longer than {number} bytes, which the kernel does not accept."),
                N_("Write it to a file in the project and run that."),
                number=_LONGEST,
            )
