# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognises git repositories, and the files that git's configuration makes it run or read.

The configuration is read as text; git itself is not run. Looking for repositories deep in the
project takes a walk, so that happens only if a change may be a hook.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from ....files.dirfd import folders_above, follow_links, open_regular_file
from ....paths import is_inside
from ...change import Type
from ...roots import is_git_folder
from ..risky import normalised
from .config import own_config
from .hooks import (
    HOOKS,
    MANAGED_NAMES,
    MANAGERS,
    MODULES,
    RUNS_MODULES,
    manifest_commands,
    named_in,
    settings_in,
    words_in,
)

_LARGEST = 1 << 20
# Limits that no real repository reaches.
_MOST = 500
_MOST_TARGETS = 5_000
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*"\s*)?\]')
_SETTING = re.compile(r"\s*([a-zA-Z][\w-]*)\s*=(.*)")
# A quoted part, or up to a comment.
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|((?:[^"\\#;]|\\.)+)')
# The ends of keys whose values are paths.
_PATHS = ("dir", "directory", "file", "path", "template")
# The prefixes of git-flow's branches look like folders.
_NOT_FILES = frozenset(("gitflow", "safe"))
# Values that are no files: a repository there is looked at as such, and references.
_ADDRESSES = frozenset(
    (
        ("remote", "url"), ("remote", "pushurl"), ("submodule", "url"), ("remote", "fetch"),
        ("branch", "merge"), ("branch", "remote"), ("core", "worktree"), ("user", "name"),
        ("user", "email"),
    )
)  # fmt: skip


class GitTargets:
    """The files and folders in one root of a project that git's configuration leads to."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folders: set[str] = set()
        self._files: set[str] = set()
        # Folders of which only programs are run.
        self._programs: set[str] = set()
        # All folders above one of them.
        self._parents: set[str] = set()
        # Folders of which Python imports modules while it runs a hook.
        self._imports: set[str] = set()
        # Where the user has the hooks of every repository, also of those that a command makes.
        self._common_hooks: tuple[str, ...] = ()
        self._known: set[str] = set()
        # For the present repository: the configuration that was read, and how many more targets
        # may be added.
        self._read: set[str] = set()
        self._left = _MOST_TARGETS
        # Whether a hook manager takes its settings from package.json.
        self.reads_manifests = False
        # There were too many names to look for: any program may be run.
        self._is_any_program = False
        # A limit was reached, so the configuration may lead anywhere.
        self._is_all = False

    @classmethod
    def of(cls, root: str, others: Iterable[str] = ()) -> GitTargets:
        """Read the repositories that the root is in, and those directly below it; the same of other
        roots, whose configuration may lead here.

        Those below may share a folder of hooks. The scan adds others when it finds changes in
        them; for the rest, see NestedRepositories.
        """
        found = cls(root)
        for file in own_config():
            found._add(file, found._files)
            found._add_common_hooks(file)
        for one in dict.fromkeys((root, *others)):
            # The user's own configuration counts without a repository, too.
            found.add_repository(one, is_new=True)
            # All the way up: git skips what only looks like a repository.
            for folder in map(str, PurePath(one).parents):
                found.add_repository(folder)
            with contextlib.suppress(OSError), os.scandir(one) as entries:  # the scan reports it
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        found.add_repository(entry.path)
        return found

    def add_repository(
        self, worktree: str, pointer: bytes | None = None, *, is_new: bool = False
    ) -> None:
        """Read the configuration of the repository in this folder, if there is one: one that a
        command makes may not be on the disk, and a new `.git` file may lead to another."""
        own = f"{worktree}/.git"
        if worktree in self._known:
            return
        self._add_mercurial(worktree)
        if not is_new and not os.path.lexists(own):
            return
        self._known.add(worktree)
        # Limits are for each repository: a command can make as many as it likes.
        self._read, self._left = set(), _MOST_TARGETS
        if not os.path.isdir(own):
            # The file of a worktree or a submodule says where the repository is.
            text = _read(own) if pointer is None else os.fsdecode(pointer)
            if place := (text or "").partition("gitdir:")[2].strip():
                own = os.path.join(worktree, place)
        # Of a new worktree, this file is not there yet.
        up = "../.." if "/worktrees/" in own else ""
        common = os.path.normpath(os.path.join(own, (_read(f"{own}/commondir") or up).strip()))
        # What is in a repository is judged there, but not what its links lead to, or its hooks run.
        for folder in (own, common, f"{common}/info"):
            self._add_linked(folder)
        self._add_scripts(f"{common}/hooks", worktree)
        for line in (_read(f"{common}/objects/info/alternates") or "").splitlines():
            place = os.path.normpath(f"{common}/objects/{line}") if line[:1] != "/" else line
            if not is_git_folder(os.path.dirname(place.rstrip("/"))):
                self._add(place, self._folders)
        for file in (*own_config(), f"{common}/config", f"{own}/config.worktree"):
            # Git's own limit for nested includes.
            self._add_config(file, worktree, common, 10)

    @property
    def _has_targets(self) -> bool:
        found = (self._parents, self._common_hooks, self._imports, self._is_any_program)
        return any(map(bool, found))

    def covers(self, path: str, *, is_new_folder: bool = False, is_program: bool = False) -> bool:
        """Return whether a path is a target, is in one, or replaces a folder above one."""
        if self._is_all or not self._has_targets:
            return self._is_all
        plain = normalised(path)
        if self._is_common_hook(plain) or self._is_import(path, plain):
            return True
        if plain in self._parents and not is_new_folder:
            return True
        if is_program and (
            self._is_any_program or not self._programs.isdisjoint(folders_above(plain))
        ):
            return True
        return plain in self._files or self._is_in_folder(plain)

    def is_near(self, folder: str) -> bool:
        """Return whether covers() may be true for something directly in the folder."""
        if self._is_all or not self._has_targets:
            return self._is_all
        plain = normalised(folder.rstrip("/"))
        if f"/{plain}".endswith(self._common_hooks):
            return True
        around, _, name = plain.rpartition("/")
        if plain in self._imports or (around in self._imports and name in MODULES):
            return True
        return plain in self._parents or self._is_in_folder(plain)

    def _is_in_folder(self, plain: str) -> bool:
        return plain in self._folders or any(
            parent in self._folders for parent in folders_above(plain)
        )

    def _add_common_hooks(self, file: str) -> None:
        for _section, key, value in _settings(_read(file) or ""):
            place = normalised(os.path.normpath(os.path.expanduser(value)))
            if key == "hookspath" and not place.startswith(("/", "..")) and place.strip("./"):
                self._common_hooks += (f"/{place}",)

    def _is_common_hook(self, plain: str) -> bool:
        folder, _, name = f"/{plain}".rpartition("/")
        # A link may be in the place of the folder.
        is_hook = name in HOOKS and folder.endswith(self._common_hooks)
        return is_hook or f"/{plain}".endswith(self._common_hooks)

    def _is_import(self, path: str, plain: str) -> bool:
        """Return whether a new file would be imported in the place of a module that a hook needs.
        One that is there already has been imported before."""
        folder, _, name = plain.rpartition("/")
        stem, _, end = name.partition(".")
        if stem == "__init__":
            folder, _, stem = folder.rpartition("/")
        is_code = end in ("", "py", "pyc") or end.endswith("so")
        is_module = is_code and folder in self._imports and stem in MODULES
        return is_module and not os.path.lexists(f"{self._root}/{path}")

    def _add_config(self, file: str, worktree: str, common: str, deep: int) -> None:
        real = os.path.realpath(file)
        if self._is_all or real in self._read:
            return
        text = _read(file)
        if text is None or (text and len(self._read) >= _MOST):
            self._is_all = True
            return
        if text:
            self._read.add(real)
        for section, key, value in _settings(text):
            if key == "hookspath":
                # Hooks that run on a push run in the repository's own folder.
                for place in (worktree, common):
                    folder = os.path.join(place, os.path.expanduser(value))
                    self._add_hooks(folder, worktree, common)
            elif key == "path" and section.startswith("include") and deep:
                included = os.path.join(os.path.dirname(file), os.path.expanduser(value))
                self._add(included, self._files)
                self._add_config(included, worktree, common, deep - 1)
            elif section == "gitflow" and key == "hooks":
                self._add(os.path.join(worktree, os.path.expanduser(value)), self._folders)
            elif section == "alias" and not value.startswith(("!", "-")):
                continue  # a command of git's
            elif section not in _NOT_FILES and (section, key) not in _ADDRESSES:
                self._add_named(value, worktree, is_path=key.endswith(_PATHS))

    def _add_named(self, value: str, worktree: str, *, is_path: bool = False) -> None:
        """Add the targets that a value names: a file, a folder, or a command with files in it.

        A word without a slash is only a path if its key says so: `main` may be a branch.
        """
        whole = os.path.join(worktree, os.path.expanduser(value))
        if is_path:
            self._add(whole, self._files)
        if (is_path or "/" in value) and os.path.isdir(whole):
            # Some keys list repositories.
            is_repository = os.path.lexists(f"{whole}/.git") or is_inside(worktree, whole)
            if not is_repository and not is_inside(self._root, os.path.realpath(whole)):
                self._add(whole, self._folders)
            return
        words = value.split()
        for folder in os.environ.get("PATH", "").split(":"):
            if words and "/" not in words[0] and is_inside(folder, worktree):
                self._add(f"{folder}/{words[0]}", self._files)
        if len(words) > 1 or "/" in value:
            self._add_text(value, worktree, worktree)

    def _add_scripts(self, folder: str, worktree: str) -> None:
        """Add the files that the hooks in a folder run or that their managers read."""
        if os.path.basename(folder.rstrip("/")) == "_":
            # Husky's hooks run those of the folder around them.
            around = os.path.dirname(os.path.normpath(folder))
            if not is_inside(worktree, around):
                self._add(around, self._folders)
                self._add_scripts(around, worktree)
        left = _MOST
        for at, _, names in os.walk(folder):
            self._add_linked(at)
            hooks = [name for name in sorted(names) if not name.endswith(".sample")][:left]
            for name in hooks:
                self._add_script(_read(f"{at}/{name}") or "", worktree, folder)
            left -= 1 + len(hooks)
            if left <= 0:
                return

    def _add_script(self, text: str, worktree: str, folder: str) -> None:
        """Add the files that a hook runs, and those that its manager reads and runs."""
        texts = [text]
        if MANAGERS.search(text):
            self.reads_manifests = True
            for name in (*MANAGED_NAMES, *settings_in(text)):
                self._add(f"{worktree}/{name}", self._folders if name[-1] == "/" else self._files)
                texts.append(_read(f"{worktree}/{name}") or "")
            texts.append(manifest_commands(_read(f"{worktree}/package.json") or "", text))
        for one in dict.fromkeys(texts):
            self._add_text(one, worktree, folder)

    def _add_text(self, text: str, worktree: str, folder: str) -> None:
        kinds = (self._files, self._folders, self._programs)
        named = named_in(text, worktree, folder)
        for names, to in zip(named, kinds, strict=True):
            for name in names:
                self._add(name, to)
        if worktree in named.programs and is_inside(self._root, worktree):
            self._is_any_program = True
        # By its whole path, as from another root.
        whole = words_in(text) if f"{self._root}/" in text else ()
        for word in (word for word in whole if word.startswith(f"{self._root}/")):
            self._add(word, self._files)
        if RUNS_MODULES.search(text) and is_inside(worktree, self._root):
            self._imports.add(normalised(worktree[len(self._root) + 1 :]))

    def _add_mercurial(self, worktree: str) -> None:
        """Read the settings of a Mercurial or Sapling repository in this folder, if it is one."""
        for file in (".hg/hgrc", ".sl/config"):
            text = _read(f"{worktree}/{file}") or ""
            for included in re.findall(r"(?m)^%include\s+(\S.*)", text):
                place = os.path.join(worktree, os.path.dirname(file), os.path.expanduser(included))
                self._add(place, self._files)
            for _section, _key, value in _settings(text):
                # An extension or a Python hook is the path of a module.
                module = value.removeprefix("python:").partition(".py:")[0]
                for name in (module, f"{module}.py"):
                    self._add_named(name, worktree)

    def _add_hooks(self, folder: str, worktree: str, common: str) -> None:
        real = os.path.realpath(folder)
        if real in map(os.path.realpath, (worktree, common, self._root)):
            # Most files in there are not hooks.
            for name in sorted(HOOKS):
                self._add(f"{folder}/{name}", self._files)
        else:
            self._add(folder, self._folders)
            self._add_linked(folder)
            self._add_scripts(folder, worktree)

    def _add_linked(self, folder: str) -> None:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                real = os.path.realpath(entry.path)
                if entry.is_symlink() and "/.git/" not in normalised(real):
                    target = os.path.join(folder, os.readlink(entry.path))
                    self._add(target, self._folders if os.path.isdir(real) else self._files)

    def _add(self, path: str, to: set[str]) -> None:
        # By its name, with links resolved, and each link on the way.
        for place in () if self._is_all else _ways(path):
            if place.startswith(f"{self._root}/"):
                inside = normalised(place[len(self._root) + 1 :])
                self._is_all = not self._left
                if self._is_all:
                    return
                self._left -= inside not in to
                to.add(inside)
                self._parents.update(folders_above(inside), ("",))


def _ways(path: str) -> Iterable[str]:
    """Return the names of a file: its path, the links on the way, and where they lead."""
    links: dict[str, None] = {}

    def target_of(place: str) -> str | None:
        try:
            target = os.readlink(place)
        except OSError:
            return None  # the last ones may not be there yet
        links[place] = None
        return target

    # A link to itself, or no path at all: a NUL, for example, in what a command wrote.
    with contextlib.suppress(OSError, ValueError):
        links[follow_links(os.path.join(os.getcwd(), path), target_of)] = None
    return dict.fromkeys((os.path.normpath(path), *links))


def _read(file: str) -> str | None:
    """Return the text of a file, "" if there is none, or None if it is too large.

    A link may lead to anything, for example to a pipe.
    """
    try:
        with open_regular_file(file, follow_links=True) as opened:
            # Files of /proc have the size 0, and are not read.
            size = os.fstat(opened.fileno()).st_size
            if size > _LARGEST:
                return None
            data = opened.read(size)
    except (OSError, ValueError):
        return ""
    # A path has no NUL. Some programs begin a text with a byte order mark.
    return "" if b"\0" in data else os.fsdecode(data.removeprefix(codecs.BOM_UTF8))


def _settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section and the key in lower case, and the value."""
    section = ""
    # A backslash at the end joins two lines, but not in a comment or after another one. Nothing is
    # missed if the lines are read both ways.
    joined = re.sub(r"\\\r?\n", "", text)
    for line in (text if joined == text else f"{joined}\n{text}").splitlines():
        at = 0
        while found := _SECTION.match(line, at):
            section, at = found[1].lower(), found.end()
        if found := _SETTING.match(line, at):
            yield section, found[1].lower(), _value(found[2])


def _value(text: str) -> str:
    parts = []
    at = 0
    while found := _PART.match(text, at):
        quoted, plain = found[1], found[2]
        parts.append(re.sub(r"\\(.)", r"\1", plain if quoted is None else quoted))
        at = found.end()
    return "".join(parts).strip()


# Limits of the search. Beyond them, everything with the name of a hook counts as a hook.
_MOST_FOLDERS = 10_000
_MOST_NAMES = 200_000
_MOST_FOUND = 500
# Folders that are not searched; the second one contains no work of the user's.
_SKIPPED_FOLDERS = frozenset((".git", "node_modules"))


class NestedRepositories:
    """Finds repositories deep inside a root. It searches once, and only for a possible hook."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._targets: GitTargets | None = None
        self._is_whole = True

    def covers(self, path: str, type_: Type, old_type: Type | None, *, is_program: bool) -> bool:
        """Return whether a nested repository's configuration leads to this change.

        Only executable files with the name of a hook are looked at, and links.
        """
        is_link = type_ is Type.LINK
        # First, because it is quick: there may be a hundred thousand changes, and few hooks.
        if not is_link and not is_program:
            return False
        is_named = normalised(os.path.basename(path)) in HOOKS
        if not is_link and not is_named:
            return False
        if self._targets is None:
            found, self._is_whole = _repositories(self._root)
            self._targets = GitTargets(self._root)
            for worktree in found:
                self._targets.add_repository(worktree)
        if self._targets.covers(path):
            return True
        return not self._is_whole and (is_named or (is_link and old_type is Type.FOLDER))


def _repositories(root: str) -> tuple[list[str], bool]:
    """Return the folders with a repository, and whether the search was complete."""
    found: list[str] = []
    names = 0
    for number, (folder, folders, files) in enumerate(os.walk(root)):
        names += len(folders) + len(files)
        if any(name.casefold() == ".git" for name in (*folders, *files)):
            found.append(folder)
        folders[:] = [name for name in folders if name.casefold() not in _SKIPPED_FOLDERS]
        if names > _MOST_NAMES or number > _MOST_FOLDERS or len(found) > _MOST_FOUND:
            return found, False
    return found, True
