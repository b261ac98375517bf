# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what a repository still needs of a run that is undone: the user may have committed on top
of the command's commit, given it to a branch, or used a repository that the command made."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ....files.dirfd import folders_above, open_regular_file
from ...swap import Item
from .index import read_index
from .objects import pack_ids

# A file of objects, in the repository `git`.
_OBJECT = re.compile(
    r"(?:(?P<git>.*)/)?(?P<inner>objects/(?:[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})"
    r"|pack/pack-[0-9a-f]+\.\w+))",
    re.DOTALL,
)
_PACK_INDEX = re.compile(r"objects/pack/[^/]+\.idx", re.DOTALL)
# What refers to objects: the files in the repository itself, and those in these folders.
_FOLDERS = ("refs", "logs", "worktrees", "rebase-merge", "rebase-apply", "sequencer")
# Among those, objects, and the repositories of submodules, which are judged by themselves.
_SKIPPED = ("objects", "modules")
# Where a pending change may refer to objects, or be one that refers to others.
_WAITING = ("objects", "refs", "packed-refs", "HEAD", "index")
_ID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
_LARGEST = 256 << 20
# Enough to tell what kind of object it is.
_HEADER = 64

_Key = tuple[str, int]


def needed_by_git(
    items: Sequence[Item],
    staged: Callable[[Item, int], bytes],
    waiting: Iterable[str],
    since: float,
) -> set[_Key]:
    """Return the changes, by run and number, that an undo must not take back: those of objects that
    are needed, and of the folders around them; and all of a new repository that is in use.

    `items` are the steps of the undo, `staged` returns the content that one puts into the project,
    up to a size. `waiting` are the paths of pending changes. The runs began at the time `since` or
    later.
    """
    removed: dict[str, dict[str, _Key]] = {}
    for item in items:
        if item.does != "remove":
            continue
        folder, _, name = f"{item.root}/{item.path}".rpartition("/")
        if found := _OBJECT.fullmatch(item.path):
            git = "/".join(filter(None, (item.root, found["git"])))
            removed.setdefault(git, {})[found["inner"]] = item.run, item.number
        elif name == "HEAD" and os.path.isdir(f"{folder}/objects"):
            removed.setdefault(folder, {})
    inside: dict[str, list[Item]] = {git: [] for git in removed}
    for item in items:
        for folder in folders_above(f"{item.root}/{item.path}"):
            if folder in inside:
                inside[folder].append(item)
    pending = {
        folder
        for path in waiting
        for folder in folders_above(path)
        if folder in removed and path[len(folder) + 1 :].split("/")[0] in _WAITING
    }
    used: set[_Key] = set()
    for git, objects in removed.items():
        names = set(objects)
        # What cannot be read may need all of them, and so may what is not yet in the project.
        with contextlib.suppress(OSError, ValueError, zlib.error):
            repository = _Repository(git, objects, _contents(git, inside[git], staged), since)
            if repository.is_new_and_used():
                used |= {(item.run, item.number) for item in inside[git]}
            elif git not in pending:
                names = repository.used()
        used |= {objects[name] for name in names}
    around = {
        f"{item.root}/{folder}"
        for item in items
        if (item.run, item.number) in used
        for folder in folders_above(item.path)
    }
    folders = (item for item in items if item.does == "rmdir")
    return used | {(i.run, i.number) for i in folders if f"{i.root}/{i.path}" in around}


def _refers(name: str) -> bool:
    """Return whether a file of a repository, other than an object, may name objects."""
    parts = name.split("/")
    return len(parts) == 1 or (parts[0] in _FOLDERS and not set(_SKIPPED).intersection(parts))


def _contents(
    git: str, items: Sequence[Item], staged: Callable[[Item, int], bytes]
) -> dict[str, bytes | None]:
    """Return what the files in a repository will have, None for those that will be gone. Of most
    objects it is enough that they are there."""
    found: dict[str, bytes | None] = {}
    for item in items:
        name = f"{item.root}/{item.path}"[len(git) + 1 :]
        if item.does == "put":
            is_read = _refers(name) or _PACK_INDEX.fullmatch(name)
            found[name] = staged(item, _LARGEST) if is_read else b""
        elif item.does == "remove":
            found[name] = None
    return found


class _Repository:
    """A repository as it will be; `after` has what changes in it, with None for what goes."""

    def __init__(
        self, git: str, removed: Iterable[str], after: Mapping[str, bytes | None], since: float
    ) -> None:
        self._git = git
        self._removed = set(removed)
        self._after = after
        self._since = since
        # The names with a hash of 64 digits are the long ones.
        self._width = 32 if any(len(name) > 70 for name in self._removed) else 20

    def is_new_and_used(self) -> bool:
        """Return whether the undo would remove HEAD, and leave objects or references."""
        if self._after.get("HEAD", b"") is not None:
            return False
        return any(
            self._after.get(name, b"") is not None
            for folder in ("objects", "refs")
            for name in self._files(folder)
        )

    def used(self) -> set[str]:
        """Return the removed files that are referred to; all of them if the reference may be inside
        a pack, which is not read."""
        packed = self._packed()
        todo, seen = [*self._references()], set[str]()
        used: set[str] = set()
        while todo:
            id_ = todo.pop()
            if id_ in seen:
                continue
            seen.add(id_)
            name = f"objects/{id_[:2]}/{id_[2:]}"
            if name in self._removed:
                used.add(name)
            if self._after.get(name) is not None:
                continue  # older than the run
            try:
                todo += self._ids_in(name)
            except FileNotFoundError:
                if bytes.fromhex(id_) in packed:
                    return self._removed
        return used

    def _packed(self) -> set[bytes]:
        """Return the ids in packs that go or are newer than the run, without those that are in
        other packs, too."""
        new, old = set[bytes](), []
        there = set(self._files("objects/pack"))
        for name in filter(_PACK_INDEX.fullmatch, there | self._after.keys()):
            is_gone = self._after.get(name, b"") is None
            if name in there and (is_gone or (name not in self._after and self._is_newer(name))):
                new |= self._ids_of_pack(name)
            elif not is_gone:
                old.append(name)
        for name in old if new else ():
            new -= self._ids_of_pack(name)
        return new

    def _ids_of_pack(self, name: str) -> frozenset[bytes]:
        data = self._after.get(name)
        return pack_ids(_read(f"{self._git}/{name}") if data is None else data, self._width)

    def _is_newer(self, name: str) -> bool:
        return os.lstat(f"{self._git}/{name}").st_ctime >= self._since

    def _references(self) -> Iterator[str]:
        """Yield the ids that are named outside the objects."""
        packs = any(name.endswith(".pack") for name in self._removed)
        lists = ["reftable", *(["objects/pack/multi-pack-index"] if packs else [])]
        if any(os.path.lexists(f"{self._git}/{n}") and self._is_newer(n) for n in lists):
            raise ValueError  # of references, or of what is in which pack: not read here
        there = {name for folder in ("", *_FOLDERS) for name in self._files(folder)}
        for name in {*there, *filter(_refers, self._after)}:
            data = self._after[name] if name in self._after else _read(f"{self._git}/{name}")
            if data is not None and data.startswith(b"DIRC"):
                yield from (entry.id.hex() for entry in read_index(data))
            elif data is not None:
                yield from (id_.decode() for id_ in _ID.findall(data))

    def _files(self, folder: str) -> Iterator[str]:
        """Yield the files in a folder of the repository; "" is the repository, without folders.
        Raise OSError for a folder that cannot be read, and ValueError for a link."""
        left = [folder]
        while left:
            folder = left.pop()
            if not os.path.lexists(f"{self._git}/{folder}"):
                continue
            with os.scandir(f"{self._git}/{folder}") as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_symlink() and folder:
                        raise ValueError
                    if entry.is_file(follow_symlinks=False):
                        yield name
                    elif entry.is_dir() and folder and entry.name not in _SKIPPED:
                        left.append(name)

    def _ids_in(self, name: str) -> list[str]:
        """Return the ids of the objects that a loose object refers to, if it is not too old."""
        if not self._is_newer(name):
            return []
        unpacking = zlib.decompressobj()
        with open_regular_file(f"{self._git}/{name}") as file:
            data = unpacking.decompress(file.read(_HEADER), _HEADER)
            if data.startswith(b"blob "):
                return []
            data += unpacking.decompress(unpacking.unconsumed_tail + file.read(_LARGEST), _LARGEST)
        if not unpacking.eof:
            raise ValueError
        kind, _, content = data.partition(b"\0")
        if not kind.startswith(b"tree "):
            return [id_.decode() for id_ in _ID.findall(content)]
        found, at = [], 0
        while at < len(content):
            end = content.index(b"\0", at) + 1
            found.append(content[end : end + self._width].hex())
            at = end + self._width
        return found


def _read(path: str) -> bytes:
    with open_regular_file(path) as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError
    return data
