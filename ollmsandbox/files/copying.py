# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy files and folders, so that nobody who has the original open can change the copy."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat

from .dirfd import FOLDER, DirEntryAt, allow_many_descriptors, open_regular_file, set_mode

# Some architectures put what an ioctl does with its argument into other bits.
_OTHER_BITS = os.uname().machine.startswith(("alpha", "mips", "ppc", "sparc"))
_FICLONE = 0x80049409 if _OTHER_BITS else 0x40049409
_PIECE = 1 << 30
_ATTRIBUTES = ("user.", "system.posix_acl_access")


def copy_tree(source: str, target: str) -> None:
    """Copy a layer as it is, with its marks, owners, modes and times, to a new folder.

    The original is expected to go: folders and files that nobody may read are made readable.
    """
    allow_many_descriptors()
    os.mkdir(target, 0o700)
    # One pair of descriptors for each level: a path could be too long.
    levels: list[tuple[int, int, os.stat_result, list[str]]] = []

    def enter(name: str, given: int | None, made: int | None) -> None:
        found = os.stat(name, dir_fd=given, follow_symlinks=False)
        if given is not None and found.st_mode & 0o700 != 0o700:
            set_mode(name, given, stat.S_IMODE(found.st_mode) | 0o700)
        inner = os.open(name, FOLDER, dir_fd=given)
        try:
            copied = os.open(target if made is None else name, FOLDER, dir_fd=made)
        except BaseException:
            os.close(inner)
            raise
        if given is None:
            os.fchmod(inner, stat.S_IMODE(found.st_mode) | 0o700)
        levels.append((inner, copied, found, os.listdir(inner)))

    try:
        enter(source, None, None)
        while levels:
            given, made, found, names = levels[-1]
            if not names:
                _copy_attributes(given, made, found, is_layer=True)
                os.fchmod(made, stat.S_IMODE(found.st_mode))
                os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
                os.close(given)
                os.close(made)
                levels.pop()
                continue
            name = names.pop()
            # Whoever holds the original may still remove something.
            with contextlib.suppress(FileNotFoundError):
                kind = os.stat(name, dir_fd=given, follow_symlinks=False)
                if stat.S_ISDIR(kind.st_mode):
                    os.mkdir(name, 0o700, dir_fd=made)
                    enter(name, given, made)
                else:
                    _copy_one(name, given, made, kind)
    finally:
        for given, made, _, _ in levels:
            os.close(given)
            os.close(made)


def _copy_one(name: str, given: int, made: int, found: os.stat_result) -> None:
    """Copy anything but a folder."""
    if stat.S_ISREG(found.st_mode):
        if not found.st_mode & stat.S_IRUSR:
            set_mode(name, given, stat.S_IMODE(found.st_mode) | stat.S_IRUSR, any_kind=True)
        _copy_regular(DirEntryAt(given, name), DirEntryAt(made, name), found)
        return
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=given), name, dir_fd=made)
    else:
        # Such as the mark of a deleted file.
        os.mknod(name, found.st_mode, found.st_rdev, dir_fd=made)
    if os.getuid() == 0:
        os.chown(name, found.st_uid, found.st_gid, dir_fd=made, follow_symlinks=False)


def _copy_regular(
    source: DirEntryAt, target: DirEntryAt, in_layer: os.stat_result | None = None
) -> None:
    """Copy a file. If it is in a layer, where it was `in_layer` before it was made readable, keep
    its marks and setuid bits."""
    with (
        open_regular_file(source.name, source.dir_fd) as file,
        os.fdopen(_create(target), "wb") as new,
    ):
        given, made = file.fileno(), new.fileno()
        now = os.fstat(given)
        found, rights = (now, 0o1777) if in_layer is None else (in_layer, 0o7777)
        copy_content(given, made, now.st_size)
        _copy_attributes(given, made, found, is_layer=in_layer is not None)
        os.fchmod(made, stat.S_IMODE(found.st_mode) & rights)
        os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
        start_writing(made)


def _copy_attributes(
    given: int, made: int, found: os.stat_result, *, is_layer: bool = False
) -> None:
    if os.getuid() == 0:
        os.fchown(made, found.st_uid, found.st_gid)
    names: list[str] = []
    # Not every file system has them. In a layer they have a meaning, and must not be missing.
    failures = () if is_layer else (OSError,)
    with contextlib.suppress(OSError):
        names = os.listxattr(given)
    for name in names:
        if name.startswith(_ATTRIBUTES) and (is_layer or not name.startswith(_OVERLAY)):
            with contextlib.suppress(*failures):
                os.setxattr(made, name, os.getxattr(given, name))


def copy_content(given: int, made: int, size: int) -> None:
    """Copy the bytes of an open file into a new one, sharing them where the disk can."""
    try:
        fcntl.ioctl(made, _FICLONE, given)
        return
    except OSError:
        pass  # only some file systems can share blocks
    os.ftruncate(made, size)
    start = 0
    while start < size:
        # What was never written takes no room, and shall not.
        try:
            start = os.lseek(given, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(given, start, os.SEEK_HOLE)
        while start < end:
            start += _copy_piece(given, made, start, min(end - start, _PIECE))


def _copy_piece(given: int, made: int, start: int, size: int) -> int:
    try:
        copied = os.copy_file_range(given, made, size, start, start)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        data = os.pread(given, min(size, 1 << 20), start)
        copied = os.pwrite(made, data, start)
    if copied == 0:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return copied


_sync_file_range = ctypes.CDLL(None, use_errno=True).sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
# What only overlayfs uses; it must never reach a project.
_OVERLAY = "user.overlay."
# At the end of a name: a copy that is not whole yet.
HALF = ".half"


def copy_entry(source: DirEntryAt, target: DirEntryAt) -> None:
    """Copy a file, link or pipe with its mode and times, and as root with its owner; without setuid
    and setgid bits and the attributes of overlayfs. Raise OSError for anything else."""
    target.unlink(missing_ok=True)
    found = os.stat(source.name, dir_fd=source.dir_fd, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        words = os.readlink(source.name, dir_fd=source.dir_fd)
        os.symlink(words, target.name, dir_fd=target.dir_fd)
        return
    if stat.S_ISFIFO(found.st_mode):
        os.mkfifo(target.name, 0o600, dir_fd=target.dir_fd)
        set_mode(target.name, target.dir_fd, stat.S_IMODE(found.st_mode) & 0o1777, any_kind=True)
        return
    _copy_regular(source, target)


def copy_whole(source: DirEntryAt, target: DirEntryAt) -> None:
    """Copy a file so that `target` appears only when it is complete."""
    half = DirEntryAt(target.dir_fd, f"{target.name}{HALF}")
    try:
        copy_entry(source, half)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
    half.rename_to(target)


def write_like(model: DirEntryAt, target: DirEntryAt, data: bytes, mode: int) -> None:
    """Write a file with the owner and the attributes of another one."""
    half = DirEntryAt(target.dir_fd, f"{target.name}{HALF}")
    half.unlink(missing_ok=True)
    with (
        open_regular_file(model.name, model.dir_fd) as given,
        os.fdopen(_create(half), "wb") as file,
    ):
        file.write(data)
        file.flush()
        _copy_attributes(given.fileno(), file.fileno(), os.fstat(given.fileno()))
        os.fchmod(file.fileno(), mode & 0o1777)
        start_writing(file.fileno())
    half.rename_to(target)


def start_writing(file: int) -> None:
    """Have the kernel write the data of an open file, without waiting for the disk: so it is there
    before the file gets its name."""
    _sync_file_range(file, 0, 0, 2)  # SYNC_FILE_RANGE_WRITE


def _create(spot: DirEntryAt) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(spot.name, flags, 0o600, dir_fd=spot.dir_fd)


def strip(spot: DirEntryAt) -> None:
    """Remove the attributes of overlayfs from a file or link."""
    path = f"/proc/self/fd/{spot.dir_fd}/{spot.name}"
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return  # not every file system has attributes
    for name in names:
        if not name.startswith(_OVERLAY):
            continue
        try:
            os.removexattr(path, name, follow_symlinks=False)
        except PermissionError:
            # Its owner may not write to it.
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            set_mode(spot.name, spot.dir_fd, mode | stat.S_IWUSR, any_kind=True)
            os.removexattr(path, name, follow_symlinks=False)
            set_mode(spot.name, spot.dir_fd, mode, any_kind=True)
