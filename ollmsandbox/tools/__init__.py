# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools that a model can call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Tool
    from .context import ToolContext


def all_tools(context: ToolContext) -> list[Tool]:
    # Imported here, because whoever imports one module of this package runs this file first.
    from .ask import Ask
    from .files.edit_file import EditFile
    from .files.read_file import ReadFile
    from .files.search import Search
    from .files.write_file import WriteFile
    from .run_command import RunCommand
    from .todo import TodoTool
    from .web.web_fetch import WebFetch

    return [
        RunCommand(context),
        ReadFile(context),
        Search(context),
        EditFile(context),
        WriteFile(context),
        WebFetch(context),
        TodoTool(context),
        Ask(context),
    ]
