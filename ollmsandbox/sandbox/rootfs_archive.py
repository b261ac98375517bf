# SPDX-License-Identifier: GPL-3.0-or-later
"""A tarball as it is read: once, forwards, and not without end."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Self

from .. import N_
from ..errors import RootfsError

NO_SYSTEM = N_("This is no Alpine system, or somebody changed it. Fetch it from another place.")
_PIECE = 1 << 16


class Header(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Read the next header. Raise ReadError where the file ends or the header is damaged:
        after a HeaderError the library acts as if the archive ended, or skips the entry."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            # A block of zeros, as there are two at the end.
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class Reader:
    """As much of the unpacked archive as there is room for; only forwards. `tell` is called between
    two pieces, and may raise to end it."""

    def __init__(
        self,
        source: IO[bytes] | gzip.GzipFile,
        header: int,
        most: int,
        tell: Callable[[], object],
    ) -> None:
        self._source = source
        self._header = self._left = header
        self._most = most
        self._tell = tell
        self._at = 0

    def begin_header(self) -> None:
        self._left = self._header

    def read(self, size: int) -> bytes:
        """For the library, which reads names and attributes with it: into memory, whatever their
        size is said to be."""
        self._left -= size
        if size < 0 or self._left < 0:
            raise RootfsError(
                N_("The tarball has a name or an attribute that is too long."), NO_SYSTEM
            )
        return self._read(size)

    def content(self, place: int, size: int) -> Iterator[bytes]:
        self.seek(place)
        while size > 0:
            piece = self._read(min(_PIECE, size))
            if not piece:
                raise tarfile.ReadError("the archive ends within a file")
            size -= len(piece)
            yield piece

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> int:
        if place < self._at:
            raise tarfile.ReadError("the archive is read forwards only")
        while self._at < place:
            if not self._read(min(_PIECE, place - self._at)):
                break
        return self._at

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._at += len(data)
        if self._at > self._most:
            raise RootfsError(
                N_("The tarball unpacks to more than {size:,} MiB."),
                NO_SYSTEM,
                size=self._most >> 20,
            )
        self._tell()
        return data
