# SPDX-License-Identifier: GPL-3.0-or-later
"""Run commands in every kind of sandbox that this machine can make."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.person import Person, make_person

from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.probe.probe import Capabilities

IS_ROOT = os.getuid() == 0


def ways_of_this_machine() -> list[OverlayMethod]:
    """Return the overlay methods to test; the one without an overlay must work everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        person = make_person(Path(folder))
        found = person.capabilities()
    ways = [OverlayMethod.UNSHARE] if found.namespaces else []
    if any(finding.key == "overlay-bwrap" and finding.ok for finding in found.findings):
        ways.append(OverlayMethod.BWRAP)
    return [*ways, OverlayMethod.NONE]


WAYS = ways_of_this_machine()
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.value)
# Without one, changes could not be recorded, and the project is not written.
OVERLAYS = [way for way in WAYS if way is not OverlayMethod.NONE]
each_overlay = pytest.mark.parametrize("way", OVERLAYS, ids=lambda way: way.value)


def by(person: Person, way: OverlayMethod) -> Capabilities:
    return person.capabilities()._replace(overlay=way)


def with_profile(person: Person, text: str, name: str = "mine") -> None:
    person.paths.profiles.mkdir(parents=True, exist_ok=True)
    (person.paths.profiles / f"{name}.yaml").write_text(text)


def run_beside(
    person: Person, before: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return person.cli(*arguments, around=before, cwd=person.home)


def command_beside(
    person: Person, before: list[str], command: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project as `run_beside` does."""
    where = ("--project", str(person.project))
    return run_beside(person, before, "run", *options, *where, "-c", command)


def in_mounts(script: str, *words: str | Path) -> list[str]:
    """Return the words that start a command with mounts of its own, which end with it."""
    begin = ["unshare", "-m"] if IS_ROOT else ["unshare", "-Urm"]
    back = [] if IS_ROOT else ["unshare", "-U", f"--map-user={os.getuid()}"]
    back += [] if IS_ROOT else [f"--map-group={os.getgid()}"]
    ready = f'set -e; {script}; shift {len(words)}; exec "$@"'
    return [*begin, "sh", "-c", ready, "sh", *map(str, words), *back]
