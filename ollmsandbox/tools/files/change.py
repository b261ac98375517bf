# SPDX-License-Identifier: GPL-3.0-or-later
"""A call that changes one file.

It is a run with one change, with the same records, backups, review and undo as a command.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError
from ...paths import near
from ...project.change import Report
from ...text.ansi import escape_line, harmless
from .. import questions
from ..base import Outcome, RequestBase, ToolError, Watcher
from ..context import ToolContext
from ..model_text import changes_text, together
from ..roots import ClosedFolder, closed_folder
from .edits import LARGEST, Document, difference
from .sandboxed import SPECIAL_FILE, SandboxedFile, ScriptReply

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


def check_file_name(path: str) -> None:
    """Raise ToolError if the path cannot be a file's."""
    if not path.strip():
        raise ToolError(N_("`path` is empty."), N_("Specify a file."))
    if os.path.basename(path) in ("", ".", ".."):
        raise ToolError(
            N_("{file} is a folder."),
            N_("Specify a file in the project."),
            file=escape_line(path),
        )


@dataclass
class FileChange(RequestBase):
    _context: ToolContext
    _tool: str
    _path: str
    _call_id: str
    # Returns the new text of the file, or raises ToolError.
    new_text: Callable[[Document], str]
    # Lines that show the change to the user, before the file is read.
    preview: Iterable[str]
    # Whether the file may be missing, or not be text: nothing of it is kept.
    is_whole: bool

    def __post_init__(self) -> None:
        self._project = self._context.folder()
        # For the history.
        self._command = f"{self._tool} {near(self._path, self._project)}"
        # The text of the file; None if there is no file, or it is not text.
        self._old: str | None = None
        self._new = ""
        # Whether the change goes to the file itself, and not to a layer above it.
        self._is_unrecorded = False

    def describe(self) -> str:
        return escape_line(near(self._path, self._project))

    async def perform(self, watcher: Watcher) -> Outcome:
        context = self._context
        file: SandboxedFile | None = None
        try:
            executor = await context.ready_executor(self._project, watcher)
            spec = context.spec(self._project)
            spec = spec._replace(command=self._command, call_id=self._call_id)
            file = SandboxedFile(context, executor, spec, self._path)
            closed = None
            if executor.is_recorded:
                closed = await asyncio.to_thread(self._closed_folder, file)
            if closed is not None:
                await questions.ask_about_folder(
                    context, watcher, self, closed, self._command, self._call_id
                )
                file = SandboxedFile(context, executor, spec, self._path)
            self._is_unrecorded = file.is_in_playground or not executor.is_recorded
            if not file.may_be_written():
                raise ToolError(
                    N_("{name} is not in the project."),
                    N_("Files can be changed in the project and below `playground/`."),
                    name=escape_line(self._path),
                )
            if context.ask_every_command or not executor.is_recorded:
                question = questions.change_question(
                    context, executor, file.path, [*self.preview], self._call_id
                )
                await questions.ask_or_end(context, watcher, self, question, "The change")
            # A random name: nobody can have put a link there.
            arguments = [str(LARGEST), secrets.token_hex(8)]
            await file.change(_SCRIPT, arguments, LARGEST + 1024, self._new_content)
            return self._outcome(file.report)
        except asyncio.CancelledError:
            if file is not None and file.report is not None:
                self.partial = self._outcome(file.report)
            raise
        except (OllmSandboxError, OSError) as error:
            report = file.report if file is not None else None
            return Outcome.failed(error, report=report, verdict=self.verdict)

    def _closed_folder(self, file: SandboxedFile) -> ClosedFolder | None:
        """Return the folder outside that the file is in, through a link of the project."""
        folder = os.path.dirname(os.path.normpath(file.path))
        return closed_folder(self._context, self._project, folder)

    def _new_content(self, reply: ScriptReply) -> bytes:
        """Return the size and the new content of the file; b"" if it stays as it is."""
        name = escape_line(self._path)
        match reply.words:
            case ["file", size]:
                document = self._document(reply.rest[: int(size)])
                self._old = document.text if document else None
            case ["missing"] if not self.is_whole:
                raise ToolError(
                    N_("There is no file {name}."),
                    N_("To create it, use write_file."),
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
                raise ToolError(SPECIAL_FILE, name=name)
        document = document or Document("")
        self._new = self.new_text(document)
        if self._old == self._new:
            return b""
        data = document.with_text(self._new).encode()
        return f"{len(data)}\n".encode() + data

    def _document(self, data: bytes) -> Document | None:
        try:
            return Document.decode(data)
        except UnicodeDecodeError as error:
            if self.is_whole:
                return None
            raise ToolError(
                N_("{name} is not UTF-8 text."),
                N_("Change it with a command, or write the whole file with write_file."),
                name=escape_line(self._path),
            ) from error

    def _outcome(self, report: Report | None) -> Outcome:
        name = escape_line(self._path)
        if self._old == self._new:
            text = f"{name} already has this content."
            return Outcome(text, ok=True, verdict=self.verdict)
        changes = changes_text(report, self._project)
        if not changes and not self._is_unrecorded:
            raise ToolError(
                N_("{name} leads out of the project, so the change was dropped."),
                name=name,
            )
        changes = changes or f"{name} was written. The change is not recorded."
        diff = harmless(difference(self._old or "", self._new))
        return Outcome(together(changes, diff), ok=True, report=report, verdict=self.verdict)
