# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool search: finds text in the files of the project, or files by their names."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...paths import is_inside
from ...text.ansi import escape_line, harmless
from ..base import Outcome, RequestBase, ToolError, Watcher
from ..context import ToolContext
from ..parameters import DeclaredTool, parameter
from . import searcher
from .sandboxed import SPECIAL_FILE, SandboxedFile, ScriptReply

_LIMIT = 128 << 10
_MOST_SHOWN = 200
_MOST_CHARACTERS = 20_000
_LONGEST_LINE = 300

# Without a sandbox, only the system's own programs: the project may have put others on the PATH.
_SYSTEM_PROGRAMS = "PATH=/usr/bin:/bin:/app/bin:/run/current-system/sw/bin\n"
# Prints one word, then what ripgrep or our own program finds. Neither follows links.
_SCRIPT = """\
pattern=$2 glob=$3 options=$4 most=$5 python=$6 code=$7
if [ -d "$1" ]; then cd "$1" || exit 1; target=. kind=folder
elif [ ! -e "$1" ]; then printf 'missing\\n'; exit
elif [ -f "$1" ]; then cd "${1%/*}/" || exit 1; target=${1##*/} kind=file
else printf 'special\\n'; exit
fi
if command -v rg >/dev/null; then
    set -- --no-config --no-require-git --hidden --no-messages --color never --sort path
    set -- "$@" --glob '!.git'
    [ -z "$glob" ] || set -- "$@" --glob "$glob"
    case $options in *i*) set -- "$@" --ignore-case ;; esac
    case $options in *F*) set -- "$@" --fixed-strings ;; esac
    if [ -z "$pattern" ]; then
        printf 'found %s\\n' $kind
        rg "$@" --null --files -- "$target" | head -c "$most"
        exit 0
    fi
    printf '' | rg "$@" --quiet -e "$pattern" - || [ "$?" -eq 1 ] || exit 2
    printf 'found %s\\n' $kind
    rg "$@" --null --line-number --with-filename --no-heading --max-count 50 \\
        --max-columns 400 --max-columns-preview --max-filesize 16M -e "$pattern" -- "$target" |
        head -c "$most"
    exit 0
fi
[ -n "$python" ] || python=$(command -v python3) || { printf 'nothing\\n'; exit; }
printf 'found %s\\n' $kind
exec "$python" -I -c "$code" "$target" "$pattern" "$glob" "$options" "$most"
"""


@dataclass(frozen=True)
class SearchParameters:
    pattern: str = parameter(
        "The regular expression to look for in each line. Without it, the files that `glob` names "
        "are listed.",
        default="",
        longest=4096,
    )
    path: str = parameter(
        "The folder or file to search: absolute, or relative to the project. Defaults to the "
        "project.",
        default=".",
        longest=4096,
    )
    glob: str = parameter(
        "Search only files of this name, such as `*.py` or `src/**/*.{c,h}`.",
        default="",
        longest=1024,
    )
    ignore_case: bool = parameter("Take upper and lower case as the same.", default=False)
    literal: bool = parameter("Take `pattern` as plain text.", default=False)


class Search(DeclaredTool[SearchParameters]):
    name = "search"
    declared = SearchParameters
    can_write = False
    description = (
        "Search the project's files for a regular expression, or find files by their names with "
        "`glob`. Returns path:line:text. Files that .gitignore names, binary files and .git are "
        "left out. Changes that wait for review are seen as if they were applied. Prefer this to "
        "grep and find in run_command."
    )

    def request(self, given: SearchParameters, call_id: str) -> SearchRequest:
        if not given.pattern and not given.glob:
            raise ToolError(
                N_("There is nothing to search for."), N_("Give `pattern`, `glob`, or both.")
            )
        if "\n" in given.pattern:
            raise ToolError(N_("`pattern` is for one line, and contains a line break."))
        return SearchRequest(self._context, given, self._context.folder())


@dataclass
class SearchRequest(RequestBase):
    _context: ToolContext
    _given: SearchParameters
    _project: str

    def describe(self) -> str:
        given = self._given
        what = given.pattern or given.glob
        place = given.glob if given.pattern else ""
        parts = [what, *(part for part in (place, given.path) if part not in ("", "."))]
        return escape_line(" · ".join(parts))

    async def perform(self, watcher: Watcher) -> Outcome:
        context, given = self._context, self._given
        executor = await context.ready_executor(self._project, watcher)
        is_sandboxed = executor.is_recorded
        file = SandboxedFile(context, executor, context.spec(self._project), given.path or ".")
        if not is_sandboxed and not is_inside(file.path, self._project):
            # Nobody is asked, so nothing else may be read. The path has no links here.
            raise ToolError(N_("{name} is not in the project."), name=escape_line(given.path))
        options = f"{'i' if given.ignore_case else ''}{'F' if given.literal else ''}"
        code = await asyncio.to_thread(Path(searcher.__file__).read_text, "utf-8")
        script = _SCRIPT if is_sandboxed else f"{_SYSTEM_PROGRAMS}{_SCRIPT}"
        python = "" if is_sandboxed else sys.executable
        arguments = [given.pattern, given.glob, options, str(_LIMIT), python, code]
        reply = await file.read(script, arguments, _LIMIT + 1024)
        return Outcome(self._text(reply), ok=True)

    def _text(self, reply: ScriptReply) -> str:
        name = escape_line(self._given.path)
        match reply.words:
            case ["found", kind]:
                return self._found(reply.rest, self._given.path, is_folder=kind == "folder")
            case ["nothing"]:
                raise ToolError(
                    N_("Neither ripgrep nor Python is installed here."),
                    N_("Use run_command with grep and find."),
                )
            case ["special"]:
                raise ToolError(SPECIAL_FILE, name=name)
            case _:
                raise ToolError(N_("There is no file or folder {name}."), name=name)

    def _found(self, data: bytes, place: str, *, is_folder: bool) -> str:
        folder = os.path.normpath(place if is_folder else os.path.dirname(place) or ".")
        base = "" if folder == "." else f"{escape_line(folder)}/"
        found = _matches(data) if self._given.pattern else map(_path, data.split(b"\0")[:-1])
        shown: list[str] = []
        room = _MOST_CHARACTERS
        for line in found:
            room -= len(base) + len(line) + 1
            if room < 0 or len(shown) == _MOST_SHOWN:
                shown.append("[... more was found. Narrow the search with `path` or `glob`.]")
                break
            shown.append(base + line)
        return "\n".join(shown) or "Nothing was found."


def _matches(data: bytes) -> Iterator[str]:
    # A path may contain a line break, the text that follows it may not.
    start = 0
    while (end := data.find(b"\0", start)) >= 0 and (line_end := data.find(b"\n", end)) >= 0:
        text = harmless(data[end + 1 : line_end].removesuffix(b"\r").decode("utf-8", "replace"))
        cut = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}..."
        yield f"{_path(data[start:end])}:{cut}"
        start = line_end + 1


def _path(name: bytes) -> str:
    return escape_line(os.fsdecode(name.removeprefix(b"./")))
