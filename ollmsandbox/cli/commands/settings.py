# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox settings`"""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from dataclasses import asdict

from ...errors import OllmSandboxError
from ...paths import Paths
from ...project.projects import ProjectManager
from ...project.settings import ALL
from ...sandbox.rootfs.settings import SETTINGS, load_rootfs_settings, save_rootfs_settings

_ROOTFS = "rootfs-"


def settings(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    rootfs = [f"{_ROOTFS}{name}" for name in SETTINGS]
    if given.name in rootfs:
        return _of_rootfs(paths, given.name.removeprefix(_ROOTFS), given.value)
    with closing(ProjectManager(paths)) as manager:
        if given.name is None:
            for setting in ALL:
                print(f"{setting.name} = {setting.read(manager)}  ({setting.what})")
            found = asdict(load_rootfs_settings(paths.config))
            for name, of_rootfs in SETTINGS.items():
                print(f"{_ROOTFS}{name} = {found[name]}  ({of_rootfs.what})")
            return 0
        known = {setting.name: setting for setting in ALL}
        if given.name not in known:
            choice = ", ".join([*known, *rootfs])
            raise OllmSandboxError(
                f"There is no setting {given.name!r}.", f"Choose one of: {choice}."
            )
        if given.value is None:
            print(known[given.name].read(manager))
        else:
            known[given.name].write(manager, given.value)
    return 0


def _of_rootfs(paths: Paths, name: str, value: str | None) -> int:
    found = load_rootfs_settings(paths.config)
    if value is not None:
        save_rootfs_settings(paths.config, found.with_value(name, value))
    else:
        print(asdict(found)[name])
    return 0
