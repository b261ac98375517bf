# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a long chain mountable: one layer shows the same as those of the oldest runs.

It is only mounted. The layers of the runs stay, to be applied or discarded one by one, and before
one of them changes, the layer that stands for it is removed. The next run gets another one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from ...files import trees
from ...files.dirfd import DirEntryAt, OpenTree, modes_file, restore_modes
from ...paths import Paths, make_folder
from ...sandbox.whiteouts import OPAQUE, is_opaque, is_whiteout
from ..changes.scan import is_too_deep
from .chain import Chain, Squashed
from .layer import remove_layer, remove_left

_PREFIX = "squashed-"


def squash_oldest(paths: Paths, project: str) -> None:
    """If the layers of a chain do not fit into a mount, squash those of the oldest runs. The caller
    holds the project's lock."""
    chain = Chain(paths, project)
    if chain.runs_that_fit() == len(chain.runs):
        return
    chain.set_squashed(None)
    _remove_unused(chain)
    # Not all that fit: there is room for some runs before it has to be done again.
    chosen = chain.runs[: -max(chain.runs_that_fit(0.5), 1)]
    layers: dict[str, list[str]] = {}
    for run_id in reversed(chosen):
        for root, layer in chain.roots_of(run_id).items():
            layers.setdefault(root, []).append(layer)
    folder = make_folder(chain.folder / f"{_PREFIX}{os.urandom(4).hex()}")
    names = {f"overlay{number}": root for number, root in enumerate(layers, 1)}
    for name, root in names.items():
        _squash(layers[root], str(folder / name))
    chain.set_squashed(Squashed(folder.name, chosen, names))


def unsquash(paths: Paths, project: str, run_id: str = "") -> None:
    """Remove the layers that stand for those of a run, or any, before one of these changes. The
    caller holds the project's lock."""
    chain = Chain(paths, project)
    if chain.squashed is not None and (not run_id or run_id in chain.squashed.runs):
        chain.set_squashed(None)
        _remove_unused(chain)


def _remove_unused(chain: Chain) -> None:
    """Remove all squashed layers of a chain that has none on record."""
    for folder in chain.folder.glob(f"{_PREFIX}*"):
        for layer in folder.glob("overlay*"):
            remove_layer(str(layer))
        remove_left(folder)
        with contextlib.suppress(OSError):  # a command has one mounted
            folder.rmdir()


def _squash(layers: Sequence[str], target: str) -> None:
    """Make a layer of these, the last run's first. Its files are hard links: nobody writes to
    them."""
    os.mkdir(target, 0o700)
    made = OpenTree(target)
    for layer in reversed(layers):
        restore_modes(layer)
        with contextlib.closing(OpenTree(layer, modes_file(layer))) as given:
            _lay_over(given, made)
    made.close()


def _lay_over(given: OpenTree, made: OpenTree) -> None:
    """Put what is in a layer on top of what is in another one."""
    waiting = [("", os.stat(given.root))]
    while waiting:
        path, around = waiting.pop()
        if is_too_deep(path):
            continue
        given.unlock(path)
        source, target = given.folder(path), made.folder(path)
        if os.getuid() == 0:
            os.fchown(target, around.st_uid, around.st_gid)
        made.set_mode(path, stat.S_IMODE(around.st_mode))
        if is_opaque(source):
            os.setxattr(target, OPAQUE, b"y")
        for name in os.listdir(source):
            spot, onto = DirEntryAt(source, name), DirEntryAt(target, name)
            found, below = spot.lstat(), onto.lstat()
            assert found is not None
            is_folder = stat.S_ISDIR(found.st_mode)
            if is_folder:
                waiting.append((f"{path}/{name}" if path else name, found))
                if below is not None and stat.S_ISDIR(below.st_mode):
                    continue
            if below is not None:
                trees.remove(name, target)
            if is_whiteout(found):
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
            elif not is_folder:
                spot.link_to(onto)
            else:
                os.mkdir(name, 0o700, dir_fd=target)
                if below is not None:
                    # What was hidden there stays hidden.
                    os.setxattr(f"/proc/self/fd/{target}/{name}", OPAQUE, b"y")
