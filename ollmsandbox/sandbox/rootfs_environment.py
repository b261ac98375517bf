# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a command in another system: nothing of the person's own."""

from __future__ import annotations

from collections.abc import Mapping

from .profile import Profile

WORKSPACE = "/workspace"
PLAYGROUND = "/playground"
# What pip installs is kept in the project, and found there by the next command.
PACKAGES = f"{WORKSPACE}/.packages"
PATH = f"/usr/bin:/bin:/usr/local/bin:{PACKAGES}/bin:/usr/sbin:/sbin"
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def environment_of(
    profile: Profile, environ: Mapping[str, str], *, network: bool
) -> dict[str, str]:
    made = {
        "HOME": WORKSPACE,
        "PATH": PATH,
        "PIP_TARGET": PACKAGES,
        "PYTHONPATH": PACKAGES,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
    }
    if network:
        # As for every command, without one that holds a password.
        made |= proxies(profile.environment(environ))
    made.update(profile.environment_set)
    return made


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Without them some networks lead nowhere."""
    return {name: value for name, value in environ.items() if name.lower() in _PROXIES}
