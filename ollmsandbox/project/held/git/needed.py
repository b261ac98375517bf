# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the objects of a run that its repository still needs when the run is undone: the user may
have committed on top of the command's commit, or given it to a branch."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ....files.dirfd import folders_above, open_regular_file
from ...swap import Item
from .index import read_index
from .objects import id_width, pack_ids

_OBJECT = re.compile(
    r"(?:(?P<git>.*)/)?(?P<inner>objects/(?:[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})"
    r"|pack/pack-[0-9a-f]+\.\w+))",
    re.DOTALL,
)
# Beside the files in the folder itself, which are named in capitals, or are an index.
_FOLDERS = ("refs", "logs", "worktrees", "rebase-merge", "rebase-apply", "sequencer")
_ID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
_MOST = 256 << 20

_Key = tuple[str, int]


def objects_in_use(
    items: Sequence[Item], staged: Callable[[Item], bytes], since: float
) -> set[_Key]:
    """Return the changes, by run and number, that an undo must not take back: those of objects that
    are needed, and of the folders around them.

    `items` are the steps of the undo, `staged` returns the content that one puts into the project.
    The runs began at the time `since` or later.
    """
    removed: dict[str, dict[str, _Key]] = {}
    for item in items:
        if item.does == "remove" and (found := _OBJECT.fullmatch(item.path)):
            git = "/".join(filter(None, (item.root, found["git"])))
            removed.setdefault(git, {})[found["inner"]] = item.run, item.number
    used: set[_Key] = set()
    for git, objects in removed.items():
        names = set(objects)
        # What cannot be read may need all of them.
        with contextlib.suppress(OSError, ValueError, zlib.error):
            names = _Repository(git, objects, _contents(git, items, staged), since).used()
        used |= {objects[name] for name in names}
    around = {
        f"{item.root}/{folder}"
        for item in items
        if (item.run, item.number) in used
        for folder in folders_above(item.path)
    }
    folders = (item for item in items if item.does == "rmdir")
    return used | {(i.run, i.number) for i in folders if f"{i.root}/{i.path}" in around}


def _contents(
    git: str, items: Sequence[Item], staged: Callable[[Item], bytes]
) -> dict[str, bytes | None]:
    """Return what the files in a repository will have; for an object it is enough that it is
    there."""
    found: dict[str, bytes | None] = {}
    for item in items:
        path = f"{item.root}/{item.path}"
        if item.does in ("put", "remove") and path.startswith(f"{git}/"):
            name = path[len(git) + 1 :]
            is_read = not name.startswith("objects/") or name.endswith(".idx")
            content = staged(item) if item.does == "put" and is_read else b""
            found[name] = content if item.does == "put" else None
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

    def used(self) -> set[str]:
        """Return the removed files that something refers to: all if it may be one of a pack."""
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
            found = _ids_in_object(f"{self._git}/{name}", len(id_) // 2)
            if found is None and bytes.fromhex(id_) in packed:
                return self._removed
            todo += found or []
        return used

    def _packed(self) -> set[bytes]:
        """Return the ids that are only in packs that go, or that are newer than the run: those may
        have what refers to its objects."""
        new, old = set[bytes](), set[bytes]()
        folder = f"{self._git}/objects/pack"
        there = {f"objects/pack/{n}" for n in (os.listdir(folder) if os.path.isdir(folder) else ())}
        for name in filter(re.compile(r".*/pack/pack-\w+\.idx").fullmatch, {*there, *self._after}):
            width = id_width(name[: -len(".idx")])
            if (back := self._after.get(name)) is not None:
                old |= pack_ids(back, width)
            elif name in there:
                is_new = os.lstat(f"{self._git}/{name}").st_ctime >= self._since
                ids = pack_ids(_read(f"{self._git}/{name}"), width)
                (new if is_new or name in self._removed else old).update(ids)
        return new - old

    def _references(self) -> Iterator[str]:
        """Yield the ids that are named outside the objects."""
        for name in {*self._files(), *(n for n in self._after if not n.startswith("objects/"))}:
            data = self._after[name] if name in self._after else _read(f"{self._git}/{name}")
            if data is not None and data.startswith(b"DIRC"):
                yield from (entry.id.hex() for entry in read_index(data))
            elif data is not None:
                yield from (id_.decode() for id_ in _ID.findall(data))

    def _files(self) -> Iterator[str]:
        with os.scandir(self._git) as entries:
            yield from (one.name for one in entries if one.is_file(follow_symlinks=False))
        for folder in _FOLDERS:
            for around, _folders, files in os.walk(f"{self._git}/{folder}"):
                for file in files:
                    if os.path.isfile(path := f"{around}/{file}") and not os.path.islink(path):
                        yield path[len(self._git) + 1 :]


def _ids_in_object(path: str, width: int) -> list[str] | None:
    """Return the ids of the objects that a loose object refers to, or None if there is no file."""
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    unpacking = zlib.decompressobj()
    kind = unpacking.decompress(data, 8)
    if kind.startswith(b"blob "):
        return []
    data = kind + unpacking.decompress(unpacking.unconsumed_tail, _MOST)
    if not unpacking.eof:
        raise ValueError
    kind, _, content = data.partition(b"\0")
    if not kind.startswith(b"tree "):
        return [id_.decode() for id_ in _ID.findall(content)]
    found, at = [], 0
    while at < len(content):
        end = content.index(b"\0", at) + 1
        found.append(content[end : end + width].hex())
        at = end + width
    return found


def _read(path: str) -> bytes:
    with open_regular_file(path) as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise ValueError
    return data
