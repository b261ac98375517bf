# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool write_file: a whole file."""

from __future__ import annotations

from dataclasses import dataclass

from ..parameters import DeclaredTool, parameter
from .change import FileChange, check_file_name
from .edits import LARGEST, Document


@dataclass(frozen=True)
class WriteParameters:
    path: str = parameter(
        "The file to write: in the project (absolute, or relative to it) or below `playground/`.",
        longest=4096,
    )
    content: str = parameter("The whole content of the file.", longest=LARGEST)


class WriteFile(DeclaredTool[WriteParameters]):
    name = "write_file"
    declared = WriteParameters
    description = (
        "Write a whole text file of the project. A file that is not there is made, with the "
        "folders around it. To change a part of a file, use edit_file. Returns the difference. "
        "The user can look at every change and undo it."
    )

    def request(self, given: WriteParameters, call_id: str) -> FileChange:
        check_file_name(given.path)

        def new_text(document: Document) -> str:
            return document.with_text(given.content).text

        preview = (f"+{line}" for line in given.content.split("\n"))
        return FileChange(
            self._context, self.name, given.path, call_id, new_text, preview, is_whole=True
        )
