# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes the state of the files that a command names when the user is asked about the command.

If one changes before the answer, the answer is not about what would run, and the user is asked
again.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ..paths import is_inside
from ..project.jobs import generation
from ..project.recorder import linked_roots
from ..sandbox.caches import caches_generation
from ..sandbox.overlay import playground_generation
from ..sandbox.rootfs.paths import PathMap
from .context import ToolContext

# Whatever a shell may end a word at: a word too many costs one look at the disk.
_BETWEEN = re.compile(r"[\s;&|<>()`\"'=,:]+")
# A longer command is not looked at any further.
_MOST_WORDS, _MOST_FOLDERS = 500, 8
# What well-known programs read without being told.
_NPM = ("package.json",)
_READ_BY = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": _NPM,
    "npx": _NPM,
    "pnpm": _NPM,
    "yarn": _NPM,
    "cargo": ("Cargo.toml", "build.rs"),
    "pytest": ("conftest.py", "pyproject.toml"),
}
_MODULE = ("{}.py", "{}/__init__.py", "{}/__main__.py")


@dataclass(frozen=True)
class ShownState:
    """The state of a project when the user was asked. Another one compares as different if
    something changed that the question depends on."""

    # What the program itself does to the project is counted, and what other runs do to the
    # playground and the project's caches; others leave traces on files.
    generation: tuple[int, ...]
    # Each file that the command's words name, with its identity, size and times.
    files: frozenset[tuple[str, tuple[int, ...]]]


def shown_state(context: ToolContext, project: str, command: str, working_dir: str) -> ShownState:
    """Return the state that a question about the command depends on. Blocks. `working_dir` is as
    the model wrote it."""
    names = _Names(context, project)
    files = {
        (path, found)
        for path in names.named_by(command, working_dir)
        for found in _identities(path)
    }
    paths = context.paths
    generations = (
        generation(paths, project),
        playground_generation(paths.cache),
        *caches_generation(paths, project),
    )
    return ShownState(generations, frozenset(files))


class _Names:
    """Finds files in the project, the folders that belong to it, and the playground."""

    def __init__(self, context: ToolContext, project: str) -> None:
        self._project = project
        self._home = context.paths.real_home
        linked = linked_roots(context.paths, project)
        self._places = PathMap.of(context.paths, project, linked)
        self._playground, *self._shown = self._places.playgrounds
        self._roots = (project, self._playground, *linked)

    def named_by(self, command: str, working_dir: str) -> Iterator[str]:
        start = "~/playground" if working_dir == "playground" else working_dir
        folders = [self._host_path(self._project, start)]
        words = _words(command)
        for word in words:
            path = self._host_path(folders[0], word)
            # After `cd sub`, names are relative to it.
            if len(folders) < _MOST_FOLDERS and path not in folders and os.path.isdir(path):
                folders.append(path)
        names = [name for word in words for name in (word, *_read_by(word))]
        for folder in folders:
            for name in names:
                path = self._host_path(folder, name)
                if is_inside(path, *self._roots):
                    yield path

    def _host_path(self, folder: str, name: str) -> str:
        """Return the path on the host of what a command calls by this name."""
        for home in ("~", "$HOME", "${HOME}"):
            if is_inside(name, home):
                name = self._home + name[len(home) :]
        path = os.path.normpath(os.path.join(folder, name))
        for shown in self._shown:
            if is_inside(path, shown):
                return self._playground + path[len(shown) :]
        return self._places.to_host(path) or path


def _words(command: str) -> list[str]:
    found = dict.fromkeys(_BETWEEN.split(command)[:_MOST_WORDS])
    try:
        # Quoted names may have blanks.
        found.update(dict.fromkeys(shlex.split(command)[:_MOST_WORDS]))
    except ValueError:
        pass  # an open quote: the shell refuses it, too
    return [word for word in found if word and "\0" not in word]


def _read_by(word: str) -> Iterator[str]:
    """Yield the files that a program of this name reads, and those of such a Python module."""
    yield from _READ_BY.get(os.path.basename(word), ())
    if all(part.isidentifier() for part in word.split(".")):
        yield from (name.format(word.replace(".", "/")) for name in _MODULE)


def _identities(path: str) -> Iterator[tuple[int, ...]]:
    """Yield what tells a file from any other, for a link and for where it leads."""
    for follow in (False, True):
        try:
            found = os.stat(path, follow_symlinks=follow)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            yield found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
