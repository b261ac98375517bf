# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox caches`"""

from __future__ import annotations

import argparse
import os

from ...errors import OllmSandboxError
from ...paths import Paths, real_path
from ...sandbox.caches import ProjectCaches, all_caches
from ...text.ansi import escape_line
from ..streams import print_notices
from .playground import amount_text, confirmed


def caches(given: argparse.Namespace) -> int:
    found = all_caches(Paths.from_environ(os.environ))
    if given.project is not None:
        project = real_path(given.project)
        found = [one for one in found if one.project == project]
        if not found:
            raise OllmSandboxError(
                f"No command has written to caches in {escape_line(project)}.",
                "`ollmsandbox caches size` lists the projects with caches.",
            )
    sizes = {one: one.measure() for one in found}
    files = sum(number for number, _size in sizes.values())
    total = amount_text(files, sum(size for _files, size in sizes.values()))
    if given.action == "size":
        for one, (number, size) in sizes.items():
            if number or size:
                print(f"{amount_text(number, size)}: {escape_line(one.project or 'unknown')}")
        print(f"{total}: total")
        return 0
    if not confirmed(f"Delete these caches ({total})?"):
        return 1
    in_use = [one for one in found if not _clear(one)]
    return 1 if in_use else 0


def _clear(one: ProjectCaches) -> bool:
    try:
        is_empty = one.clear()
    except OSError as error:
        raise OllmSandboxError(f"Cannot empty {one.folder}: {error.strerror}.") from error
    if not is_empty:
        name = escape_line(one.project or str(one.folder))
        print_notices(f"A command is running in {name}. What it uses was kept.")
    return is_empty
