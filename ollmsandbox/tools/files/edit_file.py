# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool edit_file: exact replacements in a file, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ... import N_
from ..base import ToolError
from ..parameters import DeclaredTool, parameter
from .change import FileChange, check_file_name
from .edits import LARGEST, Edit, apply_edits, check_edits


@dataclass(frozen=True)
class EditParameters:
    path: str = parameter(
        "The file to change: in the project (absolute, or relative to it) or below `playground/`.",
        longest=4096,
    )
    old_text: str = parameter(
        "The text to replace, exactly as it is in the file, without line numbers. It has to occur "
        "once.",
        default="",
        longest=LARGEST,
    )
    new_text: str = parameter(
        "What to put in the place of `old_text`; empty to remove it.",
        default="",
        longest=LARGEST,
    )
    replace_all: bool = parameter("Replace every occurrence of `old_text`.", default=False)
    edits: tuple[Edit, ...] = parameter(
        "Several replacements, instead of `old_text` and `new_text`. Each one is made in what the "
        "one before it left. If one of them fails, nothing is changed.",
        default=(),
    )


class EditFile(DeclaredTool[EditParameters]):
    name = "edit_file"
    declared = EditParameters
    description = (
        "Change a text file of the project: replace `old_text`, which must match the file exactly "
        "and occur once, by `new_text`; for several replacements in one file, give `edits`. To "
        "make a file, or to write all of it, use write_file. Returns the difference. The user can "
        "look at every change and undo it."
    )

    def request(self, given: EditParameters, call_id: str) -> FileChange:
        check_file_name(given.path)
        edits = given.edits
        if given.old_text or given.new_text:
            if edits:
                raise ToolError(
                    N_("Both `edits` and a single replacement are given."),
                    N_("Use either `edits`, or `old_text` and `new_text`."),
                )
            edits = (Edit(given.old_text, given.new_text, given.replace_all),)
        if not edits:
            raise ToolError(
                N_("The call changes nothing."), N_("Give `old_text` and `new_text`, or `edits`.")
            )
        check_edits(edits)
        preview = (
            f"{sign}{line}"
            for edit in edits
            for sign, text in (("-", edit.old_text), ("+", edit.new_text))
            for line in text.split("\n")
        )
        new_text = partial(apply_edits, edits=edits)
        return FileChange(
            self._context, self.name, given.path, call_id, new_text, preview, is_whole=False
        )
