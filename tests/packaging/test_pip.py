# SPDX-License-Identifier: GPL-3.0-or-later
"""`pip install .` asks for a PyGObject that can be built on this system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ordinary

SETUP = Path(__file__).resolve().parents[2] / "setup.py"
# Not every Python has setuptools, which pip fetches for itself. This much of it is enough.
SETUPTOOLS = {
    "setuptools/__init__.py": """\
def setup(cmdclass):
    command = cmdclass["egg_info"]()
    command.run()
    print(*command.distribution.metadata.install_requires, sep=chr(10))
""",
    "setuptools/command/__init__.py": "",
    "setuptools/command/build_py.py": "class build_py:\n    pass\n",
    "setuptools/command/egg_info.py": """\
from types import SimpleNamespace


class egg_info:
    def __init__(self):
        wanted = ["PyGObject>=3.50", "pyyaml>=6.0"]
        metadata = SimpleNamespace(install_requires=wanted)
        self.distribution = SimpleNamespace(install_requires=wanted, metadata=metadata)

    def run(self):
        assert self.distribution.install_requires == self.distribution.metadata.install_requires
""",
}


def required(folder: Path, libraries: tuple[str, ...]) -> list[str]:
    """Return the requirements if pkg-config knows these libraries."""
    for name, text in SETUPTOOLS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    programs = folder / "bin"
    programs.mkdir()
    tool = programs / "pkg-config"
    tool.write_text(
        f"#!/bin/sh\ncase ' {' '.join(libraries)} ' in *\" $2 \"*) ;; *) exit 1 ;; esac\n"
    )
    tool.chmod(0o755)
    found = subprocess.run(
        [sys.executable, "-B", SETUP],
        env={**os.environ, "PYTHONPATH": str(folder), "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
        text=True,
    )
    return found.stdout.split()


@pytest.mark.parametrize(
    ("libraries", "limit"),
    [
        (("gobject-introspection-1.0",), ",<3.52"),
        (("gobject-introspection-1.0", "girepository-2.0"), ""),
        # Neither can be built. The newest says best what is missing.
        ((), ""),
    ],
    ids=["older", "newer", "none"],
)
def test_the_version_can_be_built(tmp_path: Path, libraries: tuple[str, ...], limit: str) -> None:
    assert required(tmp_path, libraries) == [f"PyGObject>=3.50{limit}", "pyyaml>=6.0"]
