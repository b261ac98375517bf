# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads names of files, with their sources: `risky_files.yaml` has those that can run code outside
the sandbox, by when they do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ..change import Flag

# As much of YAML as these files have: every command needs them, and PyYAML takes 20 ms to load.
_SECTION = re.compile(r"(?m)^(\w+):\n((?:(?: .*)?\n)*)")
_ENTRY = re.compile(r"(?m)^  (\S+): >\n((?:    .*\n)+)")


class RiskyFiles(NamedTuple):
    patterns: str
    source: str


def read_names(file: Path) -> dict[str, tuple[RiskyFiles, ...]]:
    """Return the sections of a file."""
    return {
        section: tuple(RiskyFiles(names, source) for source, names in _ENTRY.findall(body))
        for section, body in _SECTION.findall(file.read_text(encoding="utf-8"))
    }


KINDS = tuple(
    (Flag[name.upper()], files)
    for name, files in read_names(Path(__file__).with_suffix(".yaml")).items()
)
