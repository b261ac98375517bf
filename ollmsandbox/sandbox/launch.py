# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a plan into what the starter needs: bwrap's command line, options and descriptors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import N_
from ..errors import SandboxError
from .limits import witness_command
from .plan import mask_layer
from .plan.mounts import MaskedFolder, OverlaidFolder
from .plan.plan import Plan
from .seccomp import open_filter
from .starter.client import StartOrder, memory_file

SHELL = "/bin/sh"
# execve() takes no longer argument (MAX_ARG_STRLEN).
_LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - 1

# Where bwrap makes the only user namespace, the process limit is set inside of it: it must not
# count the user's other programs.
_INNER = '{ ulimit -u "$1" || ulimit -p "$1"; } 2>/dev/null; shift; exec "$@"'


@dataclass(frozen=True)
class LaunchPrograms:
    """The programs and namespaces that a sandbox is started with."""

    bwrap: str
    # bwrap is started in these: we can mount there, later mounts of the host do not appear, and
    # everything dies with the first process. Root needs no user namespace for that.
    namespaces: tuple[str, ...] = ()
    # The command that limits the memory, if a limit is set and systemd runs.
    scope: tuple[str, ...] = ()


def make_order(
    plan: Plan, argv: Sequence[str], programs: LaunchPrograms, runtime: Path, first_descriptor: int
) -> tuple[StartOrder, list[str]]:
    """Create the folders that the plan needs, and return the order and bwrap's options.

    The options go through a descriptor, so that other users do not see them in `ps`.
    """
    for mount in plan.mounts:
        if isinstance(mount, MaskedFolder):
            mask_layer.prepare(runtime, mount.spec)
        if isinstance(mount, OverlaidFolder) or (
            isinstance(mount, MaskedFolder) and not mount.in_place
        ):
            mask_layer.prepare_mount_point(runtime, mount.number)
    options, filter_, witness_pipe = range(first_descriptor, first_descriptor + 3)
    status = witness_pipe + 1 if programs.scope else witness_pipe
    bwrap = [programs.bwrap, "--args", str(options), "--"]
    if programs.scope:
        before = witness_command(options=options, filter_=filter_, pipe=witness_pipe, status=status)
        bwrap = [*programs.scope, *before, *bwrap]
    arguments = [*plan.args(), "--seccomp", str(filter_), "--json-status-fd", str(status)]
    limit = plan.limits.processes
    has_user_namespace = "user" in programs.namespaces
    # The kernel does not limit root's processes: `watch_limits` does.
    if limit is not None and not has_user_namespace and os.getuid() != 0:
        argv = [SHELL, "-c", _INNER, "sh", str(limit), *argv]
    order = StartOrder(
        argv=[*bwrap, *argv],
        folder=str(runtime),
        # systemd only knows process ids of the host's namespace.
        namespaces=[n for n in programs.namespaces if n != "pid" or not programs.scope],
        mounts=plan.overlay_mounts(),
        processes=limit if has_user_namespace else None,
        protect=programs.bwrap,
    )
    return order, arguments


def open_descriptors(plan: Plan, arguments: Sequence[str], cache_folder: Path) -> tuple[int, int]:
    """Return descriptors of bwrap's options and of the system-call filter."""
    filter_ = open_filter(plan.rules, cache_folder)
    return memory_file("options", os.fsencode("\0".join(arguments) + "\0")), filter_


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
