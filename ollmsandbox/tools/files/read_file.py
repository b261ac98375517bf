# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool read_file: lines of a text file, a picture, or the names in a folder, as a command sees
them."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from ... import N_
from ...paths import near
from ...project.short_list import counted
from ...text.ansi import escape_line, harmless
from .. import questions
from ..base import LARGEST_PICTURE, Outcome, Picture, RequestBase, ToolError, Watcher
from ..context import ToolContext
from ..parameters import DeclaredTool, parameter
from .sandboxed import SPECIAL_FILE, SandboxedFile, ScriptReply

# Bytes to read at most; then characters of it to show to the model.
_LIMIT = 256 << 10
_MOST = 60_000
_LINES = 2_000
_LONGEST_LINE = 2_000
_MOST_NAMES = 1_000

_SCRIPT = """\
if [ -d "$1" ]; then
    cd "$1" || exit 1
    set -- * .[!.]* ..?*
    printf 'folder\\n'
    most=1000
    for name do
        [ -e "$name" ] || [ -h "$name" ] || continue
        kind=f
        if [ -h "$name" ]; then kind=l; elif [ -d "$name" ]; then kind=d; fi
        printf '%s%s\\0' "$kind" "$name"
        most=$((most - 1))
        [ "$most" -gt 0 ] || break
    done
    printf '#%s' "$#"
elif [ ! -e "$1" ]; then printf 'missing\\n'
elif [ ! -f "$1" ]; then printf 'special\\n'
elif [ ! -r "$1" ]; then printf 'closed\\n'
else
    size=$(stat -Lc %s "$1") || exit 1
    kind=
    case $(head -c 12 "$1" | od -An -tx1 | tr -d ' \\n') in
        89504e470d0a1a0a*) kind=png ;;
        ffd8ff*) kind=jpeg ;;
        47494638*) kind=gif ;;
        52494646????????57454250) kind=webp ;;
    esac
    if [ -n "$kind" ]; then
        printf 'picture %s %s\\n' "$kind" "$size"
        [ "$size" -gt "$6" ] || cat "$1"
        exit
    fi
    lines=-1
    [ "$size" -gt 67108864 ] || lines=$(grep -c '' <"$1")
    printf 'file %s %s\\n' "$size" $lines
    tail -n "+$2" "$1" | head -n "$3" | tail -c "+$5" | head -c "$4"
fi
"""


@dataclass(frozen=True)
class ReadParameters:
    path: str = parameter(
        "The file to read: absolute, or relative to the project. Below `playground/` is the "
        "playground. A folder lists what is in it.",
        longest=4096,
    )
    first_line: int = parameter("The line to begin with.", default=1, smallest=1)
    line_count: int = parameter("How many lines to read.", default=_LINES, smallest=1)
    first_byte: int = parameter(
        "In a line that is too long to be shown whole, the byte to begin with. Reads only "
        "`first_line`.",
        default=1,
        smallest=1,
    )


class ReadFile(DeclaredTool[ReadParameters]):
    name = "read_file"
    declared = ReadParameters
    can_write = False
    description = (
        "Read a text file, look at a picture (PNG, JPEG, GIF, WebP), or list a folder. Files of "
        "the project, of the playground, and those of the system that commands can see. Each line "
        "begins with its number and a tab, which are not in the file. Long files come in parts: "
        "use `first_line` and `line_count`. Changes that wait for review are seen as if they were "
        "applied."
    )

    def request(self, given: ReadParameters, call_id: str) -> ReadRequest:
        if not given.path.strip():
            raise ToolError(N_("`path` is empty."), N_("Specify a file."))
        return ReadRequest(self._context, given, self._context.folder(), call_id)


@dataclass
class ReadRequest(RequestBase):
    _context: ToolContext
    _given: ReadParameters
    _project: str
    _call_id: str

    def describe(self) -> str:
        return escape_line(near(self._given.path, self._project))

    async def perform(self, watcher: Watcher) -> Outcome:
        context, given = self._context, self._given
        executor = await context.ready_executor(self._project, watcher)
        file = SandboxedFile(context, executor, context.spec(self._project), given.path)
        if not executor.is_recorded:
            question = questions.reading_question(context, executor, file.path, self._call_id)
            await questions.ask_or_end(context, watcher, self, question, "Reading")
        count = 1 if given.first_byte > 1 else given.line_count
        numbers = (given.first_line, count, _LIMIT, given.first_byte, LARGEST_PICTURE)
        reply = await file.read(_SCRIPT, [str(n) for n in numbers], LARGEST_PICTURE + 1024)
        if reply.words[0] == "picture":
            return self._picture(reply)
        return Outcome(_text(given, reply), ok=True, verdict=self.verdict)

    def _picture(self, reply: ScriptReply) -> Outcome:
        """Return the picture as it is: the server decodes it, not this program."""
        name = escape_line(self._given.path)
        _, kind, size = reply.words
        if int(size) > LARGEST_PICTURE or not self._context.sees_pictures:
            too_large = N_("{name} is a picture ({kind}) of {size:,} bytes, too large to be shown.")
            blind = N_("{name} is a picture ({kind}) of {size:,} bytes. This model cannot see it.")
            raise ToolError(
                too_large if int(size) > LARGEST_PICTURE else blind,
                name=name,
                kind=kind.upper(),
                size=int(size),
            )
        picture = Picture(f"image/{kind}", reply.rest)
        text = f"{name} is a picture ({kind.upper()}) of {int(size):,} bytes. It follows."
        return Outcome(text, ok=True, verdict=self.verdict, pictures=(picture,))


def _text(given: ReadParameters, reply: ScriptReply) -> str:
    name = escape_line(given.path)
    match reply.words:
        case ["folder"]:
            return _folder(name, reply.rest)
        case ["file", size, lines]:
            return _file(given, name, reply.rest, int(size), int(lines))
        case ["closed"]:
            raise ToolError(N_("Cannot read {name}: permission denied."), name=name)
        case ["special"]:
            raise ToolError(SPECIAL_FILE, name=name)
        case _:
            raise ToolError(
                N_("There is no file {name}."),
                N_("To list its folder, use read_file with the folder's path."),
                name=name,
            )


def _folder(name: str, rest: bytes) -> str:
    *entries, count = rest.decode("utf-8", "surrogateescape").split("\0")
    marks = {"d": "/", "l": "@"}
    names = sorted(escape_line(entry[1:]) + marks.get(entry[:1], "") for entry in entries)
    # The script also counts patterns that match nothing: up to three.
    more = int(count[1:]) - len(names) if count.startswith("#") and count[1:].isdecimal() else 0
    title = f"{name} is a folder with {len(names):,} names (/ folder, @ link):"
    if not names:
        return f"{name} is an empty folder."
    left = [f"... and {more:,} more"] if len(names) >= _MOST_NAMES and more > 0 else []
    return "\n".join([title, *names, *left])


def _file(given: ReadParameters, name: str, data: bytes, size: int, lines: int) -> str:
    if b"\0" in data:
        raise ToolError(
            N_("{name} is not a text file; it has {size:,} bytes."),
            N_("Use a command such as `file` or `xxd`."),
            name=name,
            size=size,
        )
    if given.first_byte > 1:
        # It may begin in the middle of a character.
        data = data.lstrip(bytes(range(0x80, 0xC0)))
    elif given.first_line == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        if given.first_byte > 1:
            raise ToolError(
                N_("Line {line:,} of {name} is shorter than that."),
                name=name,
                line=given.first_line,
            )
        if given.first_line > 1 and size:
            raise ToolError(N_("{name} ends with line {lines:,}."), name=name, lines=lines)
        return f"{name} is empty."
    shown: list[str] = []
    room = _MOST
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), given.first_line):
        cut = f"{number:>6}\t{_line(given, number, line)}"
        room -= len(cut) + 1
        if room < 0 and shown:
            break
        shown.append(cut)
    last = given.first_line + len(shown) - 1
    is_all = given.first_line == given.first_byte == 1 and last >= lines >= 0
    if is_all and len(data) < _LIMIT:
        return f"{name} ({counted(lines, 'line')}):\n" + "\n".join(shown)
    of = f" of {lines:,}" if lines >= 0 else f"; the file has {size:,} bytes"
    more = f" More with first_line={last + 1}." if lines < 0 or last < lines else ""
    return f"{name} (lines {given.first_line:,} to {last:,}{of}).{more}\n" + "\n".join(shown)


def _line(given: ReadParameters, number: int, data: bytes) -> str:
    text = data.removesuffix(b"\r").decode("utf-8", "surrogateescape")
    cut = text[:_LONGEST_LINE]
    if text == cut:
        return _shown(text)
    next_byte = given.first_byte + len(cut.encode("utf-8", "surrogateescape"))
    more = f"first_line={number}, first_byte={next_byte}"
    return f"{_shown(cut)} [... the line goes on. More with {more}]"


def _shown(text: str) -> str:
    return harmless(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
