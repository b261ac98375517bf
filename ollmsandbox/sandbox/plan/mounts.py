# SPDX-License-Identifier: GPL-3.0-or-later
"""One small class a mount. The objects that become bwrap's arguments also word the question."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from gettext import gettext as _
from typing import Protocol

from ... import N_
from .mask_layer import LayerSpec

# What a folder is to the person, behind its path: "/home/me/parser (the project)".
PROJECT = N_("the project")
LINKED = N_("linked from the project")
PLAYGROUND = N_("the playground")


class Mount(Protocol):
    def args(self) -> Sequence[str]:
        """For bwrap."""

    def describe(self) -> str:
        """For people, in their language; empty where there is nothing to tell."""


class OverlayWay(Enum):
    """Who mounts an overlay on this machine."""

    UNSHARE = "unshare"
    BWRAP = "bwrap"
    NONE = "none"


@dataclass(frozen=True)
class OverlayMount:
    """An overlay mounted before bwrap starts, in a mount namespace of the run's own."""

    lower: tuple[str, ...]
    target: str
    options: str
    # Where what is written goes; without them nothing can be.
    upper: str = ""
    work: str = ""

    def packed(self) -> dict[str, object]:
        """For the starter."""
        return {
            "lower": [os.fsencode(folder) for folder in self.lower],
            "target": os.fsencode(self.target),
            "options": self.options,
            "upper": os.fsencode(self.upper),
            "work": os.fsencode(self.work),
            # What was mounted before the run was asked for may be another folder's by now.
            "numbers": [] if self.upper else [*map(number_of, (*self.lower, self.target))],
        }


@dataclass(frozen=True)
class System:
    """The whole machine. Everything else is put on top of it."""

    def args(self) -> Sequence[str]:
        return ("--ro-bind", "/", "/")

    def describe(self) -> str:
        return _("The system can be read, not written.")


@dataclass(frozen=True)
class Kernel:
    """Devices and processes of the sandbox's own."""

    is_root: bool

    def args(self) -> Sequence[str]:
        # The first process is bwrap's. It takes on the filter a moment later than the command, and
        # who could write to its memory by then would have it do what is refused to all others.
        made = ["--dev", "/dev", "--proc", "/proc", "--size", "4096", "--tmpfs", "/proc/1"]
        # Whose keys there are; the keys themselves are out of reach of the filtered calls.
        if os.path.exists("/proc/keys"):
            made += ["--ro-bind", "/dev/null", "/proc/keys"]
        if self.is_root:
            # Writable for root without any capability: core_pattern would start a program of the
            # command's choice outside.
            made += ["--ro-bind", "/proc/sys", "/proc/sys"]
            for name in filter(os.path.exists, ("/proc/acpi", "/proc/dynamic_debug", "/proc/scsi")):
                # Nobody needs what is in there, and this takes a third of the time of a bind.
                made += ["--perms", "0555", "--size", "4096", "--tmpfs", name]
        return made

    def describe(self) -> str:
        return _("Other programs and devices cannot be seen.")


@dataclass(frozen=True)
class Scratch:
    """An empty folder in memory that is gone after the command."""

    folder: str
    size: int | None = None
    writable: bool = True

    def args(self) -> Sequence[str]:
        size = ("--size", str(self.size)) if self.size else ()
        mode = "1777" if self.writable else "0755"
        return (*size, "--perms", mode, "--tmpfs", self.folder)

    def describe(self) -> str:
        text = _("{folder} is empty at the start and forgotten at the end.")
        return text.format(folder=self.folder)


@dataclass(frozen=True)
class OtherSystem:
    """Another system in place of the machine's own."""

    folder: str
    title: str

    def args(self) -> Sequence[str]:
        return ("--ro-bind", self.folder, "/")

    def describe(self) -> str:
        # Translators: {title} is the name of a system, such as "Alpine 3.20".
        text = _("The system is {title}, not this machine's. It can be read, not written.")
        return text.format(title=self.title)


@dataclass(frozen=True)
class ReadOnly:
    folder: str
    # Where it is seen, if not at its own path.
    shown: str = ""

    def args(self) -> Sequence[str]:
        return ("--ro-bind", self.folder, self.shown or self.folder)

    def describe(self) -> str:
        return ""


@dataclass(frozen=True)
class Sealed:
    """Nothing more is added to a scratch folder once its mount points are made."""

    folder: str

    def args(self) -> Sequence[str]:
        return ("--remount-ro", self.folder)

    def describe(self) -> str:
        return ""


@dataclass(frozen=True)
class Writable:
    """A folder whose changes are real."""

    folder: str
    source: str
    what: str

    def args(self) -> Sequence[str]:
        return ("--bind", self.source, self.folder)

    def describe(self) -> str:
        # Translators: {what} is one of "the project", "linked from the project", "the playground".
        text = _("{folder} ({what}) can be written.")
        return text.format(folder=self.folder, what=_(self.what))


@dataclass(frozen=True)
class Overlaid:
    """A folder whose changes go elsewhere, to be looked at when the command is over."""

    folder: str
    pending: str
    upper: str
    work: str
    what: str
    way: OverlayWay
    runtime: str
    number: int
    shown: str = ""

    def outer(self) -> Sequence[OverlayMount]:
        if self.way is not OverlayWay.UNSHARE:
            return ()
        # volatile: nobody needs it to survive a power cut, and a sync of the disk takes long.
        options = "userxattr,volatile"
        return (OverlayMount(self._lower, self._merged, options, self.upper, self.work),)

    @property
    def _lower(self) -> tuple[str, ...]:
        return (self.pending, self.folder) if self.pending else (self.folder,)

    @property
    def _merged(self) -> str:
        return f"{self.runtime}/merged{self.number}"

    def args(self) -> Sequence[str]:
        if self.way is OverlayWay.BWRAP:
            sources = (part for layer in reversed(self._lower) for part in ("--overlay-src", layer))
            return (*sources, "--overlay", self.upper, self.work, self.shown or self.folder)
        return ("--bind", self._merged, self.shown or self.folder)

    def describe(self) -> str:
        text = _("{folder} ({what}) can be written; what changes is recorded.")
        return text.format(folder=self.folder, what=_seen_at(_(self.what), self.shown, _))


@dataclass(frozen=True)
class Unrecorded:
    """A folder that would be writable, if its changes could be recorded."""

    folder: str
    what: str
    shown: str = ""

    def args(self) -> Sequence[str]:
        return ("--ro-bind", self.folder, self.shown or self.folder)

    def describe(self) -> str:
        return self._told(_)

    def notice(self) -> str:
        """The same for a model, which is told in English."""
        return self._told(str)

    def _told(self, _: Callable[[str], str]) -> str:
        text = _("{folder} ({what}) can be read, not written: changes cannot be recorded here.")
        return text.format(folder=self.folder, what=_seen_at(_(self.what), self.shown, _))


@dataclass(frozen=True)
class Pinned:
    """A folder bound onto itself: it stays what it is, but it cannot be moved."""

    folder: str
    source: str

    def args(self) -> Sequence[str]:
        return ("--bind", self.source, self.folder)

    def describe(self) -> str:
        return ""


@dataclass(frozen=True)
class Hidden:
    """Nothing, where something is. Used where no layer can be put over the folder around it."""

    path: str
    is_folder: bool

    def args(self) -> Sequence[str]:
        if self.is_folder:
            return ("--perms", "0000", "--tmpfs", self.path, "--remount-ro", self.path)
        return ("--ro-bind", "/dev/null", self.path)

    def describe(self) -> str:
        return _("{path} is hidden.").format(path=self.path)


@dataclass(frozen=True)
class Layered:
    """A folder seen through a layer: read-only, some names gone, mount points added.

    What lies behind an overlay cannot be connected to: the kernel finds a Unix socket by its
    inode, and an overlay has inodes of its own.
    """

    spec: LayerSpec
    way: OverlayWay
    runtime: str
    number: int
    # Mounted where it belongs before bwrap starts, which then finds it there: a bind costs bwrap a
    # reading of all mounts. Not where something below is bound by its own path.
    in_place: bool = False
    shown: str = ""

    def outer(self) -> Sequence[OverlayMount]:
        if self.way is not OverlayWay.UNSHARE:
            return ()
        target = self.spec.folder if self.in_place else self._merged
        return (OverlayMount((*self._layers, self.spec.folder), target, "userxattr"),)

    @property
    def _layers(self) -> tuple[str, str]:
        made = f"{self.runtime}/layers/{self.spec.name}"
        return (f"{made}/top", f"{made}/frame")

    @property
    def _merged(self) -> str:
        return f"{self.runtime}/merged{self.number}"

    def args(self) -> Sequence[str]:
        if self.way is OverlayWay.BWRAP:
            top, frame = self._layers
            lowest_first = (self.spec.folder, frame, top)
            sources = (part for layer in lowest_first for part in ("--overlay-src", layer))
            return (*sources, "--ro-overlay", self.shown or self.spec.folder)
        if self.in_place:
            return ()
        return ("--ro-bind", self._merged, self.shown or self.spec.folder)

    def describe(self) -> str:
        return _hidden_of(self.spec.folder, self.spec.hidden)


@dataclass(frozen=True)
class Pieced:
    """A folder put together from what may be seen of it, where no overlay can be mounted."""

    folder: str
    mode: int
    shown: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    parents: tuple[tuple[str, int], ...]
    hidden: tuple[str, ...]

    def args(self) -> Sequence[str]:
        made = ["--perms", f"{self.mode:04o}", "--tmpfs", self.folder]
        for parent, mode in self.parents:
            made += ["--perms", f"{mode:04o}", "--dir", f"{self.folder}/{parent}"]
        for name in self.shown:
            made += ["--ro-bind-try", f"{self.folder}/{name}", f"{self.folder}/{name}"]
        for name, target in self.links:
            made += ["--symlink", target, f"{self.folder}/{name}"]
        return made

    def describe(self) -> str:
        return _hidden_of(self.folder, self.hidden)


def number_of(path: str) -> tuple[int, int]:
    """By which a file or folder is known, whatever is done to its name."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)  # what is not there is told when it is needed
    return (found.st_dev, found.st_ino)


def _seen_at(what: str, shown: str, _: Callable[[str], str]) -> str:
    # Translators: {what} is one of "the project", "linked from the project".
    return _("{what}, seen as {path}").format(what=what, path=shown) if shown else what


def _hidden_of(folder: str, names: Sequence[str]) -> str:
    """Only what is there: a person does not want to read of a hundred names they do not have."""
    there = [f"{folder}/{name}" for name in names if os.path.lexists(f"{folder}/{name}")]
    return _("Hidden: {paths}.").format(paths=", ".join(there)) if there else ""
