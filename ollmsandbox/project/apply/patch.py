# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's change of one file as a patch: its base and its result, merged into what is on disk.

Both versions lie in the run's folder, by the number of the change: `7` is the base, what the
command saw, and `new-7` the result, what it left. Of a small file there is a copy of each here:
the user's editor may write into the one in the project. Of others only one version is here at a
time, and the file in the project is known by its signature.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from pathlib import Path

from ...files.dirfd import DirEntryAt, OpenTree, modes_file, opened_folder
from ...paths import make_folder
from ...text.diff import LARGEST
from ...text.merge import merge_change
from ..changes.change import Recorded
from ..changes.reasons import Reason
from .swap import (
    HALF,
    ConflictError,
    Found,
    Step,
    copy_whole,
    exchange,
    open_file,
    signature,
    write_like,
)


def is_small(found: os.stat_result | None) -> bool:
    """Return whether a version is kept beside the one in the project, to be merged by lines."""
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST


def keep_copy(source: DirEntryAt, kept: DirEntryAt) -> None:
    """Keep a copy of a small file, unless one is kept already."""
    if is_small(source.lstat()) and kept.lstat() is None:
        copy_whole(source, kept)


def has_same_bytes(version: DirEntryAt, place: DirEntryAt) -> bool:
    """Return whether a small file in the project is a copy of a kept version, and only a copy."""
    kept, found = version.lstat(), place.lstat()
    if kept is None or found is None or os.path.samestat(kept, found):
        return False
    data = read_small(place)
    return data is not None and data == read_small(version)


def keep_base(item: Recorded, versions: Path, earlier: Path | None) -> None:
    """Keep the version on disk, or the one that an `earlier` run kept; nothing, if somebody changed
    the file since the command began."""
    root = item.change.root
    # What cannot be kept is no reason to fail: then an edit of the user's is a conflict.
    with (
        opened_folder(versions) as folder,
        contextlib.suppress(OSError, ConflictError),
        # Folders that nobody may look into are open meanwhile, and closed again, also after a kill.
        contextlib.closing(
            OpenTree(str(earlier.parent))
            if earlier
            else OpenTree(root, modes_note(versions, root), is_durable=True)
        ) as tree,
    ):
        kept = Patch(folder, item.number).base
        seen = DirEntryAt(*tree.split(earlier.name if earlier else item.change.path))
        found, old = seen.lstat(), kept.lstat()
        if found is None:
            return
        changed = found.st_ctime_ns
        if old is not None and os.path.samestat(old, found):
            # Linked by an attempt to apply the change, which changed that time.
            kept.unlink()
            changed = found.st_mtime_ns
            found = seen.lstat()
        if earlier:
            keep_copy(seen, kept)
        elif changed <= item.began and kept.lstat() is None:
            keep_copy(seen, kept)
            if signature(seen.lstat()) != signature(found):
                kept.unlink(missing_ok=True)


def modes_note(versions: Path, root: str) -> Path:
    """Return the file that has the modes of folders of a root that are open for a while."""
    return versions / f"modes-{zlib.crc32(os.fsencode(root)):08x}"


def half_name(layer: str) -> str:
    """Return the name, beside a layer, of what is being copied into it."""
    return f".half-{os.path.basename(layer)}"


def trim(layer: str, item: Recorded, rest: bytes, versions: Path) -> None:
    """Leave the `rest` of a change in its layer, and keep the whole of it with the run."""
    with (
        contextlib.closing(OpenTree(layer, modes_file(layer))) as tree,
        opened_folder(make_folder(versions)) as folder,
        opened_folder(os.path.dirname(layer)) as around,
    ):
        tree.unlock(os.path.dirname(item.change.path))
        spot = DirEntryAt(*tree.split(item.change.path))
        patch = Patch(folder, item.number)
        keep_copy(spot, patch.result)
        found = spot.lstat()
        assert found is not None
        copied = patch.next_rest.lstat()
        if (
            copied is not None
            and copied.st_size == found.st_size
            and copied.st_mtime_ns == found.st_mtime_ns
        ):
            # A kill came between the last two steps.
            patch.next_rest.rename_to(patch.rest)
        write_like(spot, patch.next_rest, rest, stat.S_IMODE(found.st_mode))
        # The layer may be on another disk.
        copy_whole(patch.next_rest, spot, DirEntryAt(around, half_name(layer)))
        patch.next_rest.rename_to(patch.rest)


def add_to_rest(item: Recorded, old: bytes, new: bytes, versions: Path) -> None:
    """Add hunks that were discarded to what applying the change puts into the project."""
    with opened_folder(make_folder(versions)) as folder:
        patch = Patch(folder, item.number)
        found, rest = patch.rest.lstat(), read_small(patch.rest)
        more = None if rest is None else merge_change(old, new, rest, has_hunks=True)
        if found is not None and more is not None:
            write_like(patch.rest, patch.next_rest, more, stat.S_IMODE(found.st_mode))
            patch.next_rest.rename_to(patch.rest)


class Patch:
    """The change with this number, of a run that keeps its versions in the open folder."""

    def __init__(self, versions: int, number: int) -> None:
        self._versions = versions
        self._number = number
        self.base = DirEntryAt(versions, str(number))
        self.result = DirEntryAt(versions, f"new-{number}")
        # What was in the project before the last merge, or before the user chose another version.
        self.mine = DirEntryAt(versions, f"mine-{number}")
        # The result without hunks that were discarded, as it is in the layer.
        self.rest = DirEntryAt(versions, f"rest-{number}")
        # The one that takes its place, until it is in the layer.
        self.next_rest = DirEntryAt(versions, f"next-rest-{number}")
        # The two versions between which are the hunks that the user chose.
        self.without_hunks = DirEntryAt(versions, f"without-{number}")
        self.with_hunks = DirEntryAt(versions, f"with-{number}")

    @property
    def applied(self) -> DirEntryAt:
        """Return the version that applying the change puts into the project."""
        return self.result if self.rest.lstat() is None else self.rest

    def copy_of(self, version: DirEntryAt) -> DirEntryAt:
        """Return a copy to be put into the project; of a large file, or one that even its owner may
        not read, the version itself."""
        if not is_small(version.lstat()):
            return version
        made = DirEntryAt(self._versions, f"put-{self._number}")
        try:
            copy_whole(version, made)
        except PermissionError:
            return version
        return made

    def take_base(self, earlier: Path) -> None:
        """Take the version that another run found, and that this run's command saw, as the base."""
        with opened_folder(earlier.parent) as folder:
            copy_whole(DirEntryAt(folder, earlier.name), self.base)

    def merge_into(
        self,
        place: DirEntryAt,
        old: DirEntryAt,
        new: DirEntryAt,
        *,
        modes: tuple[int | None, int | None] = (None, None),
        resumed: bool,
        temporary: str,
        step: Step,
    ) -> None:
        """Merge the change from one version to another into the file on disk.

        `modes` are those of both. Raise ConflictError if both changed the same lines, or if a
        version is not kept. If it is `resumed` after a kill, the change may be merged already.
        """
        with contextlib.suppress(FileNotFoundError):
            # Of an earlier merge; what is in the project now has all of it. First: if it was kept
            # before a kill, it is the file in the project, whose change time this changes.
            os.unlink(self.mine.name, dir_fd=self._versions)
        found = place.lstat()
        before, after, current = (read_small(spot) for spot in (old, new, place))
        if found is None or before is None or after is None or current is None:
            raise ConflictError(Reason.CHANGED)
        if any(kept and os.path.samestat(kept, found) for kept in (old.lstat(), new.lstat())):
            # An interrupted attempt linked it: then what somebody wrote since is in both.
            raise ConflictError(Reason.CHANGED)
        parts = (self.with_hunks, self.rest)
        has_hunks = resumed or any(spot.lstat() is not None for spot in parts)
        merged = merge_change(before, after, current, has_hunks=has_hunks)
        if merged is None:
            raise ConflictError(Reason.SAME_LINES)
        was, wanted = modes
        mode = stat.S_IMODE(found.st_mode)
        if wanted is not None and mode == was:
            mode = wanted & 0o1777
        if merged == current and mode == stat.S_IMODE(found.st_mode):
            return
        made = DirEntryAt(self._versions, f"merged-{self._number}")
        half = DirEntryAt(self._versions, f"{made.name}{HALF}")
        write_like(place, half, merged, mode)
        half.rename_to(made)
        step()

        def is_as_read(there: Found) -> bool:
            return signature(there.stat) == signature(found)

        exchange(
            place,
            made,
            self.mine,
            may_replace=is_as_read,
            expects=True,
            temporary=temporary,
            step=step,
        )


def read_small(spot: DirEntryAt) -> bytes | None:
    """Return the content of a small file; None if it is none, or cannot be read."""
    try:
        with os.fdopen(open_file(spot), "rb") as file:
            return file.read(LARGEST + 1) if is_small(os.fstat(file.fileno())) else None
    except (OSError, ConflictError):
        return None
