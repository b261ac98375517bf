# SPDX-License-Identifier: GPL-3.0-or-later
"""What a system offers: the programs that it said it has when it was prepared."""

from __future__ import annotations

import json
import os
import re

from .rootfs_store import PROGRAMS_FILE, Installed

KNOWN = (
    *("bash", "python3", "pip", "uv", "pytest", "node", "npm", "pnpm", "yarn", "deno", "bun"),
    *("git", "gcc", "g++", "clang", "make", "cmake", "meson", "ninja", "cargo", "rustc", "go"),
    *("java", "javac", "mvn", "gradle", "dotnet", "ruby", "bundle", "php", "composer"),
    *("perl", "lua", "ghc", "zig", "sqlite3", "psql", "jq", "rg", "fd", "curl", "wget"),
    *("patch", "tar", "unzip", "gawk", "find", "grep", "sed", "gdb", "strace", "shellcheck"),
)
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+[0-9A-Za-z.+-]{0,20}")
_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "usr/sbin", "sbin")
_LARGEST = 1 << 16


def programs_in(installed: Installed) -> list[str]:
    """With their versions where they tell them, as "git 2.49.0"."""
    told = _told(installed)
    if told is None:
        # Somebody else prepared it; it can only be looked at.
        return [name for name in KNOWN if _is_there(installed.folder, name)]
    return [_with_version(name, told[name]) for name in KNOWN if name in told]


def _told(installed: Installed) -> dict[str, str] | None:
    try:
        file = os.open(f"{installed.folder}/{PROGRAMS_FILE}", os.O_RDONLY | os.O_NOFOLLOW)
        with open(file, encoding="utf-8") as opened:
            found = json.loads(opened.read(_LARGEST))
    except (OSError, ValueError):
        return None
    return (
        {str(name): str(said) for name, said in found.items()} if isinstance(found, dict) else None
    )


def _with_version(name: str, said: str) -> str:
    if said == "busybox":
        return f"{name} (busybox)"
    found = _VERSION.search(said)
    return f"{name} {found[0]}" if found else name


def _is_there(folder: str, name: str) -> bool:
    return any(os.path.lexists(f"{folder}/{place}/{name}") for place in _FOLDERS)
