# SPDX-License-Identifier: GPL-3.0-or-later
"""Fake bwrap programs, and what the probe finds with them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.person import Person

from ollmsandbox.sandbox.probe.probe import Capabilities, probe

REAL = shutil.which("bwrap", path=os.environ.get("PATH", os.defpath)) or "/usr/bin/bwrap"
VERSION = 'case "$1" in --version) echo "bubblewrap 0.8.0"; exit 0;; esac\n'


def first_in_path(person: Person) -> Path:
    """Put a new folder first into the user's PATH."""
    folder = person.home / "programs"
    folder.mkdir()
    person.environ["PATH"] = f"{folder}:{person.environ.get('PATH', os.defpath)}"
    return folder


def fake(folder: Path, script: str) -> Path:
    """Write a fake bwrap."""
    file = folder / "bwrap"
    new = folder / "bwrap.new"
    new.write_text(f"#!/bin/sh\n{script}")
    new.chmod(0o755)
    new.rename(file)
    return file


def look(person: Person) -> Capabilities:
    return probe(person.paths, person.environ)
