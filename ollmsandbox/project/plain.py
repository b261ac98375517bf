# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain case of an exchange, as most are when there are many: on one file system, a file of one
name takes the place of another one, or of nothing. It has as few calls as can be. What is not plain
goes the long way, which also finishes what was begun here."""

from __future__ import annotations

import errno
import os
import stat

from .exchange import OURS, Exchanged, Step, signature
from .tree import Tree


class Plain:
    """From one layer into one root. Nothing of it was begun before."""

    def __init__(self, project: Tree, layer: Tree, versions: int, step: Step) -> None:
        self._project = project
        self._layer = layer
        self._versions = versions
        self._step = step
        self._folder: str | None = None
        self._place = self._source = -1
        self._prefix = ""
        # Between two file systems nothing is plain.
        self.is_possible = True
        # Of what could not be finished here: whether something was done, and what was found at its
        # place.
        self.is_begun = False
        self.found = ""

    def reset(self) -> None:
        """The trees have gone elsewhere."""
        self._folder = None
        self.is_begun, self.found = False, ""

    def put(self, path: str, kept: str, began: int, *, is_new: bool) -> Exchanged | None:
        """None if it is not plain."""
        self.is_begun, self.found = False, ""
        try:
            folder, _, name = path.rpartition("/")
            if folder != self._folder:
                self._place = self._project.folder(folder)
                self._source = self._layer.folder(folder)
                self._prefix = f"/proc/self/fd/{self._source}/"
                self._folder = folder
            return self._add(name) if is_new else self._replace(name, kept, began)
        except OSError as error:
            if error.errno == errno.EXDEV:
                self.is_possible = False
            return None

    def _replace(self, name: str, kept: str, began: int) -> Exchanged | None:
        place, source = self._place, self._source
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode) or old.st_nlink != 1 or old.st_ctime_ns > began:
            return None
        before = signature(old)
        os.link(name, kept, src_dir_fd=place, dst_dir_fd=self._versions, follow_symlinks=False)
        self.is_begun, self.found = True, before
        self._step()
        self._cleanse(name)
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=place)
        self._step()
        new = os.stat(name, dir_fd=place, follow_symlinks=False)
        return Exchanged(before, signature(new))

    def _add(self, name: str) -> Exchanged:
        place, source = self._place, self._source
        self._cleanse(name)
        # A rename would replace what somebody puts there just now.
        os.link(name, name, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
        self.is_begun = True
        self._step()
        os.unlink(name, dir_fd=source)
        new = os.stat(name, dir_fd=place, follow_symlinks=False)
        return Exchanged("", signature(new))

    def _cleanse(self, name: str) -> None:
        path = self._prefix + name
        try:
            attributes = os.listxattr(path, follow_symlinks=False)
        except OSError:
            return  # not every file system has them
        for attribute in attributes:
            if attribute.startswith(OURS):
                os.removexattr(path, attribute, follow_symlinks=False)
