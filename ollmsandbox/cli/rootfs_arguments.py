# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of `ollmsandbox rootfs`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_ROOTFS_HELP = """\
Commands can run in a small Alpine system instead of this machine's own: the same on every machine,
with the project at /workspace. What they change is recorded and can be undone as ever.
"""


def _add_rootfs(commands: _Commands) -> None:
    rootfs = commands.add_parser(
        "rootfs", help="the Alpine system that commands can run in", description=_ROOTFS_HELP
    )
    actions = rootfs.add_subparsers(title="actions", metavar="ACTION", required=True)
    status = actions.add_parser("status", help="what is installed, and what this project uses")
    status.add_argument("--json", action="store_true", help="print one JSON document")
    install = actions.add_parser("install", help="install it, or a newer version of it")
    install.add_argument(
        "--tier",
        type=int,
        choices=(0, 1, 2),
        help="0: the base alone, 1: with bash and Python, 2: with git, Node and others besides "
        "(default: the setting rootfs-tier)",
    )
    install.add_argument(
        "--from", dest="tarball", metavar="FILE", help="a tarball on disk, instead of the mirror's"
    )
    install.add_argument("--quiet", action="store_true", help="say nothing while it goes well")
    actions.add_parser("remove", help="remove it")
    use = actions.add_parser("use", help="choose where this project's commands run")
    use.add_argument("system", choices=("alpine", "host"))
    for action in (status, use):
        action.add_argument("--project", metavar="DIR", help="of this project (default: this one)")
    for name, action in actions.choices.items():
        action.set_defaults(handler=_rootfs, action=name)


def _rootfs(given: argparse.Namespace) -> int:
    from .rootfs import rootfs

    return rootfs(given)
