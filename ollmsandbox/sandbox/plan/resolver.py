# SPDX-License-Identifier: GPL-3.0-or-later
"""Make programs in a sandbox look names up with us: the files of the resolver, and no proxies; and
have ssh log in with the user's ssh-agent. See network/names.py and network/ssh.py."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from .mounts import Mount, ReadOnlyBind, ResolverFile

# Where names are answered inside.
SERVER = "198.18.0.1"
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# What ssh needs.
SSH_FOLDER = "/run/ssh"
_SSH_CONFIG = "/etc/ssh/ssh_config"
_INCLUDE = r"(?im)^[ \t]*Include\b.*\n?"


def resolver_files(runtime: Path, root: str = "") -> list[Mount]:
    """Return mounts of the resolver's files, in place of those of the system in `root`."""
    name = socket.gethostname()
    texts = {
        "/etc/resolv.conf": f"nameserver {SERVER}\noptions timeout:3 attempts:5\n",
        "/etc/hosts": f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {name}\n",
        "/etc/nsswitch.conf": _nsswitch(f"{root}/etc/nsswitch.conf"),
    }
    mounts: list[Mount] = []
    for path, text in texts.items():
        # They may be links, which the mount has to go behind. Those in a root file system lead
        # elsewhere from here.
        real = path if root else os.path.realpath(path)
        is_there = os.path.isfile(f"{root}{real}") and not os.path.islink(f"{root}{real}")
        if text and (is_there or (real.startswith("/run/") and not root)):
            mounts.append(ResolverFile(runtime, text, real))
    return mounts


def _nsswitch(file: str) -> str:
    """Return the file with names looked up in the usual way; "" if there is none."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return re.sub(r"(?m)^\s*hosts:.*$", "hosts: files dns", text)


def without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.lower() not in PROXIES}


def agent_folder(runtime: Path, run_id: str) -> Path:
    """Return the folder of a run that has the agent's socket in it."""
    return runtime / f"ssh-{run_id}"


def ssh_files(runtime: Path, run_id: str, root: str = "") -> list[Mount]:
    """Return mounts of the agent's folder, and of a configuration in place of that of the system in
    `root`: the user's own is hidden, together with the keys."""
    made: list[Mount] = [ReadOnlyBind(str(agent_folder(runtime, run_id)), SSH_FOLDER)]
    file = f"{root}{_SSH_CONFIG}"
    if os.path.isfile(file) and not os.path.islink(file):
        own = Path(file).read_text(encoding="utf-8", errors="replace")
        # The first value of a setting counts. ssh refuses to include the system's other files:
        # inside, they are nobody's. What they say of a host is in ours: ssh was asked outside.
        text = f"Include {SSH_FOLDER}/config\n{re.sub(_INCLUDE, '', own)}"
        made.append(ResolverFile(runtime, text, _SSH_CONFIG))
    return made


def ssh_variables() -> dict[str, str]:
    return {"SSH_AUTH_SOCK": f"{SSH_FOLDER}/agent"}
