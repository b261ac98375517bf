# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognises what git writes into a repository by itself, so that a clone needs no approval.

The reader is strict: what it does not fully understand is not exempt, and stays held. It need not
understand everything that git does, but must never read anything differently.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from ...files.overlayfs import read_merged
from ...paths import is_inside
from .risky import GIT_FOLDERS, normalised

# The files of a repository that may be exempt.
_WRITTEN_BY_GIT = frozenset((".git", "config", "commondir", "gitdir", "index", "MERGE_RR"))
# In files of this folder git keeps what it knows of a remote, one object on each line. A module
# could be called "refs", and then these would be settings of remotes, which begin with a word.
_REFERENCES = "/refs/remotes/"
_LARGEST_CONFIG = 1 << 16

# Possessive, as everything that a blank may be part of: otherwise a command could write a line for
# which the search takes hours.
_SPACE = "[ \t]*+"
_EMPTY = re.compile(rf"{_SPACE}(?:[#;].*)?")
_SECTION = re.compile(rf'{_SPACE}\[([a-zA-Z0-9-]+)(?:[ \t]+"([^"\\]*)")?\]{_SPACE}')
# A tab between the words of a value is read differently by different versions of git.
_SETTING = re.compile(
    rf"{_SPACE}([a-zA-Z][a-zA-Z0-9-]*+){_SPACE}="
    rf'{_SPACE}(?:"((?:[^"\\]|\\["\\nt])*+)"|((?:[^"\\#;\t]|\\["\\nt])*+)){_SPACE}(?:[#;].*)?'
)
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f\ufeff]")

_BOOLEANS = r"true|false"
_NAME = r"[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*"
# What a value has to be, by section, whether the section has a second name, and key.
_HARMLESS = {
    ("core", False, "repositoryformatversion"): r"[01]",
    ("core", False, "filemode"): _BOOLEANS,
    ("core", False, "bare"): _BOOLEANS,
    ("core", False, "logallrefupdates"): rf"{_BOOLEANS}|always",
    ("core", False, "symlinks"): _BOOLEANS,
    ("core", False, "ignorecase"): _BOOLEANS,
    ("remote", True, "fetch"): r"\+?refs/(?:heads|tags)/[\w./*-]+:refs/(?:remotes|tags)/[\w./*-]+",
    ("branch", True, "merge"): rf"refs/heads/{_NAME}",
    ("user", False, "name"): r"[^\n\t]*",
    ("user", False, "email"): r"[^\n\t]*",
    ("submodule", False, "active"): r"[\w./*-]+",
    ("submodule", True, "active"): _BOOLEANS,
}
_ADDRESSES = frozenset((("remote", True, "url"), ("submodule", True, "url")))
_REMOTE = ("branch", True, "remote")
_WORKTREE = ("core", False, "worktree")
_EXEMPT = frozenset((*_HARMLESS, *_ADDRESSES, _REMOTE, _WORKTREE))
# A host that began with a dash would be an option for ssh. "::" names a program to run.
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[\w./~+-]+", re.ASCII)
_URL = re.compile(
    r"(?:https?|ssh|git)://(?:[\w.~%:+-]+@)?(?:[A-Za-z0-9][\w.-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
    r"(?:/[^\s\"'\\]*)?",
    re.ASCII,
)
_FILE = re.compile(r"(?:file://)?(/[^:\"'\\]*)")
# Where modules and worktrees have their repositories, in one that is_obeyed() looks after.
_INNER = re.compile(r"(.+)/\.git/(?:modules/.+|worktrees/[^/]+)")


# A file that leads to a folder.
_POINTER = re.compile(rb"(gitdir: )?([^\0\r\n]{1,4096})\n?")
# Lines with a reference, or with what git logs about one.
_REFERENCE_LINES = re.compile(
    rb"(?:(?:ref: refs/[^\s:]+|[0-9a-f]{40,64}(?: [0-9a-f]{40,64} [^\0\r\n]*)?)(?:\n|\Z))*+"
)
# In the path of the playground and of pending layers, wherever the user has them.
_UNREVIEWED = frozenset(("ollmchat", "playground"))

# Of git's index, and of its list of conflicts. Git checks their paths when it adds them, but not
# when it reads these files. `git checkout .` would create `.git/hooks/post-checkout` or
# `../.bashrc` if the index said so, and `git commit` would change `.git/config` if the list of
# conflicts did.
_LARGEST_STATE = 64 << 20
# A part of a path that git refuses, on any file system.
_UNSAFE = re.compile(rb"(?:^|/)(?:\.git[. ]*|git~\d+|\.{0,2})(?:/|$)", re.IGNORECASE)
# A conflict, with the number of its resolution; with a negative one git would look for others.
_CONFLICT = re.compile(rb"[0-9a-f]{40,64}(?:\.\d+)?\t([^\0]+)")

_ENTRY = struct.Struct(">24xI32xH")
_NAME_LENGTH, _IS_EXTENDED, _FOLDER = 0xFFF, 0x4000, 0o040000
# Those that have no entries, and do not say where entries are.
_EXTENSIONS = frozenset((b"TREE", b"REUC", b"UNTR", b"FSMN", b"sdir"))
_HASH = 20
# Git looks for this one by its distance from the end, whatever is around it.
_END_OF_ENTRIES = b"EOIE"


class GitSetting(NamedTuple):
    """One line of a configuration."""

    section: str
    subsection: str | None
    key: str
    value: str

    @property
    def kind(self) -> tuple[str, bool, str]:
        return self.section, self.subsection is not None, self.key


def is_written_by_git(root: str, layers: Sequence[str], path: str) -> bool:
    """Return whether a file has nothing in it but what git writes by itself. The layers are those
    of the root, the top one first."""
    name = path.rpartition("/")[2]
    if name not in _WRITTEN_BY_GIT and _REFERENCES not in path:
        return False
    if name == "index" and _REFERENCES not in path:
        return is_harmless_index(read_merged(layers, path, most=_LARGEST_STATE) or b"")
    where = Surroundings(root, path, lambda path: read_merged(layers, path))
    new = where.read(path)
    without = path.replace(_REFERENCES, "/", 1)
    if new is None or not GIT_FOLDERS.isdisjoint(normalised(without).split("/")):
        return False  # a hook, for example
    if without != path:
        return _REFERENCE_LINES.fullmatch(new) is not None
    if name == "MERGE_RR":
        return is_harmless_conflict_list(new)
    # What is applied takes the place of what is on disk, whatever is pending.
    disk = f"{root}/{path}"
    if name != "config":
        return not os.path.lexists(disk) and is_harmless_pointer(new, where)
    old = read_merged((root,), path) if os.path.lexists(disk) else b""
    return old is not None and is_harmless_config(new, old, where)


def read_config(data: bytes) -> list[GitSetting] | None:
    """Return the settings as git reads them, or None for anything out of the ordinary."""
    try:
        text = data.decode() if len(data) <= _LARGEST_CONFIG else "\0"
    except UnicodeDecodeError:
        return None
    if _CONTROL.search(text):
        return None
    section: tuple[str, str | None] | None = None
    settings = []
    for line in text.split("\n"):
        if _EMPTY.fullmatch(line):
            continue
        if found := _SECTION.fullmatch(line):
            section = found[1].lower(), found[2]
        elif section and (found := _SETTING.fullmatch(line)):
            quoted, plain = found[2], found[3]
            value = plain.rstrip(" ") if quoted is None else quoted
            value = re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], value)
            settings.append(GitSetting(*section, found[1].lower(), value))
        else:
            return None
    return settings


class Surroundings(NamedTuple):
    """Where a repository's file is, and what the command left around it."""

    root: str
    path: str
    # Returns a file's content as the command left it, by its path in the root; None if there is
    # no such file, or a link on the way to it.
    read: Callable[[str], bytes | None]

    @property
    def folder(self) -> str:
        return os.path.dirname(f"{self.root}/{self.path}")

    def resolved(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.folder, path))


def is_harmless_config(new: bytes, old: bytes, where: Surroundings) -> bool:
    """Return whether a configuration differs from the old one only in what git writes itself."""
    settings, known = read_config(new), read_config(old)
    if settings is None or known is None:
        return False
    # In the same order: what is included, and what comes twice, depends on it.
    if [s for s in settings if s.kind not in _EXEMPT] != [
        s for s in known if s.kind not in _EXEMPT
    ]:
        return False
    remotes = _remotes(settings)
    # The name of a remote that no longer exists would be taken for a path.
    lost = _remotes(known) - remotes
    if any(setting.value in lost for setting in settings):
        return False
    return all(s in known or _is_harmless(s, remotes, where) for s in settings)


def _remotes(settings: Sequence[GitSetting]) -> set[str | None]:
    return {s.subsection for s in settings if s.section == "remote" and s.key == "url"}


def _is_harmless(setting: GitSetting, remotes: set[str | None], where: Surroundings) -> bool:
    kind, value = setting.kind, setting.value
    if setting.subsection is not None and not re.fullmatch(_NAME, setting.subsection):
        return False
    if kind in _ADDRESSES:
        return _is_harmless_address(value, where)
    if kind == _REMOTE:
        return value in remotes or value == "."
    if kind == _WORKTREE:
        return _is_module(value, where)
    return re.fullmatch(_HARMLESS[kind], value) is not None


def _is_harmless_address(address: str, where: Surroundings) -> bool:
    if "::" in address or re.search("%[01]", address) or _CONTROL.search(address):
        return False
    if _SCP.fullmatch(address) or _URL.fullmatch(address):
        return True
    if not (found := _FILE.fullmatch(address)):
        return False
    # A push runs the hooks of the repository there, and a command could lead it, by a link, to one
    # that nobody has reviewed.
    path = unquote(found[1]) if address.startswith("file:") else found[1]
    places = {os.path.normpath(path), os.path.realpath(path)}
    return not any(
        is_inside(place, where.root) or not _UNREVIEWED.isdisjoint(place.split("/"))
        for place in places
    )


def _is_module(worktree: str, where: Surroundings) -> bool:
    """Return whether this is the worktree of the module that the configuration is for.

    Git writes files there, so it must be a folder of the project that leads back to the module.
    """
    if not _INNER.fullmatch(where.folder) or not worktree.startswith("../"):
        return False
    if os.path.normpath(worktree) != worktree:
        return False  # a ".." after a name leads elsewhere if the name is a link
    place = where.resolved(worktree)
    if not is_inside(place, where.root) or place == where.root:
        return False
    inside = place[len(where.root) + 1 :]
    if ".git" in normalised(inside).split("/"):
        return False
    found = _POINTER.fullmatch(where.read(f"{inside}/.git") or b"")
    return bool(
        found
        and found[1]
        and os.path.normpath(os.path.join(place, os.fsdecode(found[2]))) == where.folder
    )


def is_harmless_pointer(data: bytes, where: Surroundings) -> bool:
    """Return whether a new file leads git only to folders in which is_obeyed() knows what it obeys.

    These are the files of a module or a worktree that git has just made.
    """
    found = _POINTER.fullmatch(data)
    if not found:
        return False
    prefix, target = found[1], os.fsdecode(found[2])
    place = where.resolved(target)
    if os.path.basename(where.path) == ".git":
        # In a repository around it: the way to another one may become a link that leads outside.
        outer = _INNER.fullmatch(place)
        is_around = outer and is_inside(where.folder, outer[1]) and is_inside(outer[1], where.root)
        return bool(prefix and is_around and os.path.normpath(target) == target)
    inner = _INNER.fullmatch(where.folder)
    if prefix or not inner or "/.git/worktrees/" not in where.folder:
        return False
    if os.path.basename(where.path) == "commondir":
        return target == "../.."
    *way, last = normalised(place[len(inner[1]) :]).split("/")
    return last == ".git" and ".git" not in way and is_inside(place, inner[1])


def is_harmless_conflict_list(data: bytes) -> bool:
    """Return whether git may write to all the files in a MERGE_RR."""
    *conflicts, rest = data.split(b"\0")
    found = [_CONFLICT.fullmatch(conflict) for conflict in conflicts]
    return not rest and all(one is not None and not _UNSAFE.search(one[1]) for one in found)


def is_harmless_index(data: bytes) -> bool:
    """Return whether git may write to all the files in an index. False for everything out of the
    ordinary: a split index, one with a table of blocks, SHA-256."""
    try:
        return _has_safe_entries(data)
    except (struct.error, ValueError, IndexError):
        return False


def _has_safe_entries(data: bytes) -> bool:
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4) or _END_OF_ENTRIES in data[-100:]:
        return False
    at, name = 12, b""
    for _number in range(count):
        mode, flags = _ENTRY.unpack_from(data, at)
        start = at + _ENTRY.size + (2 if flags & _IS_EXTENDED else 0)
        kept = b""
        if version == 4:
            removed, start = _variable_length(data, start)
            if removed > len(name):
                return False
            kept = name[: len(name) - removed]
        end = data.index(b"\0", start)
        name = kept + data[start:end]
        # Git goes by the length, if it is there.
        if flags & _NAME_LENGTH != min(len(name), _NAME_LENGTH):
            return False
        if _UNSAFE.search(name[:-1] if mode == _FOLDER and name.endswith(b"/") else name):
            return False
        at = end + 1 if version == 4 else at + ((end - at + 8) & ~7)
    while at < len(data) - _HASH:
        extension, size = struct.unpack_from(">4sI", data, at)
        if extension not in _EXTENSIONS:
            return False
        at += 8 + size
    return at == len(data) - _HASH


def _variable_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) + (data[at] & 0x7F)
    return value, at + 1
