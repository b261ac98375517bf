# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox settings`"""

from __future__ import annotations

import argparse
import os

from ..errors import OllmSandboxError
from ..paths import Paths
from ..project.manager import ProjectManager
from ..project.settings import ALL


def settings(given: argparse.Namespace) -> int:
    manager = ProjectManager(Paths.from_environ(os.environ))
    try:
        if given.name is None:
            for setting in ALL:
                print(f"{setting.name} = {setting.read(manager)}  ({setting.what})")
            return 0
        known = {setting.name: setting for setting in ALL}
        if given.name not in known:
            choice = ", ".join(known)
            raise OllmSandboxError(
                f"There is no setting {given.name!r}.", f"Choose one of: {choice}."
            )
        if given.value is None:
            print(known[given.name].read(manager))
        else:
            known[given.name].write(manager, given.value)
    finally:
        manager.close()
    return 0
