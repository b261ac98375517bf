# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses shell text into one simple command, or says why it cannot.

There are words only if every shell would run exactly these, in every folder and with any
variables. Rules and texts use them. It is not a security boundary: `make`, `./build.sh` or
`python x.py` run whatever a file contains, and a rule for such a command stays valid when the file
changes. What a command can do at all, the sandbox decides.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence

from .. import N_


class UnparsedCommand(Exception):
    """The text is not one simple command. `why` is the end of an English sentence: "Your answer
    cannot be saved, because the command ..."."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


# Characters. Nobody reads through a longer command in a list of rules.
_LONGEST = 4096

_MEANINGS = {
    # Translators: this and the next ones end the sentence "Your answer cannot be saved, because
    # the command ...".
    ";": N_("runs several commands"),
    "&": N_("runs several commands, or one in the background"),
    "|": N_("runs several commands"),
    "<": N_("redirects input"),
    ">": N_("redirects output"),
    "(": N_("has parentheses"),
    ")": N_("has parentheses"),
    "$": N_("inserts a variable or another command's output"),
    "`": N_("inserts another command's output"),
    "*": N_("has a file name pattern"),
    "?": N_("has a file name pattern"),
    "[": N_("has a file name pattern"),
    "{": N_("has braces, which may expand to several words"),
    "}": N_("has braces, which may expand to several words"),
    "#": N_("may have a comment"),
    "!": N_("has an exclamation mark, which may repeat an earlier command"),
}
# A part of a word, or a blank between words; then an escape sequence in double quotes.
_PART = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<bare>[^'"\\])"""
)
_ESCAPE = re.compile(r'\\([$`"\\])')

# Reserved words of bash and dash. Quoted, they would be programs, but no program is called so.
_RESERVED = {
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
    "in", "function", "select", "time", "coproc", "[[", "]]", "{", "}", "!",
}  # fmt: skip
# Commands that run their words as shell text, or change what later words mean.
_SHELL_TEXT = {
    "eval", ".", "source", "exec", "command", "builtin", "trap", "alias", "unalias", "fc", "set",
    "shopt", "enable", "hash",
    # bash runs commands in the subscript of an array, as in `read 'a[$(make)]'`, or in a callback.
    "let", "read", "declare", "typeset", "local", "export", "readonly", "unset", "wait", "getopts",
    "mapfile", "readarray", "compgen", "complete", "compopt", "bind", "jobs",
}  # fmt: skip
# These take the name of a variable after -v.
_MAY_NAME_VARIABLES = {"printf", "test", "["}
_SHELLS = {
    "sh", "bash", "rbash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "busybox",
}  # fmt: skip
_SAFE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_^")

# Commands, and the parentheses around them.
_PARTS = re.compile(r"""[()]|(?:[^;&|()\n'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def read_command_line(text: str) -> tuple[str, ...]:
    """Return the words of a simple command, or raise UnparsedCommand."""
    words = _split(text)
    _check(words)
    return words


def quote(words: Sequence[str]) -> str:
    """Return the one canonical spelling of a simple command; read() is its inverse."""
    return " ".join(_quoted(word) for word in words)


def entered_folders(text: str) -> list[str]:
    """Return the folders that a command line changes to with `cd`, as far as they are plain words,
    each relative to where it begins. In `cd a && (cd b && make); cd c`, these are a, a/b and a/c.
    For hints only: what is read here may never be run."""
    found: list[str] = []
    # Where each open parenthesis began.
    around: list[str] = []
    now = ""
    for part in _PARTS.findall(text[:_LONGEST]):
        if part == "(":
            around.append(now)
        elif part == ")":
            now = around.pop() if around else ""
        else:
            try:
                words = _split(part.strip())
            except UnparsedCommand:
                continue
            match words:
                case ("cd", folder) | ("cd", "--", folder) if not folder.startswith("-"):
                    now = os.path.join(now, folder)
                    found.append(now)
    return found


def _quoted(word: str) -> str:
    if word and _SAFE.issuperset(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def _split(text: str) -> tuple[str, ...]:
    if len(text) > _LONGEST:
        raise UnparsedCommand(N_("is too long"))
    for character in text:
        if character in "\n\r":
            raise UnparsedCommand(N_("has more than one line"))
        if not character.isascii():
            # Some shells split words at other Unicode blanks, and letters may look alike.
            raise UnparsedCommand(N_("has characters that may look like others"))
        if not " " <= character <= "~":
            raise UnparsedCommand(N_("has control characters"))
    words: list[str] = []
    # Where the word begins.
    start = at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            is_quote = text[at] in "'\""
            raise UnparsedCommand(
                N_("has an unclosed quote") if is_quote else N_("ends in a backslash")
            )
        if part["bare"] == " ":
            start = part.end()
        elif at == start:
            words.append(_meaning(part, is_first=True))
        else:
            words[-1] += _meaning(part, is_first=False)
        at = part.end()
    return tuple(words)


def _meaning(part: re.Match[str], *, is_first: bool) -> str:
    """Return what a part of a word stands for."""
    quoted, bare = part["double"], part["bare"]
    if quoted is not None:
        if active := re.search("[$`!]", _ESCAPE.sub("", quoted)):
            raise UnparsedCommand(_MEANINGS[active[0]])
        return _ESCAPE.sub(r"\1", quoted)
    if bare in _MEANINGS:
        raise UnparsedCommand(_MEANINGS[bare])
    # In HEAD~1 it is an ordinary character; at the start, or after = or :, a home folder.
    if bare == "~" and (is_first or not part.string[part.start() - 1].isalnum()):
        raise UnparsedCommand(N_("has a ~, which may mean a home folder"))
    return part[part.lastgroup or 0]


def _check(words: tuple[str, ...]) -> None:
    """Raise UnparsedCommand unless the words are one plain command."""
    if not words or not words[0]:
        raise UnparsedCommand(N_("names no program"))
    first = words[0]
    if "=" in first:
        raise UnparsedCommand(N_("sets a variable"))
    if first in _RESERVED or first.startswith("%"):
        raise UnparsedCommand(N_("begins with a shell keyword"))
    names_variable = first in _MAY_NAME_VARIABLES and any(w.startswith("-v") for w in words)
    if first in _SHELL_TEXT or names_variable or _hands_text_to_a_shell(words):
        raise UnparsedCommand(N_("passes text to a shell, which runs it as commands"))


def _hands_text_to_a_shell(words: tuple[str, ...]) -> bool:
    """Return whether `sh -c TEXT` occurs, even behind env, sudo, xargs, find -exec and so on."""
    for number, word in enumerate(words):
        if os.path.basename(word) in _SHELLS:
            options = (w for w in words[number + 1 :] if w.startswith(("-", "+")))
            if any("c" in option for option in options):
                return True
    return False
