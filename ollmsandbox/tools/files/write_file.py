# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool write_file: a whole file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..context import ToolContext
from ..parameters import DeclaredTool, parameter
from .change import FileChange, check_file_name
from .edits import LARGEST, Document

NAME = "write_file"


@dataclass(frozen=True)
class WriteParameters:
    path: str = parameter(
        "The file to write: in the project (absolute, or relative to it) or below `playground/`.",
        longest=4096,
    )
    content: str = parameter("The whole content of the file.", longest=LARGEST)


class WriteFile(DeclaredTool[WriteParameters]):
    name = NAME
    declared = WriteParameters
    description = (
        "Write a whole text file of the project. A file that is not there is made, with the "
        "folders around it. To change a part of a file, use edit_file. Returns the difference. "
        "The user can look at every change and undo it."
    )

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> WriteRequest:
        given = self._parameters.read(arguments)
        check_file_name(given.path)
        return WriteRequest(self._context, given, call_id)


class WriteRequest(FileChange):
    is_whole = True

    def __init__(self, context: ToolContext, given: WriteParameters, call_id: str) -> None:
        super().__init__(context, NAME, given.path, call_id)
        self._content = given.content

    def new_text(self, document: Document) -> str:
        return document.with_text(self._content).text

    def preview(self) -> list[str]:
        return [f"+{line}" for line in self._content.split("\n")]
