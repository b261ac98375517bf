# SPDX-License-Identifier: GPL-3.0-or-later
"""Which project the person is in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..errors import SandboxError


def default_project(environ: Mapping[str, str]) -> str:
    """The git checkout around the current folder, else the current folder.

    Found by looking, not by asking git: that would run what the project's configuration names.
    """
    try:
        current = os.getcwd()
    except FileNotFoundError as error:
        raise SandboxError(
            "The current folder does not exist any more.", "Go to another one."
        ) from error
    home = os.path.realpath(environ.get("HOME") or "/")
    folder = current
    while folder not in ("/", home):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = os.path.dirname(folder)
    return current
