# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a user's own profiles."""

from __future__ import annotations

from pathlib import Path

from ollmsandbox.sandbox.profile.file import read_profile
from ollmsandbox.sandbox.profile.profile import Profile


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str, name: str = "mine") -> Profile:
    write(folder, name, text)
    return read_profile(name, folder)
