# SPDX-License-Identifier: GPL-3.0-or-later
"""A tarball is unpacked by hand: whatever it says, nothing lands outside the folder it is for.

Each entry is made relative to a descriptor of the folder around it, which is opened part by part
without following links. Owners, setuid bits and devices are left out.

A tarball as it is read: once, forwards, and not without end.

A tarball is unpacked by hand: whatever it says, nothing lands outside the folder it is for.

Each entry is made relative to a descriptor of the folder around it, which is opened part by part
without following links. Owners, setuid bits and devices are left out.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from ... import N_
from ...errors import RootfsError
from ...files.dirfd import set_mode

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


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GZIP = b"\x1f\x8b"
_LATEST = 1 << 33
# What is packed unpacks to three times as much, and rarely to ten times.
_RATIO = 50
_AT_LEAST = 256 << 20


@dataclass(frozen=True)
class Room:
    """More than a whole system with all packages needs."""

    entries: int = 200_000
    size: int = 4 << 30
    depth: int = 64
    path: int = 1024
    # Names and attributes of one entry: they are read into memory, and by slow means.
    header: int = 1 << 15


def extract_rootfs(
    tarball: Path,
    target: Path,
    room: Room | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> int:
    """Blocks. The number of entries; `tell` hears how much of the tarball was read, of how much,
    and may raise to end it."""
    room = room or Room()
    with contextlib.ExitStack() as closing:
        try:
            raw = closing.enter_context(open(tarball, "rb"))
            packed = raw.peek(2)[:2] == _GZIP
            source: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
            whole = os.fstat(raw.fileno()).st_size
            root = os.open(target, _FOLDER)
            closing.callback(os.close, root)
            most = min(room.size, _AT_LEAST + _RATIO * whole)
            reader = Reader(source, room.header, most, lambda: tell and tell(raw.tell(), whole))
            archive = closing.enter_context(
                tarfile.TarFile(fileobj=reader, tarinfo=Header)  # type: ignore[arg-type]
            )
            return _unpack(archive, reader, root, room)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError) as error:
            raise RootfsError(
                N_("{file} is damaged, or no tarball (.tar.gz or .tar)."),
                N_("Fetch it again."),
                file=tarball,
            ) from error
        except (ValueError, OverflowError) as error:
            raise RootfsError(
                N_("{file} holds what no system does: {why}."), file=tarball, why=str(error)
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise RootfsError(
                    N_("There is no room left on the disk that {folder} is on."),
                    N_("Make room, and try again."),
                    folder=target,
                ) from error
            raise RootfsError(
                N_("{file} cannot be unpacked: {why}."),
                file=tarball,
                why=error.strerror or str(error),
            ) from error


def _unpack(archive: tarfile.TarFile, reader: Reader, root: int, room: Room) -> int:
    writer = _Writer(root)
    count = 0
    while (member := _next(archive, reader)) is not None:
        count += 1
        if count > room.entries:
            raise RootfsError(
                N_("The tarball has more than {number:,} entries."), NO_SYSTEM, number=room.entries
            )
        parts = _parts(member.name, room)
        if member.size < 0:
            # The library would go back, or end as if all had been read.
            raise tarfile.ReadError("an entry has less than nothing")
        if member.issparse():
            # Its holes would be written out, though nothing is read for them.
            raise RootfsError(
                N_("The tarball has a file with holes: {name}."), NO_SYSTEM, name=_short(parts)
            )
        if member.isdir():
            writer.folder(parts, member.mode)
        elif not parts:
            raise RootfsError(N_("The tarball has a file where its top folder is."), NO_SYSTEM)
        elif member.isreg():
            content = reader.content(member.offset_data, member.size)
            writer.file(parts, member.mode, member.mtime, content)
        elif member.issym():
            writer.link(parts, member.linkname, room)
        elif member.islnk():
            writer.hard_link(parts, _parts(member.linkname, room))
        # Devices and pipes are left out: the sandbox has its own.
    if reader.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        # The library is content with one block of zeros; every program that packs writes two.
        raise tarfile.ReadError("the archive has no end")
    return count


def _next(archive: tarfile.TarFile, reader: Reader) -> tarfile.TarInfo | None:
    # What the library remembers of each entry would only fill memory.
    archive.members.clear()  # type: ignore[attr-defined]
    archive.pax_headers = {}
    reader.begin_header()
    return archive.next()


def _parts(name: str, room: Room) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise RootfsError(
            N_("The tarball would write outside its folder: {name}."),
            NO_SYSTEM,
            name=_short([name]),
        )
    if len(parts) > room.depth or len(os.fsencode(name)) > room.path:
        raise RootfsError(
            N_("The tarball has a path that is too long: {name}."), NO_SYSTEM, name=_short([name])
        )
    return parts


def _short(parts: Sequence[str]) -> str:
    return repr("/".join(parts)[:80])


class _Writer:
    def __init__(self, root: int) -> None:
        self._root = root

    def folder(self, parts: Sequence[str], mode: int) -> None:
        with self._around([*parts, ""]) as inside:
            os.fchmod(inside, mode & 0o755 | 0o700)

    def file(self, parts: Sequence[str], mode: int, mtime: float, content: Iterator[bytes]) -> None:
        with self._around(parts) as around:
            self._clear(parts, around)
            descriptor = os.open(parts[-1], _NEW, 0o600, dir_fd=around)
            with open(descriptor, "wb") as file:
                for piece in content:
                    file.write(piece)
                file.flush()
                os.fchmod(descriptor, mode & 0o755 | 0o400)
                at = int(min(max(mtime, 0), _LATEST))
                os.utime(descriptor, (at, at))

    def link(self, parts: Sequence[str], target: str, room: Room) -> None:
        if not target or "\0" in target or len(os.fsencode(target)) > room.path:
            raise RootfsError(
                N_("The tarball has a link that leads nowhere: {name}."), name=_short(parts)
            )
        with self._around(parts) as around:
            self._clear(parts, around)
            os.symlink(_inner(parts, target), parts[-1], dir_fd=around)

    def hard_link(self, parts: Sequence[str], target: Sequence[str]) -> None:
        if not target:
            raise RootfsError(
                N_("The tarball has a link that leads nowhere: {name}."), name=_short(parts)
            )
        with self._around(target) as there, self._around(parts) as around:
            if not _is_file(target[-1], there):
                raise RootfsError(
                    N_("The tarball links to what is no file: {name}."),
                    NO_SYSTEM,
                    name=_short(target),
                )
            if list(parts) != list(target):
                self._clear(parts, around)
                os.link(
                    target[-1],
                    parts[-1],
                    src_dir_fd=there,
                    dst_dir_fd=around,
                    follow_symlinks=False,
                )

    @contextlib.contextmanager
    def _around(self, parts: Sequence[str]) -> Iterator[int]:
        """The folder that holds the last part; made where it is missing."""
        here = os.dup(self._root)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=here)
                except OSError as error:
                    raise RootfsError(
                        N_("The tarball would write through a link or a file: {name}."),
                        NO_SYSTEM,
                        name=_short(parts),
                    ) from error
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)

    def _clear(self, parts: Sequence[str], around: int) -> None:
        """The last entry of a name counts, but a folder is not thrown away for it."""
        try:
            os.unlink(parts[-1], dir_fd=around)
        except FileNotFoundError:
            return
        except IsADirectoryError as error:
            raise RootfsError(
                N_("The tarball has a folder and a file of one name: {name}."),
                NO_SYSTEM,
                name=_short(parts),
            ) from error


def _inner(parts: Sequence[str], target: str) -> str:
    """The link as it leads inside, and so written that it cannot lead out, wherever it is read
    from: it climbs first, and never further than to the top."""
    if target.startswith("/"):
        inside = posixpath.normpath(f"/{target}").lstrip("/")
        climb = "../" * (len(parts) - 1)
        return (climb + inside).rstrip("/") or "."
    plain = posixpath.normpath(target)
    if plain.split("/").count("..") > len(parts) - 1:
        raise RootfsError(
            N_("The tarball has a link that leads out of its folder: {name}."),
            NO_SYSTEM,
            name=_short(parts),
        )
    return plain


def _is_file(name: str, around: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def drop_setuid(folder: Path) -> None:
    """What programs inside made of it."""
    for _name, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(mode):
                set_mode(name, descriptor, stat.S_IMODE(mode) & 0o777, any_kind=True)
