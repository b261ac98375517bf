# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a project's notes for agents: AGENTS.md, else CLAUDE.md, in each of some folders.

Whoever wrote the project wrote them: links that lead out of the project are not followed, and
nothing but a regular file is opened. They are read as commands see them, with pending changes.
Without a sandbox, commands can read everything anyway.
"""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ... import N_
from ...errors import OllmSandboxError
from ...project.layer import PendingLayer
from ...text.ansi import harmless
from ..context import ToolContext
from .sandboxed import SandboxedFile

NOTE_FILES = ("AGENTS.md", "CLAUDE.md")
# Of each file.
MOST_BYTES = 16 << 10

# Prints for each file: the number of its folder, the number of its name, its size, the number of
# bytes that follow, and these.
_SCRIPT = """\
cd "$1" && root=$(pwd -P) || exit 1
most=$2
shift 2
printf 'notes\\n'
number=0
for folder do
    which=0
    for name in AGENTS.md CLAUDE.md; do
        file=$folder/$name
        if [ -f "$file" ] && [ -r "$file" ] && real=$(readlink -f "$file"); then
            case $real in
                "$root"/*)
                    size=$(stat -Lc %s "$file") || exit 1
                    [ "$size" -lt "$most" ] && count=$size || count=$most
                    printf '%s %s %s %s\\n' "$number" "$which" "$size" "$count"
                    head -c "$count" "$file"
                    break ;;
            esac
        fi
        which=$((which + 1))
    done
    number=$((number + 1))
done
"""
# Characters that a reader does not see and a model does, and line ends besides the usual one.
_HIDDEN = ("Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# Words that some servers take for the end of a message or the beginning of another one, wherever
# they occur.
_TOKEN = re.compile(
    r"<(?=[|\uff5c])|<(?=/?(?:s|bos|eos|start_of_turn|end_of_turn)>)|\[(?=/?INST\])"
)


@dataclass(frozen=True)
class ProjectNote:
    # Relative to the project.
    path: str
    text: str
    size: int


async def read_notes(context: ToolContext, folders: Sequence[str]) -> list[ProjectNote]:
    """Return the notes in these folders of the project, in their order. "." is the project."""
    project = await asyncio.to_thread(context.folder)
    if not await asyncio.to_thread(_may_have_some, context, project, folders):
        return []
    executor = await asyncio.to_thread(context.executor)
    file = SandboxedFile(context, executor, context.spec(project), ".")
    limit = len(folders) * (MOST_BYTES + 100) + 100
    reply = await file.read(_SCRIPT, [str(MOST_BYTES), *folders], limit)
    return list(_parse(folders, reply.rest))


def _may_have_some(context: ToolContext, project: str, folders: Sequence[str]) -> bool:
    """Look before a sandbox is started; pending changes are seen only in one."""
    return bool(PendingLayer(context.paths, project).runs()) or any(
        os.path.lexists(f"{project}/{folder}/{name}") for folder in folders for name in NOTE_FILES
    )


def _parse(folders: Sequence[str], data: bytes) -> Iterator[ProjectNote]:
    while data:
        head, _newline, rest = data.partition(b"\n")
        try:
            number, which, size, count = map(int, head.split())
        except ValueError as error:
            raise OllmSandboxError(N_("The project's notes could not be read.")) from error
        note = _note(folders[number], NOTE_FILES[which], rest[:count], size)
        if note is not None:
            yield note
        data = rest[count:]


def _note(folder: str, name: str, data: bytes, size: int) -> ProjectNote | None:
    """Return the note without anything a reader would not see; None if it is empty or not text."""
    if b"\0" in data:
        return None
    text = harmless(data.decode("utf-8", "replace"))
    text = "".join(c for c in text if unicodedata.category(c) not in _HIDDEN).strip()
    text = _TOKEN.sub(r"\g<0> ", text)
    if not text:
        return None
    return ProjectNote(os.path.normpath(os.path.join(folder, name)), text, size)
