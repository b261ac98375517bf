# SPDX-License-Identifier: GPL-3.0-or-later
"""A person with a home, a project and commands to run: all real, nothing of the machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ollmsandbox import loop
from ollmsandbox.paths import Paths
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox import profile_file
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.result import Result

ROOT = Path(__file__).parent.parent

_MAIN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ollmsandbox.__main__ import main
sys.exit(main())
"""


@dataclass
class Person:
    """Somebody with a home folder of their own and a project in it."""

    home: Path
    project: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> Paths:
        return Paths.from_environ(self.environ)

    @property
    def playground(self) -> Path:
        return self.paths.playground

    def bubble(self, *, network: bool = False, profile: str = "standard", **options: Any) -> Bubble:
        options.setdefault("timeout", 60)
        project = options.pop("project", self.project)
        if "\0" not in str(project):
            options.setdefault("keeper", Recorder(os.path.realpath(project), self.paths))
        return Bubble(
            project,
            network,
            profile=profile_file.load(profile, self.paths.profiles),
            environ=self.environ,
            **options,
        )

    def run(self, command: str | Sequence[str], **options: Any) -> Result:
        """In the sandbox."""
        return loop.run(self.bubble(**options).exec(command))

    def run_outside(self, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The same without the wall, to see that an attack is one."""
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            **options,
        )

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command line, as a process of its own."""
        options.setdefault("cwd", self.project)
        options.setdefault("env", self.environ)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            cli_argv(*arguments),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
            **options,
        )


def cli_argv(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-c", _MAIN, str(ROOT), *arguments]


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return make_person(tmp_path)


def make_person(folder: Path, environ: Mapping[str, str] | None = None) -> Person:
    home = folder / "home"
    project = home / "project"
    project.mkdir(parents=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "DBUS_")) and name not in ("HOME", "TMPDIR")
    }
    return Person(home, project, {**kept, **(environ or {}), "HOME": str(home)})


_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    # Everything a test may need is there in CI; one that is skipped there proves nothing.
    if _skipped and os.environ.get("CI") and not hasattr(session.config, "workerinput"):
        print(f"\nskipped although this is CI: {', '.join(_skipped)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield
