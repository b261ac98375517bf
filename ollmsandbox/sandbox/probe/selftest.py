# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the sandbox holds on this machine, with real commands in a real sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

from ...errors import OllmSandboxError
from ...loop import run
from ...paths import Paths
from ..bubble import Bubble
from ..caches import remove_caches
from ..network.network import HostNetwork
from ..plan.mounts import OverlayMethod
from ..spec import RunSpec
from .probe import Capabilities, Finding

_TIMEOUT = 30
_BROKEN = "The sandbox does not work as it should on this machine."
_UNRECORDED = (
    "Overlays cannot be mounted, so changes of commands could not be recorded.",
    "See above for the reason.",
)
_REPORT = "Please report it, with the output of `ollmsandbox doctor --json`."

# Each line prints "yes" if the sandbox holds.
_COMMAND = """
touch made && rm made && echo writes=yes
touch "$HOME/playground/.doctor" && rm "$HOME/playground/.doctor" && echo playground=yes
touch "$HOME/.doctor" 2>/dev/null || touch /usr/.doctor 2>/dev/null || echo outside=yes
test -z "$DOCTOR_TOKEN" && ! grep -q doctor-secret /proc/*/environ 2>/dev/null &&
    ! ls "$OWN" 2>/dev/null && echo secrets=yes
test "$(wc -l </proc/net/dev)" -le 3 && echo no-network=yes
test "$(ls -d /proc/[0-9]* | wc -l)" -lt 20 && echo processes=yes
grep -q '^NoNewPrivs:.*1$' /proc/self/status && grep -q '^CapEff:.*0000000000000000$' \
    /proc/self/status && echo rights=yes
"""
_LOOK_UP = "getent ahostsv4 doctor.example.org"
_NO_NAMES = "No name is found in the sandbox."
_WHOLE = "`ollmsandbox run --network=all` opens the whole network to a command."
_TITLES = {
    "writes": "The project is writable",
    "playground": "The playground is writable",
    "outside": "Nothing else is writable",
    "secrets": "Secrets are hidden",
    "no-network": "The network is off",
    "processes": "Other programs are not visible",
    "rights": "Commands have no privileges",
}


def selftest(capabilities: Capabilities, environ: Mapping[str, str]) -> list[Finding]:
    """Run a command in a temporary project and return a finding for each thing it checked."""
    paths = Paths.from_environ(environ)
    given = {**environ, "DOCTOR_TOKEN": "doctor-secret", "OWN": str(paths.cache)}
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-doctor-") as project:
        try:
            return run(_selftest(project, capabilities, given))
        finally:
            remove_caches(paths, project)


async def _selftest(
    project: str, capabilities: Capabilities, environ: Mapping[str, str]
) -> list[Finding]:
    try:
        # Not through the engine, which is a level above: nothing is recorded or settled here.
        spec = RunSpec(project, timeout=_TIMEOUT)
        bubble = Bubble(spec, environ=environ, capabilities=capabilities)
        result = await bubble.exec(_COMMAND)
    except OllmSandboxError as error:
        return [_finding("command", "A command runs", ok=False, cause=str(error))]
    hosts = await _try_hosts(project, capabilities, environ)
    said = set(result.stdout.text.split())
    found = [_finding(key, title, ok=f"{key}=yes" in said) for key, title in _TITLES.items()]
    if capabilities.overlay is OverlayMethod.NONE and not found[0].ok:
        found[0] = found[0]._replace(needed=False, cause=_UNRECORDED[0], remedy=_UNRECORDED[1])
    return [*found, hosts]


async def _try_hosts(
    project: str, capabilities: Capabilities, environ: Mapping[str, str]
) -> Finding:
    """Find out whether the network of a sandbox can be opened to single hosts."""
    key, title = "hosts", "The network can be opened to single hosts"
    spec, network = RunSpec(project, timeout=_TIMEOUT), HostNetwork(())
    bubble = Bubble(spec, environ=environ, capabilities=capabilities, hosts=network)
    try:
        result = await bubble.exec(_LOOK_UP)
    except OllmSandboxError as error:
        return Finding(key, title, ok=False, needed=False, cause=str(error), remedy=_WHOLE)
    if not result.stdout.text.startswith("198.18."):
        return Finding(key, title, ok=False, needed=False, cause=_NO_NAMES, remedy=_WHOLE)
    return Finding(key, title, ok=True, needed=False)


def _finding(key: str, title: str, *, ok: bool, cause: str = _BROKEN) -> Finding:
    if ok:
        return Finding(key, title, ok=True, needed=True)
    return Finding(key, title, ok=False, needed=True, cause=cause, remedy=_REPORT)
