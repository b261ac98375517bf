# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox hosts`"""

from __future__ import annotations

import argparse
import contextlib
import json
import os

from ...errors import OllmSandboxError
from ...paths import Paths
from ...project.projects import ProjectManager
from ...project.run import read_run
from ...sandbox.network.lists import (
    FILE,
    check_list_name,
    hosts_for_list,
    load_host_lists,
    remove_host_list,
    save_host_list,
)


def hosts(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    if given.action == "list":
        return _list(paths, as_json=given.json)
    name = given.name.removeprefix("@")
    if given.action == "remove":
        remove_host_list(paths.config, name)
        return 0
    check_list_name(name)
    with contextlib.closing(ProjectManager(paths)) as manager:
        run = manager.run(given.run)
    rules = hosts_for_list(read_run(paths, run.id).hosts)
    if not rules:
        raise OllmSandboxError(
            f"Run {run.id} was not allowed to reach any host.",
            "`ollmsandbox history` shows the hosts of each run.",
        )
    save_host_list(paths.config, name, rules)
    print(f"@{name}: {', '.join(map(str, rules))}")
    return 0


def _list(paths: Paths, *, as_json: bool) -> int:
    lists = load_host_lists(paths.config)
    if as_json:
        print(json.dumps({name: list(map(str, found)) for name, found in lists.items()}, indent=2))
        return 0
    for name, found in lists.items():
        print(f"@{name}: {', '.join(map(str, found))}")
    if not lists:
        print("You have no lists of hosts. Save one with `ollmsandbox hosts save NAME RUN`, or")
        print(f"write it to {paths.config / FILE}.")
    return 0
