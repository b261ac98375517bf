# SPDX-License-Identifier: GPL-3.0-or-later
"""Put one file in the place of another and keep the other. Done again after a kill at any point,
each step finds what is done already.

`Plain` is the fast path, for regular files on one file system: it makes as few system calls as
possible. `exchange` does everything else, and what was begun on the fast path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ...files import dirfd
from ...files.copying import copy_content
from ...files.dirfd import DirEntryAt, OpenTree
from ..changes.change import Change, Kind, Recorded, State
from ..changes.overlayfs import same_bytes
from ..changes.reasons import Note, Reason
from ..database.models import as_bytes

OURS = "user.overlay."
# At the end of a name: a copy that is not whole yet.
HALF = ".half"
# Who else may do what with a file, beside what its mode says.
_RIGHTS = "system.posix_acl_access"
NO_LINKS = (
    errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS
)  # fmt: skip
# Between two file systems nothing is plain, and one may know no other rename than the usual one.
_NEVER = (errno.EXDEV, errno.EINVAL, errno.ENOSYS)
_NOREPLACE = 1
# Instead of the signature of a file.
NOTHING = "-"
_renameat2 = ctypes.CDLL(None, use_errno=True).renameat2

Step = Callable[[], None]


class Found(NamedTuple):
    """The file at a place. If it `is_linked`, it is also kept already; getting that other name
    changed its change time."""

    stat: os.stat_result
    is_linked: bool


class Exchanged(NamedTuple):
    """Signatures of what was at a place, and of what is there now; "" for nothing. `modified` is
    when what is there now was modified, if that is known."""

    before: str = ""
    after: str = ""
    modified: float | None = None


class ConflictError(Exception):
    """Somebody else changed what should be changed. It is left as it is."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def exchange(
    place: DirEntryAt,
    incoming: DirEntryAt | None,
    kept: DirEntryAt,
    *,
    may_replace: Callable[[Found], bool],
    expects: bool,
    temporary: str,
    step: Step,
    fresh: bool = False,
) -> Exchanged:
    """Put `incoming` at a place, or empty the place without it, and keep what was there as `kept`.

    None of them is a folder. `may_replace` decides whether what is there may go. `expects` says
    that there was something, `fresh` that nothing of this was begun before.
    """
    old = place.lstat()
    version = None if fresh else kept.lstat()
    if incoming is not None and not fresh:
        new = incoming.lstat()
        if new is None:
            if old is None:
                raise ConflictError(Reason.OTHER_LOST)
            return Exchanged("", signature(old))
        if old is not None and os.path.samestat(old, new):
            # Linked into place already.
            return _finish(place, incoming, temporary)
    is_linked = is_kept = False
    if old is not None:
        is_linked = version is not None and os.path.samestat(old, version)
        if stat.S_ISDIR(old.st_mode):
            raise ConflictError(Reason.IS_FOLDER)
        may = may_replace(Found(old, is_linked))
        is_begun = version is not None and not is_linked
        if incoming and not fresh and (is_begun or not may) and _is_copy(incoming, place):
            # Copied into place before a kill.
            return _finish(place, incoming, temporary)
        if not may:
            raise ConflictError(Reason.CHANGED)
        is_kept = is_linked or (is_begun and _is_copy(kept, place))
        if is_begun and not is_kept:
            # Somebody has saved the place since: then this is another version.
            kept.rename_to(DirEntryAt(kept.dir_fd, f"{kept.name}.earlier"))
    elif incoming is None:
        return Exchanged()
    elif expects:
        raise ConflictError(Reason.REMOVED)
    before = "" if is_linked else signature(old)
    if incoming is not None:
        _replace(place, incoming, None if is_kept else kept, old, temporary, step)
        return Exchanged(before, signature(place.lstat()))
    assert old is not None
    if is_linked:
        place.unlink()
        step()
    else:
        _move_away(place, kept, old, step)
    return Exchanged(before, "")


def _replace(
    place: DirEntryAt,
    incoming: DirEntryAt,
    kept: DirEntryAt | None,
    old: os.stat_result | None,
    temporary: str,
    step: Step,
) -> None:
    """Put a file at a place and keep the old one; without `kept`, it is kept already."""
    cleanse(incoming, temporary)
    copied = DirEntryAt(place.dir_fd, temporary)
    is_far = os.fstat(place.dir_fd).st_dev != os.fstat(incoming.dir_fd).st_dev
    if is_far:
        # Before anything else: it takes long, and there may be no room.
        copy(incoming, copied)
        step()
    if old is not None and kept is not None:
        _keep(place, kept, old)
        step()
    try:
        _put(copied if is_far else incoming, place, old)
    except OSError as error:
        if is_far or error.errno != errno.EXDEV:
            raise
        # The same file system, mounted at two places.
        is_far = True
        copy(incoming, copied)
        _put(copied, place, old)
    step()
    if is_far:
        incoming.unlink()


def _put(source: DirEntryAt, place: DirEntryAt, old: os.stat_result | None) -> None:
    """Rename a file into its place: that costs nothing per byte and is never half done."""
    if old is None:
        try:
            # A rename would replace what somebody puts there just now.
            source.link_to(place)
        except FileExistsError as error:
            raise ConflictError(Reason.PLACE_TAKEN) from error
        except OSError as error:
            if error.errno == errno.EXDEV or error.errno not in NO_LINKS:
                raise
        else:
            source.unlink()
            return
        if place.lstat() is not None:
            raise ConflictError(Reason.PLACE_TAKEN)
    else:
        check_again(place, old)
    source.rename_to(place)


def check_again(place: DirEntryAt, old: os.stat_result) -> None:
    """Raise ConflictError if somebody has saved a file since, above all while files were copied."""
    found = place.lstat()
    if (
        found is None
        or _looks(found) != _looks(old)
        # That it has got another name, as to be kept, changed this, too.
        or (found.st_nlink == old.st_nlink and found.st_ctime_ns != old.st_ctime_ns)
    ):
        raise ConflictError(Reason.CHANGED)


def _looks(found: os.stat_result) -> tuple[int, ...]:
    """Return what is the same of a file until somebody changes it. Moving or linking it changes
    nothing but its change time."""
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _finish(place: DirEntryAt, incoming: DirEntryAt, temporary: str) -> Exchanged:
    """Remove what was put in place before a kill from where it came."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=place.dir_fd)
    # Last: without it nothing is looked for any more.
    incoming.unlink()
    return Exchanged("", signature(place.lstat()))


def _is_copy(one: DirEntryAt, other: DirEntryAt) -> bool:
    found, there = one.lstat(), other.lstat()
    if found is None or there is None or stat.S_IFMT(found.st_mode) != stat.S_IFMT(there.st_mode):
        return False
    if stat.S_ISLNK(found.st_mode):
        words = (os.readlink(spot.name, dir_fd=spot.dir_fd) for spot in (one, other))
        return len(set(words)) == 1
    if not stat.S_ISREG(found.st_mode):
        return False
    if stat.S_IMODE(found.st_mode) & 0o1777 != stat.S_IMODE(there.st_mode):
        return False
    return same_bytes(one.name, one.dir_fd, other.name, other.dir_fd)


def signature(found: os.stat_result | None) -> str:
    """Return a text that differs after every change to the file or its name; "" for no file."""
    return f"{found.st_ino}:{found.st_ctime_ns}" if found else ""


def signature_of(item: Recorded) -> str:
    """Return the signature of what is at the place of a change now; NOTHING if none can be seen."""
    try:
        return signature(os.lstat(f"{item.change.root}/{item.change.path}"))
    except OSError:
        return NOTHING


def in_conflict(item: Recorded, note: Note) -> Recorded:
    """Return the change as a conflict with what is at its place now."""
    return item._replace(state=State.CONFLICT, note=replace(note, found=signature_of(item)))


def cleanse(spot: DirEntryAt, temporary: str) -> None:
    """Make a file what the project may have: without attributes of the overlay, without setuid and
    setgid bits, and without another name, through which it could be changed later."""
    path = f"/proc/self/fd/{spot.dir_fd}/{spot.name}"
    try:
        _strip(path)
    except PermissionError:
        # Its owner may not write to it; that is no secret to be kept from us.
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        dirfd.set_mode(spot.name, spot.dir_fd, mode | stat.S_IWUSR, any_kind=True)
        _strip(path)
        dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)
    found = spot.lstat()
    if found is None or stat.S_ISDIR(found.st_mode):
        return
    if found.st_nlink > 1:
        _cut(spot, found, DirEntryAt(spot.dir_fd, temporary))
    elif stat.S_ISREG(found.st_mode) and found.st_mode & 0o6000:
        dirfd.set_mode(spot.name, spot.dir_fd, found.st_mode & 0o1777, any_kind=True)


def _strip(path: str) -> None:
    """Remove the attributes of the overlay from a file."""
    for name in _attributes(path):
        if name.startswith(OURS):
            os.removexattr(path, name, follow_symlinks=False)


def _cut(spot: DirEntryAt, found: os.stat_result, half: DirEntryAt) -> None:
    try:
        copy(spot, half)
    except PermissionError:
        mode = stat.S_IMODE(found.st_mode)
        dirfd.set_mode(spot.name, spot.dir_fd, mode | stat.S_IRUSR, any_kind=True)
        copy(spot, half)
        for one in (spot, half):
            dirfd.set_mode(one.name, one.dir_fd, mode & 0o1777, any_kind=True)
    half.rename_to(spot)


def _attributes(file: str | int) -> list[str]:
    """Return the extended attributes of the file at a path, or of an open one."""
    try:
        return os.listxattr(file, follow_symlinks=isinstance(file, int))
    except OSError:
        return []


def make_single(spot: DirEntryAt, place: DirEntryAt) -> None:
    """Replace a file that has other names by a copy: what is written to it in the project must not
    be written to a backup, too."""
    found, there = spot.lstat(), place.lstat()
    if found is not None and there is not None and os.path.samestat(found, there):
        return  # that other name is the place, where it was linked to before a kill
    if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        # Also one that even its owner may not read.
        _cut(spot, found, DirEntryAt(spot.dir_fd, f"{spot.name}{HALF}"))


def _move_away(place: DirEntryAt, kept: DirEntryAt, old: os.stat_result, step: Step) -> None:
    try:
        place.rename_to(kept)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if _can_be_copied(old):
            copy_whole(place, kept)
            step()
        check_again(place, old)
        place.unlink()
    step()


def _keep(place: DirEntryAt, kept: DirEntryAt, old: os.stat_result) -> None:
    if old.st_nlink == 1 or stat.S_ISLNK(old.st_mode):
        try:
            place.link_to(kept)
            return
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
    # With another name elsewhere, it would be changed there, and so in what is kept.
    if _can_be_copied(old):
        copy_whole(place, kept)


def _can_be_copied(found: os.stat_result) -> bool:
    """Return whether a file can be copied. A socket or a device cannot, and so cannot be restored
    on another disk."""
    return (
        stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) or stat.S_ISFIFO(found.st_mode)
    )


def copy_whole(source: DirEntryAt, target: DirEntryAt, half: DirEntryAt | None = None) -> None:
    """Copy a file so that `target` appears only when it is complete. The `half` is beside it,
    unless that is not our folder."""
    half = half or DirEntryAt(target.dir_fd, f"{target.name}{HALF}")
    copy(source, half)
    half.rename_to(target)


def copy(source: DirEntryAt, target: DirEntryAt) -> None:
    """Copy a file with its mode and times, and as root with its owner, but without setuid and
    setgid bits."""
    target.unlink(missing_ok=True)
    found = os.stat(source.name, dir_fd=source.dir_fd, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        words = os.readlink(source.name, dir_fd=source.dir_fd)
        os.symlink(words, target.name, dir_fd=target.dir_fd)
        return
    if stat.S_ISFIFO(found.st_mode):
        os.mkfifo(target.name, 0o600, dir_fd=target.dir_fd)
        mode = stat.S_IMODE(found.st_mode) & 0o1777
        dirfd.set_mode(target.name, target.dir_fd, mode, any_kind=True)
        return
    with (
        os.fdopen(open_file(source), "rb", 0) as file,
        os.fdopen(_create_file(target), "wb") as new,
    ):
        given, made = file.fileno(), new.fileno()
        found = os.fstat(given)
        copy_content(given, made, found.st_size)
        _copy_attributes(given, made, found)
        os.fchmod(made, stat.S_IMODE(found.st_mode) & 0o1777)
        os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))


def write_like(model: DirEntryAt, target: DirEntryAt, data: bytes, mode: int) -> None:
    """Create a file with the owner and the attributes of another one."""
    target.unlink(missing_ok=True)
    with os.fdopen(open_file(model), "rb") as given, os.fdopen(_create_file(target), "wb") as file:
        file.write(data)
        file.flush()
        _copy_attributes(given.fileno(), file.fileno(), os.fstat(given.fileno()))
        os.fchmod(file.fileno(), mode & 0o1777)


def open_file(spot: DirEntryAt) -> int:
    """Open a regular file for reading; raise ConflictError if it is something else."""
    # What became a pipe just now must not make us wait.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(spot.name, flags, dir_fd=spot.dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConflictError(Reason.IS_SPECIAL_FILE)
    return descriptor


def _create_file(spot: DirEntryAt) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(spot.name, flags, 0o600, dir_fd=spot.dir_fd)


def _copy_attributes(given: int, made: int, found: os.stat_result) -> None:
    if os.getuid() == 0:
        os.fchown(made, found.st_uid, found.st_gid)
    for name in _attributes(given):
        if (name.startswith("user.") and not name.startswith(OURS)) or name == _RIGHTS:
            with contextlib.suppress(OSError):  # not every file system has them
                os.setxattr(made, name, os.getxattr(given, name))


class Plain:
    """Applies plain changes from one layer to one root, if nothing was begun before."""

    def __init__(self, project: OpenTree, layer: OpenTree, versions: int, step: Step) -> None:
        self._project = project
        self._layer = layer
        self._versions = versions
        self._step = step
        self._folder: str | None = None
        self._place = self._source = -1
        self._prefix = ""
        self.is_possible = True
        # The signature of what the last change replaces, once something was done for it.
        self.begun: str | None = None

    def reset(self) -> None:
        """Forget the open folders, because the trees were used for something else."""
        self._folder = None
        self.begun = None

    def put(self, change: Change, number: int, began: int) -> Exchanged | None:
        """Apply one change, or return None if it is not plain."""
        self.begun = None
        try:
            folder, _, name = change.path.rpartition("/")
            if folder != self._folder:
                self._place = self._project.folder(folder)
                self._source = -1
                self._folder = folder
            if change.kind is Kind.DELETED:
                # The layer may have no such folder any more.
                return self._remove(name, number, began)
            if self._source < 0:
                self._source = self._layer.folder(folder)
                self._prefix = f"/proc/self/fd/{self._source}/"
            if change.kind is Kind.ADDED:
                return self._add(name)
            return self._replace(name, number, began)
        except OSError as error:
            if error.errno in _NEVER:
                self.is_possible = False
            return None

    def _find(self, name: str, began: int) -> os.stat_result | None:
        """Return what is to be replaced, if it is a file of one name that nobody changed."""
        old = os.stat(name, dir_fd=self._place, follow_symlinks=False)
        is_plain = stat.S_ISREG(old.st_mode) and old.st_nlink == 1
        return old if is_plain and old.st_ctime_ns <= began else None

    def _remove(self, name: str, number: int, began: int) -> Exchanged | None:
        kept = str(number)
        if (old := self._find(name, began)) is None:
            return None
        os.rename(name, kept, src_dir_fd=self._place, dst_dir_fd=self._versions)
        self.begun = signature(old)
        moved = os.stat(kept, dir_fd=self._versions, follow_symlinks=False)
        if moved.st_nlink > 1 or _looks(moved) != _looks(old):
            # Somebody changed it just now: theirs goes back, and the long way says so.
            self.begun = None
            _move_new(self._versions, kept, self._place, name)
            return None
        self._step()
        return Exchanged(self.begun, "")

    def _replace(self, name: str, number: int, began: int) -> Exchanged | None:
        place, kept = self._place, str(number)
        if (old := self._find(name, began)) is None:
            return None
        os.link(name, kept, src_dir_fd=place, dst_dir_fd=self._versions, follow_symlinks=False)
        self.begun = signature(old)
        self._step()
        self._cleanse(name)
        try:
            check_again(DirEntryAt(place, name), old)
        except ConflictError:
            # The long way says so.
            self.begun = None
            os.unlink(kept, dir_fd=self._versions)
            return None
        os.rename(name, name, src_dir_fd=self._source, dst_dir_fd=place)
        self._step()
        return self._done(name)

    def _add(self, name: str) -> Exchanged:
        self._cleanse(name)
        _move_new(self._source, name, self._place, name)
        self._step()
        return self._done(name)

    def _done(self, name: str) -> Exchanged:
        """Return the signatures of what was replaced and put there; "" if that is gone again."""
        new = DirEntryAt(self._place, name).lstat()
        return Exchanged(self.begun or "", signature(new), new.st_mtime if new else None)

    def _cleanse(self, name: str) -> None:
        _strip(self._prefix + name)


def _move_new(source: int, name: str, target: int, new_name: str) -> None:
    """Move a file, never in the place of another one."""
    if _renameat2(source, as_bytes(name), target, as_bytes(new_name), _NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
