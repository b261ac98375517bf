# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox doctor`"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import textwrap
from contextlib import closing

from ... import __version__
from ...engine.attack import attack
from ...errors import OllmSandboxError
from ...paths import Paths
from ...sandbox.plan.folders import find_project
from ...sandbox.probe.probe import Capabilities, Finding, probe
from ...sandbox.probe.selftest import selftest
from ...sandbox.rootfs.packages import programs_in
from ...sandbox.rootfs.store import find_rootfs
from ..arguments import default_project
from ..streams import wants_colour


def doctor(given: argparse.Namespace) -> int:
    """Try everything out again, whatever was found before."""
    if given.attack:
        return _attack(as_json=given.json)
    paths = Paths.from_environ(os.environ)
    if given.repair:
        return _repair(paths, as_json=given.json)
    try:
        writable = [find_project(default_project(os.environ), paths)]
    except OllmSandboxError:
        writable = []  # it no longer exists, or cannot be a project, such as /
    found = probe(paths, os.environ, fresh=True, writable=writable)
    findings = list(found.findings)
    if found.can_wrap:
        findings += selftest(found, os.environ)
        # Alpine needs the sandbox.
        findings.append(_alpine(paths))
    ok = all(finding.ok for finding in findings if finding.needed)
    if given.json:
        print(json.dumps(_document(found, findings, ok), indent=2))
    else:
        _print(findings, ok)
    return 0 if ok else 1


def _attack(*, as_json: bool) -> int:
    results = attack(os.environ)
    through = [result for result in results if not result.held]
    if as_json:
        print(json.dumps([result._asdict() for result in results], indent=2))
        return 1 if through else 0
    area = ""
    for result in results:
        if result.area != area:
            area = result.area
            print(f"\n{area}")
        mark, colour = ("held", "32") if result.held else ("NOT HELD", "1;31")
        detail = f" ({result.detail})" if result.detail else ""
        print(f"  {_marked(mark, colour)} {result.title}{detail}")
    print()
    if through:
        print(f"{len(through)} of {len(results)} attacks were not held off. Please report it.")
        return 1
    print(f"The sandbox held against all {len(results)} attacks.")
    return 0


def _repair(paths: Paths, *, as_json: bool) -> int:
    """Make the index of runs again."""
    from ...project.projects import ProjectManager
    from ...project.recover import repair_index

    with closing(ProjectManager(paths)) as manager:
        done = repair_index(manager, always=True)
        # What had to be done to open the database comes first.
        done = [*manager.store.notices, *done]
    if as_json:
        print(json.dumps({"done": done}, indent=2))
    else:
        print("\n".join(done or ["No earlier run is missing from the records."]))
    return 0


def _alpine(paths: Paths) -> Finding:
    name, title = "alpine", "Alpine"
    cause = "Not installed. Commands use this computer's own programs."
    remedy = "To run commands in Alpine: ollmsandbox rootfs install"
    try:
        if installed := find_rootfs(paths, os.environ):
            detail = f"{installed.version}: {', '.join(programs_in(installed))}"
            return Finding(name, title, ok=True, needed=False, detail=detail)
    except OllmSandboxError as error:
        cause, remedy = error.message, error.remedy
    return Finding(name, title, ok=False, needed=False, cause=cause, remedy=remedy)


def _document(found: Capabilities, findings: list[Finding], ok: bool) -> dict[str, object]:
    return {
        "version": __version__,
        "kernel": platform.release(),
        "sandboxed": ok,
        "surroundings": found.surroundings,
        "bwrap": found.bwrap,
        "overlay": found.overlay.value,
        "checks": [finding._asdict() for finding in findings],
    }


def _print(findings: list[Finding], ok: bool) -> None:
    print(f"OLLM Sandbox {__version__}, {_system()}, kernel {platform.release()}\n")
    width = max(len(finding.title) for finding in findings)
    for finding in findings:
        if finding.ok:
            mark, colour = "ok", "32"
        elif finding.needed:
            mark, colour = "MISSING", "1;31"
        else:
            mark, colour = "without", "33"
        print(f"  {_marked(mark, colour)} {finding.title:<{width}}  {finding.detail}".rstrip())
        for text in filter(None, (finding.cause, finding.remedy)):
            print(textwrap.indent(textwrap.fill(text, 78, break_long_words=False), " " * 11))
    print()
    if ok:
        print("Commands are sandboxed here.")
    else:
        print("Commands cannot be sandboxed here. Fix what is MISSING first.")


def _marked(mark: str, colour: str) -> str:
    shown = f"{mark:<8}"
    return f"\033[{colour}m{shown}\033[0m" if wants_colour(sys.stdout) else shown


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
