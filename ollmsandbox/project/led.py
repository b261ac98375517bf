# SPDX-License-Identifier: GPL-3.0-or-later
"""Where its own config leads git inside a project: to hooks and programs that it runs whatever the
person asked for, and to more config. The config is read as text; git itself is not run."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
from collections.abc import Iterator

from .later import spelled

_LARGEST = 1 << 20
# As deep as git follows them; and more files, or more that they lead to, no project has.
_INCLUDES = 10
_MOST = 500
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*"\s*)?\]')
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
        # All folders on the way to one of them.
        self._ways: set[str] = set()
        self._read: set[str] = set()

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
        if not self._ways:
            return False
        plain = spelled(path)
        return plain in self._ways or plain in self._files or self._is_in_folder(plain)

    def is_near(self, folder: str) -> bool:
        """Whether something that is directly in the folder may be covered."""
        if not self._ways:
            return False
        plain = spelled(folder.rstrip("/"))
        return plain in self._ways or self._is_in_folder(plain)

    def _is_in_folder(self, plain: str) -> bool:
        return plain in self._folders or any(way in self._folders for way in _above(plain))

    def _add_config(self, file: str, worktree: str, deep: int) -> None:
        real = os.path.realpath(file)
        if real in self._read or len(self._read) >= _MOST:
            return
        self._read.add(real)
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
                for place in _words(value, worktree):
                    self._add(place, self._files)

    def _add_linked(self, folder: str) -> None:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    self._add(entry.path, self._files)

    def _add(self, path: str, to: set[str]) -> None:
        # As it is named, and where links lead that are in the way.
        for place in (os.path.normpath(path), os.path.realpath(path)):
            if len(to) < _MOST and place.startswith(f"{self._root}/"):
                inside = spelled(place[len(self._root) + 1 :])
                to.add(inside)
                self._ways.update(_above(inside), ("",))


def _above(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _read(file: str) -> str:
    """Nothing of what is none, or too large to be config. A link may lead to whatever there is."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            # What the kernel makes up as it is read says that it is empty.
            size = os.fstat(descriptor).st_size if stat.S_ISREG(os.fstat(descriptor).st_mode) else 0
            data = opened.read(size) if size <= _LARGEST else b""
    except (OSError, ValueError):
        return ""
    # No path has the first, which some programs put before a text.
    return "" if b"\0" in data else os.fsdecode(data.removeprefix(codecs.BOM_UTF8))


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


def _words(command: str, worktree: str) -> Iterator[str]:
    """Those that may be files. A shell reads it; a program without a folder is looked for
    elsewhere."""
    words = [word for word in re.split(r"[\s;|&(){}<>\"'`$!]+", command) if word]
    for number, word in enumerate(words):
        place = os.path.join(worktree, word)
        if "/" in word or (number and os.path.isfile(place)):
            yield place
