# SPDX-License-Identifier: GPL-3.0-or-later
"""Verifies the objects that a command left in a repository, and finds those that it deleted.

Git computes no sums when it reads: it believes the name of an object and the index of a pack.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ....files.dirfd import open_regular_file
from ....files.overlayfs import find_in_layers, names_in_layers, read_merged


@dataclass
class Allowance:
    """What is left to be verified of a run, in all its repositories; the rest is held."""

    # The size of loose objects: a small file can be unpacked to any size.
    unpacked: int = 4 << 30
    # Each takes a sandbox, a tenth of a second.
    packs: int = 100
    seconds: float = 120


_MOST_OF_INDEX = 128 << 20
_BLOCK = 1 << 20
# Where the ids begin; their number comes last before them.
_IDS = 8 + 4 * 256

# Returns the index of a pack, given the open pack and the length of its ids in bytes; None if it
# is no pack.
IndexPack = Callable[[int, int], bytes | None]


def pack_ids(data: bytes, width: int) -> frozenset[bytes]:
    """Return the ids in the index of a pack. Raise ValueError if it is no index, or too large."""
    if data[:8] != b"\xfftOc\0\0\0\2" or len(data) < _IDS:
        raise ValueError
    (count,) = struct.unpack_from(">I", data, _IDS - 4)
    end = _IDS + count * width
    if len(data) < end:
        raise ValueError
    return frozenset(data[at : at + width] for at in range(_IDS, end, width))


@dataclass
class Objects:
    """The objects of one repository: the layers of its root, and its folder of objects in there."""

    _layers: Sequence[str]
    _folder: str
    _index_pack: IndexPack
    _left: Allowance
    _made: dict[str, bytes | None] = field(default_factory=dict)
    _packs: list[frozenset[bytes]] | None = None

    def is_right(self, path: str) -> bool:
        """Return whether the content of a loose object hashes to its name."""
        name = "".join(path.rsplit("/", 2)[1:])
        sum_ = hashlib.new("sha1" if len(name) == 40 else "sha256", usedforsecurity=False)
        try:
            with open_regular_file(f"{self._layers[0]}/{path}") as file:
                unpacking = zlib.decompressobj()
                data = file.read(_BLOCK)
                while data and not unpacking.eof:
                    block = unpacking.decompress(data, _BLOCK)
                    sum_.update(block)
                    self._left.unpacked -= len(block)
                    if self._left.unpacked < 0:
                        return False
                    data = unpacking.unconsumed_tail or file.read(_BLOCK)
        except (OSError, zlib.error):
            return False
        return unpacking.eof and not unpacking.unused_data and sum_.hexdigest() == name

    def made_index(self, stem: str) -> bytes | None:
        """Return the index that we make for a pack of the command's, by its path without the
        ending; None if it is no pack."""
        if stem not in self._made:
            self._made[stem] = None
            pack = f"{self._layers[0]}/{stem}.pack"
            with contextlib.suppress(OSError), open_regular_file(pack) as file:
                self._left.packs -= 1
                if self._left.packs >= 0 and self._left.seconds > 0:
                    began = time.monotonic()
                    self._made[stem] = self._index_pack(file.fileno(), id_width(stem))
                    self._left.seconds -= time.monotonic() - began
        return self._made[stem]

    def loses(self, path: str) -> bool:
        """Return whether a deleted object or pack had something that nothing else has."""
        if not path.endswith((".pack", ".idx")):
            return not self._is_packed(bytes.fromhex("".join(path.rsplit("/", 2)[1:])))
        try:
            ids = self._ids(path.rpartition(".")[0])
        except ValueError:
            return True
        return not all(self._is_packed(id_) or self._is_loose(id_.hex()) for id_ in ids)

    def _is_loose(self, name: str) -> bool:
        path = f"{self._folder}/{name[:2]}/{name[2:]}"
        found = find_in_layers(self._layers, path)
        if found is None or not found.is_file:
            return False
        return found.layer == self._layers[-1] or (
            found.layer == self._layers[0] and self.is_right(path)
        )

    def _is_packed(self, id_: bytes) -> bool:
        if self._packs is None:
            self._packs = list(self._remaining())
        return any(id_ in pack for pack in self._packs)

    def _remaining(self) -> Iterator[frozenset[bytes]]:
        """Yield the packs that are left: those of the command's with the index that we make.
        Pending ones do not count: they may be false, or discarded."""
        folder = f"{self._folder}/pack"
        names = set(names_in_layers(self._layers, folder))
        for name in sorted(names):
            stem = f"{folder}/{name.removesuffix('.pack')}"
            if not name.endswith(".pack") or f"{name[:-5]}.idx" not in names:
                continue
            found = find_in_layers(self._layers, f"{stem}.pack")
            try:
                if found is not None and found.layer == self._layers[-1]:
                    yield self._ids(stem)
                elif made := self.made_index(stem):
                    yield pack_ids(made, id_width(stem))
            except ValueError:
                continue

    def _ids(self, stem: str) -> frozenset[bytes]:
        """Return the ids in a pack of the user's, or in one that is pending."""
        found = (read_merged(layers, f"{stem}.idx", most=_MOST_OF_INDEX)
                 for layers in (self._layers[-1:], self._layers[1:]))  # fmt: skip
        return pack_ids(next(filter(None, found), b""), id_width(stem))


def id_width(stem: str) -> int:
    return len(os.path.basename(stem).removeprefix("pack-")) // 2
