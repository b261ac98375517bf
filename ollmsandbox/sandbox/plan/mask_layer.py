# SPDX-License-Identifier: GPL-3.0-or-later
"""Create mask layers: overlayfs layers with whiteouts that hide names in a folder.

They hide a name, not a file: it stays hidden if it is replaced or created while a command runs, and
the folder itself is never changed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path

from ...files.locks import FileLock
from ...paths import FolderSet
from ...record import Record

# The most folders with a layer in one run. All runs share the mount points, as each mounts in a
# namespace of its own.
MOUNT_POINTS = 32
_VERSION = 3


class LayerFolder(Record):
    """A folder in the layer, with the mode and owner of the one below it."""

    name: str
    mode: int
    uid: int
    gid: int


class LayerSpec(Record):
    """Describes the layer for `folder`. Equal specs share one layer."""

    folder: str
    hidden: tuple[str, ...]
    folders: tuple[LayerFolder, ...]
    # Names and targets of symbolic links that the layer adds.
    links: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return _layer_name(self.hidden, self.folders, self.links)


@lru_cache(maxsize=64)
def _layer_name(*content: object) -> str:
    key = repr((_VERSION, *content)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(key).hexdigest()[:24]


def spec_for(
    folder: str,
    hidden: tuple[str, ...],
    added: tuple[str, ...] = (),
    links: tuple[tuple[str, str], ...] = (),
) -> LayerSpec:
    """Return the spec of a layer that hides some names and adds folders and links, all relative."""
    linked = tuple(name for name, _target in links)
    # What is in a folder is hidden by the link in its place.
    hidden = _not_inside(hidden, linked)
    added = (*added, *_ways(linked))
    missing = frozenset(
        p for p in _ways(hidden).difference(added) if not os.path.lexists(f"{folder}/{p}")
    )
    hidden, parents = _outermost(hidden, missing)
    folders = [_like(folder, name) for name in ("", *sorted({*parents, *added}))]
    return LayerSpec(folder, hidden, tuple(folders), links)


@lru_cache(maxsize=64)
def _not_inside(names: tuple[str, ...], folders: tuple[str, ...]) -> tuple[str, ...]:
    inside = FolderSet(folders)
    return tuple(name for name in names if name not in inside)


def prepare(runtime: Path, spec: LayerSpec) -> None:
    """Create the layer if no earlier run did, or if it was removed."""
    target = runtime / "layers" / spec.name
    if _is_whole(target, spec):
        return
    import shutil
    import tempfile

    layers = runtime / "layers"

    layers.mkdir(mode=0o700, exist_ok=True)
    # Two programs may come here at once.
    with FileLock(runtime / "layers.lock"):
        _is_whole.cache_clear()
        if _is_whole(target, spec):
            return
        _is_whole.cache_clear()
        made = Path(tempfile.mkdtemp(dir=layers, prefix="new-"))
        try:
            _fill(made / "top", spec)
            # The kernel omits whiteouts from a listing only where a layer is below them, so the
            # same folders come once more, without whiteouts.
            _fill(made / "frame", spec._replace(hidden=()))
            if target.exists():
                # Not removed: a command may be using it.
                broken = tempfile.mkdtemp(dir=layers, prefix="broken-")
                target.rename(broken)
            made.rename(target)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


@lru_cache(maxsize=64)
def _is_whole(target: Path, spec: LayerSpec) -> bool:
    """Return whether no hidden name or link of the layer is missing: a program that cleans up
    temporary folders may have removed some. Each program checks this once."""
    folders: dict[str, set[str]] = {}
    for path in (*spec.hidden, *(name for name, _target in spec.links)):
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, set()).add(name)
    try:
        # Hundreds of names are in a few folders.
        found = [names.issubset(os.listdir(f"{target}/top/{f}")) for f, names in folders.items()]
    except OSError:
        return False
    return all(found) and os.path.isdir(target / "frame")


def prepare_mount_point(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _fill(made: Path, spec: LayerSpec) -> None:
    made.mkdir()
    root, *inner = spec.folders
    for item in inner:
        (made / item.name).mkdir(parents=True, exist_ok=True)
    for name in spec.hidden:
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A character device 0:0 is a whiteout, which an ordinary user may make.
        os.mknod(path, stat.S_IFCHR, 0)
    for name, target in spec.links:
        (made / name).symlink_to(target)
    # Deepest first: a parent may be without write permission.
    for item in [*reversed(inner), root]:
        path = made / item.name
        if os.getuid() == 0:
            _give_away(path, item.uid, item.gid)
        path.chmod(item.mode)


def _give_away(path: Path, uid: int, gid: int) -> None:
    try:
        os.chown(path, uid, gid)
    except OSError as error:
        # Root in a user namespace cannot give files to users without a number there, and root in
        # some containers to no user. It stays ours, as it does for an ordinary user.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def _like(folder: str, name: str) -> LayerFolder:
    try:
        found = os.lstat(f"{folder}/{name}" if name else folder)
    except OSError:
        found = None
    if found is None or not stat.S_ISDIR(found.st_mode):
        return LayerFolder(name, 0o755, os.getuid(), os.getgid())
    return LayerFolder(name, stat.S_IMODE(found.st_mode) | 0o500, found.st_uid, found.st_gid)


@lru_cache(maxsize=1024)
def path_prefixes(path: str) -> tuple[str, ...]:
    """Return the folders that lead to a relative path, and the path itself as the last. Hundreds of
    names are in a few folders."""
    parts = path.split("/") if path else []
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


@lru_cache(maxsize=64)
def _ways(names: tuple[str, ...]) -> frozenset[str]:
    """Return the folders that contain these names."""
    folders = {name.rpartition("/")[0] for name in names}
    return frozenset(parent for folder in folders for parent in path_prefixes(folder))


@lru_cache(maxsize=64)
def _outermost(
    names: tuple[str, ...], missing: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that are not inside another one, and the folders that contain them.

    Where a folder that contains a name is missing, that folder is hidden instead: otherwise the
    command would see it, empty.
    """
    first = {next((p for p in path_prefixes(name)[:-1] if p in missing), name) for name in names}
    kept = sorted(name for name in first if first.isdisjoint(path_prefixes(name)[:-1]))
    return tuple(kept), tuple(_ways(tuple(kept)))
