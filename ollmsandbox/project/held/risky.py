# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognises, by their paths, files that can run code outside the sandbox, and which of them are
held."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Sequence

from ..change import Flag
from .risky_files import KINDS, RiskyFiles

# What git obeys in a repository. In those that exist, and in every `.git`, `git/table.py` decides;
# this is for a folder with another name that may become one.
_GIT_OBEYS = frozenset((
    "config", "config.worktree", "commondir", "gitdir", "index", "hooks", "remotes", "branches",
    "modules", "worktrees",
))  # fmt: skip
# Of other version control systems, by their folders: files with settings, which may name programs,
# and those that lead to another repository.
_OTHERS = {
    ".hg": frozenset(("hgrc", "hgrc-not-shared", "sharedpath")),
    ".jj": frozenset(("config.toml", "workspace-config.toml", "config-id", "repo", "git_target")),
    ".sl": frozenset(("config", "hgrc", "hgrc-not-shared", "sharedpath")),
    ".pijul": frozenset(("config",)),
    ".bzr": frozenset(("branch.conf", "location", "branch-name")),
    "_darcs": frozenset(("defaults", "prefs")),
}
_DARCS_SETTINGS = "prefs"

# The folder around this package, and what in a checkout is not built.
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__)
))))  # fmt: skip
_NOT_BUILT = frozenset((".git", "docs", "tests"))
# Dependencies that a package manager has put there: what is built in them is not worth a mark.
_DEPENDENCIES = frozenset(("node_modules", "site-packages", "dist-packages"))


class _Patterns:
    """The patterns of one kind of risky files, for quick look-ups."""

    def __init__(self, flag: Flag, files: Sequence[RiskyFiles]) -> None:
        self.flag = flag
        self.all = frozenset(" ".join(each.patterns for each in files).split())
        self.folders = {pattern[:-1] for pattern in self.all if pattern.endswith("/")}
        self.stems = {pattern[:-2] for pattern in self.all if pattern.endswith(".*")}
        self.endings = {pattern[1:] for pattern in self.all if pattern.startswith("*.")}

    def match(self, parts: list[str]) -> bool:
        stem, dot, ending = parts[-1].rpartition(".")
        if dot and stem and (stem in self.stems or f".{ending}" in self.endings):
            return True
        ends = ("/".join(parts[-length:]) for length in _LENGTHS)
        inner = ("/".join(parts[at : at + n]) for at in range(len(parts)) for n in _LENGTHS)
        return not self.all.isdisjoint(ends) or not self.folders.isdisjoint(inner)


_PATTERNS = tuple(_Patterns(*kind) for kind in KINDS)
_STEMS = frozenset().union(*(kind.stems for kind in _PATTERNS))
_ENDINGS = frozenset().union(*(kind.endings for kind in _PATTERNS))
_SPLIT = [pattern.rstrip("/").split("/") for kind in _PATTERNS for pattern in kind.all]
# The numbers of names that patterns have.
_LENGTHS = range(1, max(map(len, _SPLIT)) + 1)
_BEGINNINGS = frozenset("/".join(names[:n]) for names in _SPLIT for n in range(1, len(names)))
_ALL = frozenset(("head", "git~1")).union(
    (names[-1] for names in _SPLIT),
    _GIT_OBEYS, _OTHERS, *_OTHERS.values(),
)  # fmt: skip


def is_plain_folder(folder: str) -> bool:
    """Return whether no part of a folder's path is special: a quick check, true for most."""
    return all(map(is_plain_name, _parts(folder)))


def is_plain_name(name: str) -> bool:
    """Return whether a name is certainly not special: a quick check, true for most."""
    if not name.isascii() or name.endswith((".", " ")):
        return False
    name = name.lower()
    if name in _ALL:
        return False
    stem, dot, ending = name.rpartition(".")
    return not dot or (f".{ending}" not in _ENDINGS and stem not in _STEMS)


def is_git_name(name: str) -> bool:
    """Return whether a name is that of git's folder, on some file system."""
    return not is_plain_name(name) and normalised(name) in (".git", "git~1")


def risk_of(path: str) -> Flag | None:
    """Return when one of the user's programs may run the file, or obey it, without asking."""
    parts = _parts(path)
    # A file or a link with the name of such a folder counts, too: it is in its place.
    for kind in _PATTERNS:
        if kind.flag is Flag.BUILD and not _DEPENDENCIES.isdisjoint(parts):
            break
        if kind.match(parts):
            return kind.flag
    return None


def beginnings_of_risky_paths(path: str) -> set[str]:
    """Return the ends of a path that a risky path may begin with, as with `.venv`."""
    parts = _parts(path)
    return set(_BEGINNINGS.intersection("/".join(parts[-length:]) for length in _LENGTHS))


def builds_this_program(full_path: str) -> bool:
    """Return whether a file is in the checkout that this program runs from, and build-aux/run may
    build or run it: everything but the tests, the documentation and the repository."""
    if not full_path.startswith(f"{CHECKOUT}/"):
        return False
    first = full_path[len(CHECKOUT) + 1 :].partition("/")[0]
    return first not in _NOT_BUILT and os.path.lexists(f"{CHECKOUT}/build-aux/run")


class NamesAround:
    """The names in a root's folders, in any of its layers: of a name that is only pending, too,
    it must be known that it makes a folder a repository."""

    def __init__(self, layers: Sequence[str]) -> None:
        self._layers = layers
        self._known: dict[str, frozenset[str]] = {}

    def names(self, folder: str) -> frozenset[str]:
        if folder not in self._known:
            found: set[str] = set()
            for layer in self._layers:
                try:
                    found.update(os.listdir(f"{layer}/{folder}"))
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError:
                    found.add("HEAD")  # it may be one
            self._known[folder] = frozenset(found)
        return self._known[folder]

    def is_file_on_disk(self, path: str) -> bool:
        """Return whether the project has a file or a link there."""
        try:
            return not stat.S_ISDIR(os.lstat(f"{self._layers[-1]}/{path}").st_mode)
        except OSError:
            return False

    def may_be_repository(self, folder: str) -> bool:
        """Return whether git may take the folder for a repository, now or with a HEAD that is
        not a file yet."""
        names = self.names(folder)
        if "HEAD" in names:
            return True
        plain = {normalised(name) for name in names}
        return "head" in plain and (plain >= {"objects", "refs"} or "commondir" in plain)


def is_obeyed(path: str, around: NamesAround, *, is_deleted: bool = False) -> bool:
    """Return whether a change has to be approved because git, or another version control system,
    would run it or obey it. Not for folders, nor for what is in a repository of git's."""
    names, parts = path.split("/"), _parts(path)
    for position, part in enumerate(parts):
        if part in _OTHERS:
            inner = parts[position + 1 :]
            if not inner or parts[-1] in _OTHERS[part] or inner[0] == _DARCS_SETTINGS:
                return True
    if parts[-1] == "head":
        # It may turn its folder into a repository, whose config git obeys.
        if is_deleted or around.is_file_on_disk(path):
            return False
        return names[-1] == "HEAD" or around.may_be_repository("/".join(names[:-1]))
    return not parts[-1].endswith(".sample") and any(
        part in _GIT_OBEYS and around.may_be_repository("/".join(names[:at]))
        for at, part in enumerate(parts)
    )


def normalised(path: str) -> str:
    """Return one form for all paths that a file system may treat as the same."""
    return "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    # A file system may ignore case, invisible characters, and dots and spaces at the end.
    plain = path.casefold()
    if not plain.isascii():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    parts = plain.split("/")
    return [part.rstrip(". ") for part in parts]
