# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognises the paths in git's index, and in its list of conflicts, that lead out of the worktree
or into the repository.

Git checks paths when it adds them, but not when it reads these files. `git checkout .` would create
`.git/hooks/post-checkout` or `../.bashrc` if the index said so, and `git commit` would change
`.git/config` if the list of conflicts did.
"""

from __future__ import annotations

import re
import struct

LARGEST_STATE = 64 << 20
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
