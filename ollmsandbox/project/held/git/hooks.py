# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that git's hooks run: what a hook names, and what the managers of hooks read.

Hooks are read as text, not as a shell would read them. So a file may count as run that is not.
`targets.py` collects them, and `scan.py` holds changes of them.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ....files.dirfd import folders_above
from ..risky_files import read_names

_SHELL_WORDS = re.compile(r"[\s;|&(){}<>\"'`$!=,:]+")
# Programs that read a script, and what comes after them: its name, or one with a variable in it.
_READERS = (
    r"source|\.|[a-z]*sh|[gmn]?awk|perl|ruby|node|deno|bun|lua|php|python[\d.]*|tclsh|Rscript"
)
_BEFORE, _OPTIONS, _WORD = r"(?:^|[\s;|&(\"'`/!])", r"\s+(?:-\S+\s+)*[\"']?", r"[^\s;|&()\"'`]"
_AFTER_PROGRAM = re.compile(rf"{_BEFORE}(?:env|exec|{_READERS}){_OPTIONS}({_WORD}+)")
_VARIABLE = re.compile(
    rf"{_BEFORE}(?:{_READERS}){_OPTIONS}{_WORD}{{0,60}}\$\{{?\w{{1,40}}\}}?[^\s;|&()\"'`/]{{0,40}}"
    r"[\"']?(?=[\s;|&)]|$)",
    re.MULTILINE,
)
# Settings of lefthook and overcommit that name a folder of scripts.
_FOLDER_SETTINGS = r"source_dir(?:_local)?|plugin_directory"
# The value of a variable, of an option, or of such a setting.
_ASSIGNED = re.compile(rf"(?:=|\b(?:{_FOLDER_SETTINGS}):\s{{0,9}})[\"']?([\w./-]+)")
# In a line that runs all files of a folder, whether or not they can be executed.
_RUNS_ALL = re.compile(rf"\b(?:find|xargs|for|while|run-parts|parallel|PATH|{_FOLDER_SETTINGS})\b")
# Modules of Python's: what follows `-m`, `import` or `from`, and what is imported from that.
_AS = r"(?:\s+as\s+\w+)?"
_NEXT = r"\s*,[\s\\]*(?!(?:import|from)\b)"
_MODULE = re.compile(
    rf"(?:-m|\bimport|\bfrom)\s*([\w.]+{_AS}(?:{_NEXT}[\w.]+{_AS})*)"
    rf"(?:\s+import(?:\s*\(\s*|\s+)(\w+{_AS}(?:{_NEXT}\w+{_AS})*))?"
)
_SETTINGS = re.compile(r"(?!.*lock)(?!package\.json).*\.(?:ya?ml|toml|jsonc?|pkl)")
# Paths of the system's own programs and files, not of the project's.
_SYSTEM = re.compile(r"/(?:bin|dev|etc|lib\w*|proc|sbin|sys|tmp|usr|var)/")


# `hooks.yaml` has the names.
_NAMES = {
    section: " ".join(each.patterns for each in entries).split()
    for section, entries in read_names(Path(__file__).with_suffix(".yaml")).items()
}
HOOKS = frozenset(_NAMES["hooks"])
# What Python imports while it runs a module, from the folder that it is started in before all
# others: this is where pre-commit's own hook starts it.
MODULES = frozenset((*sys.stdlib_module_names, *_NAMES["modules"]))
RUNS_MODULES = re.compile(
    r"(?i)python\S{0,40}\s{1,9}(?:-\S{1,40}\s{1,9}){0,5}?(?:-[a-z]{0,9}[mc]|-?\s{0,9}<|-\s)"
)
_SCRIPTS = tuple(_NAMES["scripts"])
MANAGED_NAMES = tuple(
    name.replace("*", ending)
    for name in _NAMES["managed"]
    for ending in (_NAMES["endings"] if "*" in name else [""])
)
# A word of a hook that belongs to a hook manager.
MANAGERS = re.compile(
    r"(?:\b|(?<=-m))(?:husky|pre[-_]commit (?:run|hook)|pre_commit|prek|(?:call_)?lefthook"
    r"|[oO]vercommit|simple-git-hooks|lint-staged|nano-staged|commitlint|captainhook|grumphp"
    r"|cargo-husky|rusty-hook|hk|cog)\b"
)
# The search of a long text could take hours. So there are limits to the scripts of a package.json
# that are followed, and to the folders and words of a text that are combined. Beyond so many names
# to compare with patterns, or places to look at, all programs of the worktree count as run.
_MOST_SCRIPTS, _MOST_FOLDERS, _MOST_WORDS, _MOST_NAMES, _MOST_PLACES = 500, 50, 500, 20_000, 200_000
# Beyond so many places, only files that exist are looked for.
_MANY_PLACES = 2_000
# Characters of all scripts of a package.json.
_LONGEST = 1 << 16


class Named(NamedTuple):
    """The names in a text: files, folders whose files are run, and folders with programs. If there
    are too many to be looked for, the worktree is one of the last."""

    files: set[str]
    folders: set[str]
    programs: set[str]


def named_in(text: str, worktree: str, folder: str) -> Named:
    """Return what a hook in the folder, or a hook manager's settings, may run."""
    home = os.path.expanduser("~")
    text = re.sub(r"(?:~|\$HOME|\$\{HOME\})(?=/)", lambda _found: home, text)
    search = _Search(text.replace(f"{worktree}/", "./"), worktree, folder)
    named = search.find()
    return named._replace(files={file for file in named.files if not os.path.isdir(file)})


class _Search:
    """Looks for what a text names, in all folders that it may mean."""

    def __init__(self, text: str, worktree: str, folder: str) -> None:
        self._named = Named(set(), set(), set())
        self._text = text
        self._ends = set(_ends_in(text))
        self._worktree = worktree
        self._own = (worktree, folder)
        # A script may change to the folders above its own.
        above = (place for place in folders_above(folder) if place.startswith(f"{worktree}/"))
        self._folders = dict.fromkeys((*self._own, *above))

    def find(self) -> Named:
        missing = self._find_folders()
        # In a longer text, most of the places are files that nobody has.
        is_long = len(self._ends) * len(self._folders) > _MANY_PLACES
        if len(self._ends) * len(missing) < _MANY_PLACES:
            self._folders |= missing
        self._find_files(is_long=is_long)
        return self._named

    def _find_folders(self) -> dict[str, None]:
        """Find the folders that the text names: a script may change to them, or run their files.
        Return those that the command may make."""
        missing: dict[str, None] = {}
        runs_any_script = _VARIABLE.search(self._text)
        for line in self._text.splitlines():
            runs_all = runs_any_script or _RUNS_ALL.search(line)
            found = self._named.folders if runs_all else self._named.programs
            paths = {end for word in words_in(line) if "/" in word for end in _ends(word)}
            paths.update(_ASSIGNED.findall(line))
            for end in _ends_in(line):
                stem = end.rpartition("/")[0] if glob.has_magic(end) else end
                for around, place in self._places(stem):
                    if os.path.isdir(place):
                        self._folders[place] = None
                        found.add(place)
                    elif around in self._own and end in paths and not os.path.lexists(place):
                        missing[place] = None
                        if runs_all:
                            found.add(place)
        return missing

    def _places(self, stem: str) -> Iterator[tuple[str, str]]:
        """Yield where a folder of this name may be: around it, and the folder."""
        # One `cd` may come after another, also into the folder that was found just now.
        for is_own in (True, False):
            is_short = len(self._folders) < _MOST_FOLDERS and len(self._ends) < _MOST_WORDS
            every = tuple(self._folders) if is_short else ()
            for around in (self._own if is_own else every) if stem else ():
                place = os.path.normpath(f"{around}/{stem}")
                if place.startswith(f"{self._worktree}/"):
                    yield around, place

    def _find_files(self, *, is_long: bool) -> None:
        """Find the files that the text names, in the folders that were found."""
        left = _MOST_NAMES
        if len(self._ends) * len(self._folders) > _MOST_PLACES:
            self._named.programs.add(self._worktree)
            self._folders = dict.fromkeys(self._own)
        for end in self._ends:
            near = set(script_places(end, *self._own))
            is_script = "/" in end or end.endswith(_SCRIPTS)
            for place in script_places(end, *self._folders):
                # It may be missing as yet: many hooks run a file only if there is one.
                is_near = not is_long or place in near
                if (is_script and (is_near or os.path.lexists(place))) or os.path.isfile(place):
                    self._named.files.add(place)
                if glob.has_magic(end) and left > 0:
                    matches, left = _matches(place, left)
                    self._named.files.update(filter(_is_program, matches))
        if left <= 0:
            self._named.programs.add(self._worktree)
        for found in _AFTER_PROGRAM.finditer(self._text):
            for end in _ends(found[1]):
                self._named.files.update(script_places(end, *self._folders))
        self._named.files.update(_modules_in(self._text, self._folders))


def _modules_in(text: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield the files of the modules of Python's that a text runs or imports."""
    modules: set[str] = set()
    names: set[str] = set()
    for found in _MODULE.finditer(text):
        first, second = (re.sub(r"\s+as\s+\w+", "", part) for part in found.groups(default=""))
        imported = re.findall(r"[\w./]+", first.replace(".", "/"))
        modules.update(imported)
        names.update(f"{imported[0]}/{name}" for name in re.findall(r"\w+", second))
    for module in modules:
        for place in script_places(module, *folders):
            yield from (f"{place}/__init__.py", f"{place}/__main__.py")
    for name in modules | names:
        yield from (f"{place}.py" for place in script_places(name, *folders))


def words_in(text: str) -> list[str]:
    return [word for word in _SHELL_WORDS.split(text) if word]


def settings_in(text: str) -> list[str]:
    """Return the settings that a hook names, as in `--config=other.yaml`."""
    return [word for word in set(words_in(text)) if _SETTINGS.fullmatch(word)]


def _ends_in(text: str) -> Iterator[str]:
    return (end for word in words_in(text) if not _SYSTEM.match(word) for end in _ends(word))


def _ends(word: str) -> list[str]:
    """Return the word, and what follows its first name: that may be a variable, as in
    "$ROOT/check.sh". A folder may come after an option or an operator: -Ilib, ${DIR:-lib}."""
    _first, _slash, rest = word.partition("/")
    ends = {word, rest, word[1:], word[2:]} if word[0] in "-+?" else {word, rest}
    return [end for end in ends if end.strip("./")]


def script_places(word: str, *folders: str) -> Iterator[str]:
    """Yield where a word of a script may lead: a path can follow a variable or a command, as in
    "$(git rev-parse --show-toplevel)/check"."""
    relative = word.lstrip("/")
    if relative:
        yield from (os.path.join(folder, relative) for folder in folders)
    if relative != word:
        yield word


def _matches(pattern: str, left: int) -> tuple[list[str], int]:
    """Return the paths that match, and how many more names may be looked at."""
    places = [""]
    for part in pattern.split("/")[1:]:
        if not glob.has_magic(part):
            places = [f"{place}/{part}" for place in places]
            continue
        found = []
        for place in places:
            with contextlib.suppress(OSError):
                names = os.listdir(place or "/") if left > 0 else []
                left -= len(names) + 1
                found += [f"{place}/{n}" for n in fnmatch.filter(names, part) if n[0] != "."]
        places = found
    return places, left


def _is_program(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def manifest_commands(text: str, hook: str) -> str:
    """Return what a package.json says to hook managers, with the scripts that this, or the hook,
    names."""
    document = _json_object(text)
    commands = json.dumps([document.get(key) for key in _NAMES["manifest"]])
    scripts = document.get("scripts")
    scripts = scripts if isinstance(scripts, dict) else {}
    left = {name: _clean(text) for name, text in scripts.items()}
    if len(left) > _MOST_SCRIPTS:
        # To follow them could take hours.
        return "\n".join((commands, *left.values()))[:_LONGEST]
    new = f"{hook}\n{commands}"
    while named := [n for n in left if n in new and re.search(rf"\b{re.escape(n)}\b", new)]:
        new = "".join(f"\n{left.pop(name)}" for name in named)
        commands += new
    return commands[:_LONGEST]


def _clean(text: object) -> str:
    """Return a text without what no path can have."""
    return str(text).replace("\0", " ").encode(errors="replace").decode()


def same_hook_settings(old: bytes, new: bytes) -> bool:
    """Return whether two versions of package.json say the same to hook managers."""
    before, after = (_json_object(os.fsdecode(data)) for data in (old, new))
    if (new and not after) or (old and not before):
        return old == new
    return all(before.get(key) == after.get(key) for key in _NAMES["manifest"])


def _json_object(text: str) -> dict[str, object]:
    """Return the object in a text; an empty one if there is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
