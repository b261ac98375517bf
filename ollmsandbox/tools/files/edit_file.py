# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool edit_file: an exact replacement in a file, or a whole new file.

It is a run with one change, with the same records, backups, review and undo as a command.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError
from ...permission.request import PermissionRequest, Verdict
from ...project.changes.change import Report
from ...sandbox.probe.probe import Capabilities
from ...text.ansi import escape_line, harmless
from .. import questions
from ..base import Outcome, RequestBase, Tool, ToolError, Watcher
from ..context import ToolContext
from ..model_text import changes_text, together
from ..parameters import Parameters, parameter
from ..roots import ClosedFolder, approve_root, closed_folder, root_question
from .edits import Document, difference, replace_text
from .sandboxed import SandboxedFile, ScriptReply

NAME = "edit_file"

_LARGEST = 4 << 20
_MEANING = N_(
    "This is not sandboxed: the file is changed directly. Changes in the project are "
    "recorded, and you can undo them."
)

# Prints the file, then reads the size of the new content and the content. It puts the new file in
# place by a rename, so that there is never half a file.
_SCRIPT = """\
f=$1
if [ -h "$f" ]; then
    f=$(readlink -f "$f" && printf x) || { printf 'nowhere\\n'; exit; }
    f=${f%?x}
fi
folder=${f%/*}
[ -n "$folder" ] || folder=/
if [ -d "$f" ]; then printf 'folder\\n'; exit
elif [ -e "$f" ]; then
    if [ ! -f "$f" ]; then printf 'special\\n'; exit; fi
    if [ ! -r "$f" ] || [ ! -w "$f" ]; then printf 'closed\\n'; exit; fi
    size=$(stat -c %s "$f") && mode=$(stat -c %a "$f") || exit 1
    if [ "$size" -gt "$2" ]; then printf 'large %s\\n' "$size"; exit; fi
    printf 'file %s\\n' "$size"
    cat "$f" || exit 1
else
    mode=
    printf 'missing\\n'
fi
IFS= read -r size || exit 0
mkdir -p "$folder" || exit 1
new=$folder/.ollmsandbox-$3
set -C
if ! cat >"$new"; then rm -f "$new"; exit 1; fi
if [ "$(stat -c %s "$new")" != "$size" ]; then rm -f "$new"; exit 1; fi
if [ -n "$mode" ] && ! chmod "$mode" "$new"; then rm -f "$new"; exit 1; fi
if ! mv -f "$new" "$f"; then rm -f "$new"; exit 1; fi
"""


@dataclass(frozen=True)
class EditParameters:
    path: str = parameter(
        "The file to change: in the project (absolute, or relative to it) or below `playground/`.",
        longest=4096,
    )
    old_text: str = parameter(
        "The text to replace, exactly as it is in the file. It has to occur once.",
        default="",
        longest=_LARGEST,
    )
    new_text: str = parameter(
        "What to put in the place of `old_text`; empty to remove it.",
        default="",
        longest=_LARGEST,
    )
    replace_all: bool = parameter("Replace every occurrence of `old_text`.", default=False)
    content: str | None = parameter(
        "The whole new content of the file, instead of `old_text` and `new_text`. A file that is "
        "not there is made, with the folders around it.",
        may_be_absent=True,
        longest=_LARGEST,
    )


class EditFile(Tool):
    name = NAME
    description = (
        "Change a text file of the project, or make one. Either replace `old_text`, which must "
        "match the file exactly and occur once, by `new_text`; or give the whole `content`. "
        "Returns the difference. The user can look at every change and undo it."
    )

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._parameters = Parameters(NAME, EditParameters)

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters.schema()

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> EditRequest:
        given = self._parameters.read(arguments)
        if not given.path.strip():
            raise ToolError(N_("`path` is empty."), N_("Specify a file."))
        if os.path.basename(given.path) in ("", ".", ".."):
            raise ToolError(
                N_("{file} is a folder."),
                N_("Specify a file in the project."),
                file=escape_line(given.path),
            )
        if given.content and (given.old_text or given.new_text):
            raise ToolError(
                N_("Both `content` and a replacement are given."),
                N_("Use either `content`, or `old_text` and `new_text`."),
            )
        if given.content is None and not given.old_text and not given.new_text:
            raise ToolError(
                N_("The call changes nothing."), N_("Give `old_text` and `new_text`, or `content`.")
            )
        if given.new_text and not given.old_text:
            raise ToolError(
                N_("`old_text` is missing, so there is nothing to replace."),
                N_("To write a whole file, use `content`."),
            )
        if given.old_text and given.old_text == given.new_text:
            raise ToolError(N_("`old_text` and `new_text` are the same: nothing would change."))
        return EditRequest(self._context, given, self._context.folder(), call_id)


class EditRequest(RequestBase):
    def __init__(
        self, context: ToolContext, given: EditParameters, project: str, call_id: str
    ) -> None:
        self._context = context
        self._given = given
        self._project = project
        self._call_id = call_id
        # The text of the file; None if there is no file, or it is not text.
        self._old: str | None = None
        self._new = ""
        self._verdict: Verdict | None = None
        # Whether the change goes to the file itself, and not to a layer above it.
        self._is_unrecorded = False
        # For the history.
        self._command = f"{NAME} {given.path}"

    def describe(self) -> str:
        return escape_line(self._given.path)

    async def execute(self, watcher: Watcher) -> Outcome:
        context, given = self._context, self._given
        file: SandboxedFile | None = None
        try:
            found = await asyncio.to_thread(context.capabilities)
            if found.can_wrap:
                await context.prepare_rootfs(self._project, watcher)
            file = self._file(found)
            closed = await asyncio.to_thread(self._closed_folder, file) if found.can_wrap else None
            if closed is not None:
                question = root_question(context, closed, self._command, self._call_id)
                self._verdict = await questions.ask(context, watcher, self, question)
                if not self._verdict.allowed:
                    text = questions.denial(self._verdict, f"Writing to {closed.path}")
                    return Outcome.failed(text, verdict=self._verdict)
                await asyncio.to_thread(approve_root, context, self._project, closed.path)
                file = self._file(found)
            self._is_unrecorded = file.is_in_playground or not found.can_wrap
            if not file.may_be_written():
                raise ToolError(
                    N_("{name} is not in the project."),
                    N_("Files can be changed in the project and below `playground/`."),
                    name=escape_line(given.path),
                )
            if context.ask_every_command or not found.can_wrap:
                self._verdict = await questions.ask(
                    context, watcher, self, self._question(file.path, found)
                )
                if not self._verdict.allowed:
                    text = questions.denial(self._verdict, "The change")
                    return Outcome.failed(text, verdict=self._verdict)
            # A random name: nobody can have put a link there.
            arguments = [str(_LARGEST), secrets.token_hex(8)]
            await file.change(_SCRIPT, arguments, _LARGEST + 1024, self._script_input)
            return self._outcome(file.report)
        except asyncio.CancelledError:
            if file is not None and file.report is not None:
                self.partial = self._outcome(file.report)
            raise
        except (OllmSandboxError, OSError) as error:
            report = file.report if file is not None else None
            return Outcome.failed(error, report=report, verdict=self._verdict)

    def _file(self, found: Capabilities) -> SandboxedFile:
        return SandboxedFile(
            self._context,
            self._project,
            self._given.path,
            sandboxed=found.can_wrap,
            command=self._command,
            call_id=self._call_id,
        )

    def _closed_folder(self, file: SandboxedFile) -> ClosedFolder | None:
        """Return the folder outside that the file is in, through a link of the project."""
        folder = os.path.dirname(os.path.normpath(file.path))
        return closed_folder(self._context, self._project, folder)

    async def _script_input(self, reply: ScriptReply) -> bytes:
        return await asyncio.to_thread(self._new_content, reply)

    def _new_content(self, reply: ScriptReply) -> bytes:
        """Return the size and the new content of the file; b"" if it stays as it is."""
        given, name = self._given, escape_line(self._given.path)
        match reply.words:
            case ["file", size]:
                document = self._document(reply.rest[: int(size)])
                self._old = document.text if document else None
            case ["missing"] if given.old_text:
                raise ToolError(
                    N_("There is no file {name}."),
                    N_("To create it, use `content`."),
                    name=name,
                )
            case ["missing"]:
                document = None
            case ["folder"]:
                raise ToolError(N_("{name} is a folder."), name=name)
            case ["large", size]:
                raise ToolError(
                    N_("{name} is too large to edit: {size:,} bytes."),
                    name=name,
                    size=int(size),
                )
            case ["closed"]:
                raise ToolError(N_("Cannot write {name}: permission denied."), name=name)
            case ["nowhere"]:
                raise ToolError(N_("{name} is a dangling link."), name=name)
            case _:
                raise ToolError(
                    N_("{name} is a pipe, a socket or a device, not a file."), name=name
                )
        document = document or Document("")
        if given.old_text:
            old, new = (document.with_text(t).text for t in (given.old_text, given.new_text))
            self._new = replace_text(document.text, old, new, everywhere=given.replace_all)
        else:
            self._new = document.with_text(given.content or "").text
        if self._old == self._new:
            return b""
        data = document.with_text(self._new).encode()
        return f"{len(data)}\n".encode() + data

    def _document(self, data: bytes) -> Document | None:
        try:
            return Document.decode(data)
        except UnicodeDecodeError as error:
            if not self._given.old_text:
                return None
            raise ToolError(
                N_("{name} is not UTF-8 text."),
                N_("Change it with a command, or write the whole file with `content`."),
                name=escape_line(self._given.path),
            ) from error

    def _outcome(self, report: Report | None) -> Outcome:
        name = escape_line(self._given.path)
        if self._old == self._new:
            text = f"{name} already has this content."
            return Outcome(text, ok=True, verdict=self._verdict)
        changes = changes_text(report, self._project)
        if not changes and not self._is_unrecorded:
            raise ToolError(
                N_("{name} leads out of the project, so the change was dropped."),
                name=name,
            )
        changes = changes or f"{name} was written. The change is not recorded."
        diff = harmless(difference(self._old or "", self._new))
        return Outcome(together(changes, diff), ok=True, report=report, verdict=self._verdict)

    def _question(self, path: str, found: Capabilities) -> PermissionRequest:
        given, is_sandboxed = self._given, found.can_wrap
        old = [f"-{line}" for line in given.old_text.split("\n")] if given.old_text else []
        new = given.new_text if given.old_text else given.content or ""
        lines = [path, *old, *(f"+{line}" for line in new.split("\n"))]
        return questions.make_request(
            self._context,
            NAME,
            N_("Change a file?") if is_sandboxed else N_("Change a file without a sandbox?"),
            "\n".join(lines),
            target=os.path.realpath(path) if is_sandboxed else "",
            sandboxed=is_sandboxed,
            facts=[questions.writes_fact(self._context.shown(path))],
            sees=() if is_sandboxed else questions.without_sandbox(found, _MEANING),
            call_id=self._call_id,
        )
