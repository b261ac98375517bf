# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts what ssh needs in a sandbox to log in with the user's ssh-agent. See network/ssh.py."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .mounts import Mount, ReadOnlyBind, ResolverFile

INSIDE = "/run/ssh"
_CONFIG = "/etc/ssh/ssh_config"
_INCLUDE = r"(?im)^[ \t]*Include\b.*\n?"


def agent_folder(runtime: Path, run_id: str) -> Path:
    """Return the folder of a run that has the agent's socket in it."""
    return runtime / f"ssh-{run_id}"


def ssh_files(runtime: Path, run_id: str, root: str = "") -> list[Mount]:
    """Return mounts of the agent's folder, and of a configuration in place of that of the system in
    `root`: the user's own is hidden, together with the keys."""
    mounts: list[Mount] = [ReadOnlyBind(str(agent_folder(runtime, run_id)), INSIDE)]
    file = f"{root}{_CONFIG}"
    if os.path.isfile(file) and not os.path.islink(file):
        own = Path(file).read_text(encoding="utf-8", errors="surrogateescape")
        # The first value of a setting counts. ssh refuses to include the system's other files:
        # inside, they are nobody's. What they say of a host is in ours: ssh was asked outside.
        text = f"Include {INSIDE}/config\n{re.sub(_INCLUDE, '', own)}"
        mounts.append(ResolverFile(f"{runtime}/ssh_config", text, _CONFIG))
    return mounts


def ssh_variables() -> dict[str, str]:
    return {"SSH_AUTH_SOCK": f"{INSIDE}/agent"}
