# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model may call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Tool
    from .context import Workbench


def all_tools(bench: Workbench) -> list[Tool]:
    # Imported here, because whoever imports one module of this package runs this file first.
    from .files.edit_file import EditFile
    from .files.read_file import ReadFile
    from .run_command import RunCommand
    from .web.web_fetch import WebFetch

    return [RunCommand(bench), ReadFile(bench), EditFile(bench), WebFetch(bench)]
