# SPDX-License-Identifier: GPL-3.0-or-later
"""Where its own config leads git inside a project: to hooks and programs that it runs whatever the
person asked for, and to more config. The config is read as text; git itself is not run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from .later import spelled

_LARGEST = 1 << 20
# As deep as git follows them.
_INCLUDES = 10
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')
_SETTING = re.compile(r"\s*([a-zA-Z][\w-]*)\s*=(.*)")
# A quoted part, or up to a comment.
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|((?:[^"\\#;]|\\.)+)')
# By their names, in whatever section: programs that it runs without being told.
_PROGRAMS = frozenset(
    (
        "askpass", "clean", "command", "difffilter", "driver", "editor", "external", "fsmonitor",
        "gitproxy", "helper", "packobjectshook", "pager", "process", "program", "receivepack",
        "smudge", "sshcommand", "textconv", "uploadpack",
    )
)  # fmt: skip


class Led:
    """For one root of a project."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folders: set[str] = set()
        self._files: set[str] = set()

    @classmethod
    def of(cls, root: str) -> Led:
        """By the repository that the root is in."""
        found = cls(root)
        folder = root
        while not found.add_repository(folder) and folder != "/":
            folder = os.path.dirname(folder)
        return found

    def add_repository(self, worktree: str) -> bool:
        """False if there is none in this folder."""
        own = f"{worktree}/.git"
        if not os.path.lexists(own):
            return False
        if not os.path.isdir(own):
            # Of a worktree or a submodule: it says where the repository is.
            _, _, words = _read(own).partition("gitdir:")
            own = os.path.join(worktree, words.strip())
        common = os.path.join(own, _read(f"{own}/commondir").strip())
        # These have names that tell what they are; what they link to has not.
        self._add_linked(f"{common}/hooks")
        for file in (f"{common}/config", f"{own}/config.worktree"):
            self._add_config(file, worktree, _INCLUDES)
        return True

    def covers(self, path: str) -> bool:
        """What is led to, or in it; or a file or link in the way, where there was a folder."""
        if not self._folders and not self._files:
            return False
        plain = spelled(path)
        if plain in self._files or any(_is_in(plain, folder) for folder in self._folders):
            return True
        return any(_is_in(led, plain) for led in (*self._files, *self._folders))

    def is_near(self, folder: str) -> bool:
        """Whether something that is directly in the folder may be covered."""
        if not self._folders and not self._files:
            return False
        plain = spelled(folder.rstrip("/"))
        return any(
            not plain or _is_in(plain, led) or _is_in(led, plain)
            for led in (*self._files, *self._folders)
        )

    def _add_config(self, file: str, worktree: str, deep: int) -> None:
        for section, key, value in _settings(_read(file)):
            if key == "hookspath":
                folder = os.path.join(worktree, os.path.expanduser(value))
                self._add(folder, self._folders)
                self._add_linked(folder)
            elif key == "path" and section.startswith("include") and deep:
                included = os.path.join(os.path.dirname(file), os.path.expanduser(value))
                self._add(included, self._files)
                self._add_config(included, worktree, deep - 1)
            elif key in _PROGRAMS:
                for word in _words(value):
                    self._add(os.path.join(worktree, word), self._files)

    def _add_linked(self, folder: str) -> None:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    self._add(entry.path, self._files)

    def _add(self, path: str, to: set[str]) -> None:
        # As it is named, and where links lead that are in the way.
        for place in (os.path.normpath(path), os.path.realpath(path)):
            if place.startswith(f"{self._root}/"):
                to.add(spelled(place[len(self._root) + 1 :]))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _read(file: str) -> str:
    """Nothing of what is none, or too large to be config."""
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _LARGEST:
            return ""
        return Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Section and key in small letters, and the value."""
    section = ""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        rest = line
        while found := _SECTION.match(rest):
            section, rest = found[1].lower(), rest[found.end() :]
        if found := _SETTING.match(rest):
            yield section, found[1].lower(), _value(found[2])


def _value(text: str) -> str:
    parts = []
    at = 0
    while found := _PART.match(text, at):
        quoted, plain = found[1], found[2]
        parts.append(re.sub(r"\\(.)", r"\1", plain if quoted is None else quoted))
        at = found.end()
    return "".join(parts).strip()


def _words(command: str) -> list[str]:
    """That may be files. A program without a folder is looked for elsewhere."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [word for word in words[:1] if "/" in word] + words[1:]
