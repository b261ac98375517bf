# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate a system-call filter as the kernel does, for any architecture."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

ALLOWED = "allowed"
KILLED = "killed"

_64_BITS, _LITTLE_ENDIAN = 0x8000_0000, 0x4000_0000
_LOAD, _AND, _RETURN, _JUMP = 0x20, 0x54, 0x06, 0x05
_CONDITIONS: dict[int, Callable[[int, int], bool]] = {
    0x15: lambda value, k: value == k,
    0x25: lambda value, k: value > k,
    0x35: lambda value, k: value >= k,
    0x45: lambda value, k: bool(value & k),
}


@dataclass(frozen=True)
class Machine:
    """A compiled filter, and the architecture that it was compiled for."""

    arch: int
    code: bytes

    @cached_property
    def _program(self) -> list[tuple[int, int, int, int]]:
        return list(struct.iter_unpack(f"{self._order}HBBI", self.code))

    @property
    def _order(self) -> str:
        return "<" if self.arch & _LITTLE_ENDIAN else ">"

    @property
    def has_64_bits(self) -> bool:
        return bool(self.arch & _64_BITS)

    def answer(self, number: int, *arguments: int, arch: int | None = None) -> str:
        """Return "allowed", "killed" or the name of an error, such as "EPERM"."""
        words = [*arguments, *[0] * (6 - len(arguments))]
        token = self.arch if arch is None else arch
        call = struct.pack(f"{self._order}IIQ6Q", number & 0xFFFF_FFFF, token, 0, *words)
        result = self._execute(call)
        action, data = result & 0xFFFF_0000, result & 0xFFFF
        if action == 0x0005_0000:
            return errno.errorcode[data]
        return {0x7FFF_0000: ALLOWED, 0: KILLED, 0x8000_0000: KILLED}[action]

    def _execute(self, call: bytes) -> int:
        position = value = 0
        while True:
            code, if_true, if_false, k = self._program[position]
            position += 1
            if code == _LOAD:
                (value,) = struct.unpack_from(f"{self._order}I", call, k)
            elif code == _AND:
                value &= k
            elif code == _JUMP:
                position += k
            elif code == _RETURN:
                return k
            else:
                position += if_true if _CONDITIONS[code](value, k) else if_false
