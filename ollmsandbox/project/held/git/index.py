# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes git's index again, without what a command could hide changes or lead git elsewhere with.

An entry says that a file with these times and this size has this content, and git looks no
further; an extension says so of whole folders. So each entry gets the times of the user's own
index, or none, and extensions are dropped. Git then looks at the files itself.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from ....files.dirfd import open_regular_file
from .table import SAFE_PATH

_HEAD = struct.Struct(">4sII")
# Times, device and inode; the mode; user, group and size; the id; flags.
_ENTRY = struct.Struct(">24sI12s20sH")
_SECONDS = struct.Struct(">8xI")
_NAME_LENGTH, _IS_EXTENDED, _ASSUME_VALID, _SKIP_WORKTREE = 0xFFF, 0x4000, 0x8000, 0x4000
_HASH = 20
LARGEST_INDEX = 128 << 20


class Entry(NamedTuple):
    times: bytes
    mode: int
    owner: bytes
    id: bytes
    flags: int
    more_flags: int
    name: bytes


def read_index(data: bytes) -> list[Entry]:
    """Return the entries. Raise ValueError for everything out of the ordinary: another kind of
    hash, a split or a sparse index."""
    try:
        return _read(data)
    except (struct.error, IndexError) as error:
        raise ValueError from error


def _read(data: bytes) -> list[Entry]:
    signature, version, count = _HEAD.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    at, name = _HEAD.size, b""
    entries = []
    for _number in range(count):
        times, mode, owner, id_, flags = _ENTRY.unpack_from(data, at)
        start, more_flags = at + _ENTRY.size, 0
        if flags & _IS_EXTENDED:
            (more_flags,) = struct.unpack_from(">H", data, start)
            start += 2
        kept = b""
        if version == 4:
            removed, start = _variable_length(data, start)
            if removed > len(name):
                raise ValueError
            kept = name[: len(name) - removed]
        end = data.index(b"\0", start)
        name = kept + data[start:end]
        # Git goes by the length, if it is there.
        if flags & _NAME_LENGTH != min(len(name), _NAME_LENGTH):
            raise ValueError
        entries.append(Entry(times, mode, owner, id_, flags, more_flags, name))
        at = end + 1 if version == 4 else at + ((end - at + 8) & ~7)
    while at < len(data) - _HASH:
        extension, size = struct.unpack_from(">4sI", data, at)
        # Others say that entries are elsewhere, or stand for folders.
        if not extension[:1].isupper():
            raise ValueError
        at += 8 + size
    if at != len(data) - _HASH:
        raise ValueError
    return entries


def _variable_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) + (data[at] & 0x7F)
    return value, at + 1


def is_same_index(one: str, one_dir: int, other: str, other_dir: int) -> bool:
    """Return whether two files are indexes with the same entries. Git also notes there when it last
    looked at each file."""
    found = []
    try:
        for name, dir_fd in ((one, one_dir), (other, other_dir)):
            with open_regular_file(name, dir_fd) as file:
                entries = read_index(file.read(LARGEST_INDEX))
            found.append([entry._replace(times=b"", owner=b"") for entry in entries])
    except (OSError, ValueError):
        return False
    return found[0] == found[1]


def rewritten_index(new: bytes, old: bytes, old_time: int) -> bytes:
    """Return the index that the command left as it may cross. `old` is the user's own, and was
    written at `old_time`. Raise ValueError if it hides files or has paths that git must not write.
    """
    before = {}
    if old:
        for entry in read_index(old):
            before[entry.name, entry.flags & 0x3000] = entry
    entries = [_checked(entry, before, old_time) for entry in read_index(new)]
    body = b"".join(map(_packed, entries))
    is_extended = any(entry.more_flags for entry in entries)
    data = _HEAD.pack(b"DIRC", 3 if is_extended else 2, len(entries)) + body
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def _checked(entry: Entry, before: dict[tuple[bytes, int], Entry], old_time: int) -> Entry:
    if not SAFE_PATH.fullmatch(entry.name + b"\0"):
        raise ValueError
    old = before.get((entry.name, entry.flags & 0x3000))
    hidden = entry.flags & _ASSUME_VALID & ~(old.flags if old else 0)
    if hidden or entry.more_flags & _SKIP_WORKTREE & ~(old.more_flags if old else 0):
        raise ValueError
    # What was written in the same second as the index may have changed since.
    is_same = old is not None and (old.id, old.mode) == (entry.id, entry.mode)
    if is_same and old is not None and _SECONDS.unpack_from(old.times)[0] < old_time:
        return entry._replace(times=old.times, owner=old.owner)
    return entry._replace(times=bytes(24), owner=bytes(12))


def _packed(entry: Entry) -> bytes:
    flags = (entry.flags & ~_IS_EXTENDED) | (_IS_EXTENDED if entry.more_flags else 0)
    data = _ENTRY.pack(entry.times, entry.mode, entry.owner, entry.id, flags)
    if entry.more_flags:
        data += struct.pack(">H", entry.more_flags)
    data += entry.name
    return data + bytes(8 - len(data) % 8)
