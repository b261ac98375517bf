# SPDX-License-Identifier: GPL-3.0-or-later
"""A user with a home folder, a project and commands to run: all real, and separate from the
machine's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from support import cli_server
from support.cli_server import Started
from support.timing import PATIENCE

import ollmsandbox.ui  # noqa: F401  names Gtk's version before a test imports it
from ollmsandbox import loop
from ollmsandbox.database.connection import Database
from ollmsandbox.paths import Paths, make_folder
from ollmsandbox.project.change import Report
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.write_file import write_file
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.plan.host import mount_table
from ollmsandbox.sandbox.probe.probe import Capabilities, cache_file, probe
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.profile.file import read_profile
from ollmsandbox.sandbox.profile.profile import DEFAULT_PROFILE, Profile
from ollmsandbox.sandbox.spec import Mode, RunSpec

ROOT = Path(__file__).parents[2]


_MAIN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ollmsandbox.__main__ import main
sys.exit(main())
"""


@dataclass
class Person:
    """A user with a home folder and a project in it."""

    home: Path
    project: Path
    environ: dict[str, str] = field(default_factory=dict)
    # Whether others found out already what the machine can do.
    knows_machine: bool = True
    # Whether there is a database, still empty, before the first command runs.
    has_database: bool = True

    @property
    def paths(self) -> Paths:
        return Paths.from_environ(self.environ)

    @property
    def playground(self) -> Path:
        return self.paths.playground

    def share_playground(self) -> None:
        """Let commands and what is outside see each other's files in the playground at once."""
        file = make_folder(self.paths.profiles) / "standard.yaml"
        file.write_text("playground: shared\n")
        make_folder(self.playground)

    def bubble(self, *, network: bool = False, profile: str = "standard", **options: Any) -> Bubble:
        options.setdefault("timeout", PATIENCE)
        self._copy_probe()
        project = os.fspath(options.pop("project", self.project))
        fields = ("working_dir", "timeout", "capture")
        given = {name: options.pop(name) for name in fields if name in options}
        if "\0" not in project:
            options.setdefault("keeper", Recorder(RunSpec(os.path.realpath(project)), self.paths))
        return Bubble(
            RunSpec(project, network=network, **given),
            profile=_profile(profile, self.paths),
            environ=self.environ,
            **options,
        )

    def run(self, command: str | Sequence[str], **options: Any) -> Result:
        """Run a command in the sandbox."""
        return loop.run(self.bubble(**options).exec(command))

    def record(self, command: str, mode: Mode = Mode.AUTO) -> Report:
        """Run a command in the sandbox; return what it changed."""
        keeper = Recorder(RunSpec(os.path.realpath(self.project), mode=mode), self.paths)
        self.run(command, keeper=keeper)
        assert keeper.report is not None
        return keeper.report

    def layers(self) -> list[str]:
        """Return the folders in which the next command sees the project, from the top."""
        return Recorder(RunSpec(os.path.realpath(self.project)), self.paths).roots()[0].lowers

    def run_outside(
        self, command: str | Sequence[str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run shell text or a program without the sandbox, to prove that an attack works, or as the
        user does."""
        argv = ["/bin/bash", "-c", command] if isinstance(command, str) else command
        given = {"cwd": self.project, "env": self.environ, "stdin": subprocess.DEVNULL, **options}
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            **{"check": False, **given},
        )

    def write(self, name: str, text: str, mode: Mode = Mode.AUTO) -> str:
        """Write a file of the project as a tool does; return the id of the run."""
        spec = RunSpec(str(self.project), mode=mode)
        return write_file(self.paths, spec, f"{self.project}/{name}", text.encode()).run_id

    def cli(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line as a process of its own; in a new Python process if it has special
        options. `around` are words that start it."""
        around: Sequence[str] = options.pop("around", ())
        needs_machine = arguments[:1] in (("run",), ("agent",), ("tour",))
        # What is around it may make another machine of this one.
        if needs_machine and "--help" not in arguments and not around:
            self._copy_probe()
        if options.keys() <= {"cwd", "input"} and not around:
            given = str(options.get("input", "")).encode()
            folder = os.fspath(options.get("cwd", self.project))
            code, *said = cli_server.server().run(arguments, folder, self.environ, given)
            return subprocess.CompletedProcess(arguments, code, *map(_text, said))
        options.setdefault("cwd", self.project)
        options.setdefault("env", self.environ)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*around, *cli_argv(*arguments)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            **options,
        )

    def cli_run(self, command: str, *options: str) -> dict[str, Any]:
        """Run a command with the command line; return what it says of the run."""
        done = self.cli("run", "--json", *options, "-c", command)
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def start(self, *arguments: str, **options: Any) -> Started:
        """Start the command line and let it run; `options` are those of subprocess.Popen."""
        self._copy_probe()
        return cli_server.server().start(arguments, str(self.project), self.environ, **options)

    def capabilities(self) -> Capabilities:
        """Return what the machine can do."""
        self._copy_probe()
        return probe(self.paths, self.environ)

    def _copy_probe(self) -> None:
        """Copy another user's cached probe: probing starts ten programs, as many as a whole test,
        and gives the same result for every ordinary home folder."""
        usual = {"HOME": str(self.home), "FLATPAK_ID": None, "XDG_CACHE_HOME": None}
        usual["PATH"] = os.environ.get("PATH")
        if not self.knows_machine or any(self.environ.get(n) != v for n, v in usual.items()):
            return
        self.knows_machine = False
        home = os.path.realpath(self.home)
        if any(mount.path.startswith(f"{home}/") for mount in mount_table()):
            return
        device = os.stat(home).st_dev
        file = cache_file(self.paths, self.environ)
        folder = self.paths.cache
        if device not in _answers:
            probe(self.paths, self.environ)
            _answers[device] = file.read_bytes() if file.exists() else b""
            read_profile(DEFAULT_PROFILE, self.paths.profiles, folder)
            made = [*folder.glob("seccomp-*.bpf"), *folder.glob("profile-*.json")]
            _made.update({one.name: one.read_bytes() for one in made})
        elif _answers[device] and not folder.exists():
            make_folder(folder)
            for name, content in (*_made.items(), (file.name, _answers[device])):
                (folder / name).write_bytes(content)
        if self.has_database and not self.paths.data.exists():
            make_folder(self.paths.data)
            self.paths.database.touch(0o600)
            self.paths.database.write_bytes(_new_database())


def _text(data: bytes) -> str:
    """Decode output as subprocess does."""
    text = data.decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# By file system: what was found out there.
_answers: dict[int, bytes] = {}


# What is made of the profile, for everybody the same: the program itself takes it from there, too.
_made: dict[str, bytes] = {}


@cache
def _new_database() -> bytes:
    """Return an empty database: to copy one takes a sixth of the time of creating it, which is a
    quarter of that of a whole command that changes something."""
    with tempfile.TemporaryDirectory() as folder:
        paths = make_person(Path(folder)).paths
        Database(paths).close()
        return paths.database.read_bytes()


def _profile(name: str, paths: Paths) -> Profile:
    own = paths.profiles
    return read_profile(name, own) if os.path.lexists(own.parent) else _built_in_profile(name)


@cache
def _built_in_profile(name: str) -> Profile:
    """Read a profile once for all users without profiles of their own."""
    return read_profile(name, Path("/nowhere"))


def cli_argv(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-c", _MAIN, str(ROOT), *arguments]


Start = Callable[..., subprocess.Popen[bytes]]


def make_person(folder: Path, environ: Mapping[str, str] | None = None) -> Person:
    home = folder / "home"
    project = home / "project"
    project.mkdir(parents=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "DBUS_")) and name not in ("HOME", "TMPDIR", "NO_COLOR")
    }
    return Person(home, project, {**kept, **(environ or {}), "HOME": str(home)})
