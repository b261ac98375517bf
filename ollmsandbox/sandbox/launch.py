# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to a running sandbox: what bwrap is told, and the process that starts it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import N_
from ..errors import SandboxError
from . import seccomp
from .limits import witness
from .plan import mask_layer
from .plan.mounts import Layered, Overlaid, number_of
from .plan.plan import Plan
from .starter.client import Order, memory_file

SHELL = "/bin/sh"
# execve() takes no longer argument (MAX_ARG_STRLEN).
_LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - 1

# Where bwrap makes the only user namespace, the process limit is set inside of it: it must not
# count the person's other programs.
_INNER = '{ ulimit -u "$1" || ulimit -p "$1"; } 2>/dev/null; shift; exec "$@"'


@dataclass(frozen=True)
class Programs:
    """What a sandbox is started with."""

    bwrap: str
    # The namespaces bwrap is started in: mounts of ours can be made there, mounts that others make
    # meanwhile do not come in, and all dies with it. Root needs no user namespace for it.
    namespaces: tuple[str, ...] = ()
    # A control group for the memory limit, where the person set one and systemd answers.
    scope: tuple[str, ...] = ()


def make_order(
    plan: Plan, argv: Sequence[str], programs: Programs, runtime: Path, first_descriptor: int
) -> tuple[Order, list[str]]:
    """Prepare what the plan needs. Returns bwrap's options too: they go through a descriptor,
    where other users' `ps` does not show them; the command itself cannot."""
    for mount in plan.mounts:
        if isinstance(mount, Layered):
            mask_layer.prepare(runtime, mount.spec)
        if isinstance(mount, Overlaid) or (isinstance(mount, Layered) and not mount.in_place):
            mask_layer.prepare_mount_point(runtime, mount.number)
    options, filter_, life = range(first_descriptor, first_descriptor + 3)
    status = life + 1 if programs.scope else life
    bwrap = [programs.bwrap, "--args", str(options), "--"]
    if programs.scope:
        before = witness(options=options, filter_=filter_, life=life, status=status)
        bwrap = [*programs.scope, *before, *bwrap]
    arguments = [*plan.args(), "--seccomp", str(filter_), "--json-status-fd", str(status)]
    limit = plan.limits.processes
    apart = "user" in programs.namespaces
    # Root is never counted: for it the watch counts.
    if limit is not None and not apart and os.getuid() != 0:
        argv = [SHELL, "-c", _INNER, "sh", str(limit), *argv]
    order = Order(
        argv=[*bwrap, *argv],
        folder=str(runtime),
        # systemd has to be told the process id that it knows.
        namespaces=[n for n in programs.namespaces if n != "pid" or not programs.scope],
        mounts=plan.outer(),
        processes=limit if apart else None,
        protect=programs.bwrap,
        protected=number_of(programs.bwrap),
    )
    return order, arguments


def open_descriptors(plan: Plan, arguments: Sequence[str], cache_folder: Path) -> tuple[int, int]:
    """bwrap's options and the system-call filter."""
    filter_ = seccomp.open_filter(plan.rules, cache_folder)
    return memory_file("options", os.fsencode("\0".join(arguments) + "\0")), filter_


def check_words(argv: Sequence[str]) -> None:
    """What no program can be given is refused with a sentence."""
    if not argv:
        raise SandboxError(N_("The command is empty."), N_("Name a command to run."))
    for word in argv:
        try:
            size = len(os.fsencode(word))
        except UnicodeEncodeError as error:
            raise SandboxError(N_("The command holds half a character.")) from error
        if "\0" in word:
            raise SandboxError(
                N_("The command holds a NUL character, which no program can be given.")
            )
        if size > _LONGEST:
            raise SandboxError(
                N_("The command is longer than {number} bytes, which no program can be given."),
                N_("Write it into a file of the project and run that."),
                number=_LONGEST,
            )
