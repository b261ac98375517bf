# SPDX-License-Identifier: GPL-3.0-or-later
"""The mounts of a sandbox. Each becomes arguments for bwrap and a sentence for the user."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from ... import N_
from ...i18n import _
from ...record import Record
from ..caches import CacheLayers, LayerPart
from ..profile.agent import SettingsFolder
from .mask_layer import LayerSpec

# What a folder is for, shown after its path: "/home/me/parser (the project)".
PROJECT = N_("the project")
LINKED = N_("linked from the project")
PLAYGROUND = N_("the playground")


class Mount(Record):
    """Something that is mounted in the sandbox."""

    def args(self) -> Sequence[str]:
        """Return bwrap's arguments."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return a sentence in the user's language, or "" if it is not worth one."""
        return ""

    def overlay_mounts(self) -> Sequence[OverlayMount | BindMounts]:
        """Return what to mount before bwrap starts; nothing if bwrap mounts all."""
        return ()

    def parts(self) -> Sequence[LayerPart]:
        """Return the folders for writes that the run needs in the project's cache layers."""
        return ()


class OverlayMethod(Enum):
    """The program that mounts overlays on this machine: our starter, bwrap, or none."""

    UNSHARE = "unshare"
    BWRAP = "bwrap"
    NONE = "none"


class OverlayPoint(Record):
    """Where an overlay of a run is mounted, and by whom."""

    method: OverlayMethod
    runtime: str
    number: int

    @property
    def path(self) -> str:
        return f"{self.runtime}/merged{self.number}"


class OverlayMount(Record):
    """An overlay mounted before bwrap starts, in a mount namespace of the run's own."""

    lower: tuple[str, ...]
    target: str
    options: str
    # Where writes go. Without these the overlay is read-only.
    upper: str = ""
    work: str = ""


class BindMounts(Record):
    """Folders of one overlay bound over those of another, before bwrap starts: bwrap would read all
    mounts for each of them, which takes 20 times as long."""

    source: str
    target: str
    # Relative to both.
    names: tuple[str, ...]


class HostSystem(Mount):
    """The whole host, read-only, below all other mounts."""

    def args(self) -> Sequence[str]:
        return ("--ro-bind", "/", "/")

    def describe(self) -> str:
        return _("The system is read-only.")


class DevicesAndProcesses(Mount):
    """The sandbox's own /dev and /proc."""

    is_root: bool
    # Whether some devices of this computer are let through.
    has_devices: bool = False

    def args(self) -> Sequence[str]:
        # The first process is bwrap. It gets the filter a moment after the command does, and until
        # then the command could write to its memory and so get around the filter.
        made = ["--dev", "/dev", "--proc", "/proc", "--size", "4096", "--tmpfs", "/proc/1"]
        # The names of keys; the filter refuses the calls that read the keys themselves.
        if os.path.exists("/proc/keys"):
            made += ["--ro-bind", "/dev/null", "/proc/keys"]
        if self.is_root:
            # Writable for root without any capability: core_pattern would start a program of the
            # command's choice outside the sandbox.
            made += ["--ro-bind", "/proc/sys", "/proc/sys"]
            for name in filter(os.path.exists, ("/proc/acpi", "/proc/dynamic_debug", "/proc/scsi")):
                # Nothing in there is needed, and this takes a third of the time of a bind.
                made += ["--perms", "0555", "--size", "4096", "--tmpfs", name]
        return made

    def describe(self) -> str:
        if self.has_devices:
            return _("Other programs and other devices are not visible.")
        return _("Other programs and devices are not visible.")


class Device(Mount):
    """A device of this computer that the profile lets through."""

    path: str

    def args(self) -> Sequence[str]:
        return ("--dev-bind", self.path, self.path)

    def describe(self) -> str:
        return _("The device {path} can be used.").format(path=self.path)


class EmptyFolder(Mount):
    """A folder in memory, empty at first and removed after the command."""

    folder: str
    size: int | None = None
    writable: bool = True

    def args(self) -> Sequence[str]:
        size = ("--size", str(self.size)) if self.size else ()
        mode = "1777" if self.writable else "0755"
        return (*size, "--perms", mode, "--tmpfs", self.folder)

    def describe(self) -> str:
        text = _("{folder} starts empty and is discarded at the end.")
        return text.format(folder=self.folder)


class RootfsSystem(Mount):
    """A root file system in place of the host's, read-only."""

    folder: str
    title: str

    def args(self) -> Sequence[str]:
        return ("--ro-bind", self.folder, "/")

    def describe(self) -> str:
        # Translators: {title} is the name of a system, such as "Alpine 3.20".
        text = _("The system is {title}, not this computer's. It is read-only.")
        return text.format(title=self.title)


class ReadOnlyBind(Mount):
    folder: str
    # Its path inside, if that is another one.
    shown: str = ""

    def args(self) -> Sequence[str]:
        return ("--ro-bind", self.folder, self.shown or self.folder)


class ResolverFile(Mount):
    """A file that says how names are looked up, for a command with the network by host."""

    runtime: Path
    text: str
    shown: str

    @property
    def source(self) -> Path:
        """Return the file to write. Its name tells its text, so that commands with other texts have
        other files."""
        key = hashlib.sha256(self.text.encode()).hexdigest()[:24]
        return self.runtime / "files" / key

    def is_written(self) -> bool:
        """Return whether the file is there and whole: a power cut may have emptied it."""
        with contextlib.suppress(OSError, UnicodeError):
            return self.source.read_text(encoding="utf-8") == self.text
        return False

    def args(self) -> Sequence[str]:
        return ("--ro-bind", str(self.source), self.shown)


class SealedFolder(Mount):
    """A folder in memory that becomes read-only once its mount points exist."""

    folder: str

    def args(self) -> Sequence[str]:
        return ("--remount-ro", self.folder)


class PinnedFolder(Mount):
    """A folder bound onto itself: the command can write in it, but cannot rename it."""

    folder: str
    source: str

    def args(self) -> Sequence[str]:
        return ("--bind", self.source, self.folder)


class WritableFolder(PinnedFolder):
    """A folder that the command changes directly."""

    def __init__(self, folder: str, source: str, what: str) -> None:
        super().__init__(folder, source)
        self.what = what

    def describe(self) -> str:
        # Translators: {what} is one of "the project", "linked from the project", "the playground".
        text = _("{folder} ({what}) is writable.")
        return text.format(folder=self.folder, what=_(self.what))


class OverlaidFolder(Mount):
    """A folder with an overlay, which collects the command's changes."""

    folder: str
    # What it shows below the command's changes, from the top.
    lowers: tuple[str, ...]
    upper: str
    work: str
    what: str
    point: OverlayPoint
    shown: str = ""

    def overlay_mounts(self) -> Sequence[OverlayMount | BindMounts]:
        if self.point.method is not OverlayMethod.UNSHARE:
            return ()
        # volatile: it need not survive a power cut, and syncing the disk takes long.
        options = "userxattr,volatile"
        return (OverlayMount(self.lowers, self.point.path, options, self.upper, self.work),)

    def args(self) -> Sequence[str]:
        if self.point.method is OverlayMethod.BWRAP:
            sources = (part for layer in reversed(self.lowers) for part in ("--overlay-src", layer))
            return (*sources, "--overlay", self.upper, self.work, self.shown or self.folder)
        return ("--bind", self.point.path, self.shown or self.folder)

    def describe(self) -> str:
        text = _("{folder} ({what}) is writable. Changes are recorded.")
        return text.format(folder=self.folder, what=_with_path(_(self.what), self.shown, _))


class SeparatePlayground(OverlaidFolder):
    """The playground with an overlay of the run's own, which is merged into it at the end.

    Two runs cannot meet there: sockets, named pipes and locks belong to an inode, and each overlay
    has its own.
    """

    def describe(self) -> str:
        return WritableFolder(self.folder, self.lowers[0], self.what).describe()


class ReadOnlyRoot(ReadOnlyBind):
    """A folder of the project that only our tools may change."""

    def describe(self) -> str:
        return _("{folder} is read-only for the agent.").format(folder=self.folder)


class UnrecordedFolder(ReadOnlyBind):
    """A folder that is read-only because its changes cannot be recorded."""

    def __init__(self, folder: str, what: str, shown: str = "") -> None:
        super().__init__(folder, shown)
        self.what = what

    def describe(self) -> str:
        return self._describe(_)

    def notice(self) -> str:
        """Return the sentence in English, for a model."""
        return self._describe(str)

    def _describe(self, _: Callable[[str], str]) -> str:
        text = _("{folder} ({what}) is read-only: changes cannot be recorded here.")
        return text.format(folder=self.folder, what=_with_path(_(self.what), self.shown, _))


class HiddenPath(Mount):
    """A single path that is covered, used where its folder cannot get a mask layer."""

    path: str
    is_folder: bool

    def args(self) -> Sequence[str]:
        if self.is_folder:
            return ("--perms", "0000", "--tmpfs", self.path, "--remount-ro", self.path)
        return ("--ro-bind", "/dev/null", self.path)

    def describe(self) -> str:
        return _("{path} is hidden.").format(path=self.path)


class MaskedFolder(Mount):
    """A folder below a mask layer: read-only, without some names, with mount points added.

    Its Unix sockets are out of reach: the kernel finds a socket by its inode, and an overlay has
    inodes of its own.
    """

    spec: LayerSpec
    point: OverlayPoint
    # Mounted at its own path before bwrap starts: that saves a bind, for which bwrap reads all
    # mounts. Not possible where something below it is bound by its own path.
    in_place: bool = False
    shown: str = ""
    # Whether caches are bound into it, which stay writable. The overlay itself is read-only, since
    # it has no upper folder.
    has_caches: bool = False
    # Whether the command sees only parts of it, which other mounts show.
    in_parts: bool = False

    def overlay_mounts(self) -> Sequence[OverlayMount | BindMounts]:
        if self.point.method is not OverlayMethod.UNSHARE:
            return ()
        target = self.spec.folder if self.in_place else self.point.path
        return (OverlayMount((*self.layers, self.spec.folder), target, "userxattr"),)

    @property
    def layers(self) -> tuple[str, str]:
        made = f"{self.point.runtime}/layers/{self.spec.name}"
        return (f"{made}/top", f"{made}/frame")

    def args(self) -> Sequence[str]:
        if self.in_place or self.in_parts:
            return ()
        if self.point.method is OverlayMethod.BWRAP:
            top, frame = self.layers
            lowest_first = (self.spec.folder, frame, top)
            sources = (part for layer in lowest_first for part in ("--overlay-src", layer))
            return (*sources, "--ro-overlay", self.shown or self.spec.folder)
        how = "--bind" if self.has_caches else "--ro-bind"
        return (how, self.point.path, self.shown or self.spec.folder)

    def describe(self) -> str:
        return "" if self.in_parts else _hidden_of(self.spec.folder, self.spec.hidden)


class AllowedHome(Mount):
    """A home folder in memory with some names of the real one, for commands with the network."""

    # Masks the real one. The command does not see it as a whole.
    base: MaskedFolder
    # Relative names, none inside another one.
    shown: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    def args(self) -> Sequence[str]:
        spec = self.base.spec
        made = ["--perms", f"{spec.folders[0].mode:04o}", "--tmpfs", spec.folder]
        for name in self.shown:
            made += self._show(name)
        for name, target in self.links:
            made += ["--symlink", target, f"{spec.folder}/{name}"]
        return made

    def _show(self, name: str) -> Sequence[str]:
        spec, target = self.base.spec, f"{self.base.spec.folder}/{name}"
        if self.base.point.method is OverlayMethod.UNSHARE:
            how = "--bind-try" if self.base.has_caches else "--ro-bind-try"
            return (how, f"{self.base.point.path}/{name}", target)
        if all(folder.name != name for folder in spec.folders):
            return ("--ro-bind-try", target, target)
        top, frame = self.base.layers
        layers = (target, f"{frame}/{name}", f"{top}/{name}")
        sources = (part for layer in layers for part in ("--overlay-src", layer))
        return (*sources, "--ro-overlay", target)

    def describe(self) -> str:
        return describe_allowed(self.base.spec.folder, self.shown)


def describe_allowed(home: str, names: Sequence[str]) -> str:
    """Return what a command with the network can read in the home folder."""
    text = _("In {home}, it can read only the project, the playground and: {names}.")
    return text.format(home=home, names=", ".join(names) or "-")


class LayeredFolder(Mount):
    """A folder below a part of the project's cache layers."""

    # Where a command sees it.
    path: str
    # The folder itself; "" if there is none.
    lower: str
    layers: CacheLayers
    part: str
    point: OverlayPoint

    def parts(self) -> Sequence[LayerPart]:
        return [LayerPart(self.part, 0o700)]

    def overlay_mounts(self) -> Sequence[OverlayMount | BindMounts]:
        return self._overlay().overlay_mounts()

    def args(self) -> Sequence[str]:
        return self._overlay().args()

    @property
    def empty(self) -> str:
        """Return an empty folder, which is used if there is none."""
        return f"{self.point.runtime}/empty"

    def _overlay(self) -> OverlaidFolder:
        lowers = (*self.layers.mounted_parts(self.part), self.lower or self.empty)
        upper, work = self.layers.upper(self.part), self.layers.work(self.part)
        return OverlaidFolder(self.path, lowers, upper, work, "", self.point)


class PlainCaches(LayeredFolder):
    """The folder of caches that the user does not have. Links or variables lead to it.

    It has layers as well: two runs cannot meet at a socket or a pipe there.
    """

    names: tuple[str, ...]
    # The folder with the links to them, if there are any.
    linked_in: str

    def paths(self) -> list[str]:
        """Return the folders in which a command sees them."""
        return [path for path in (self.path, self.linked_in) if path]

    def parts(self) -> Sequence[LayerPart]:
        return () if self.point.method is OverlayMethod.NONE else super().parts()

    def args(self) -> Sequence[str]:
        if self.point.method is OverlayMethod.NONE:
            return ("--bind", self.lower, self.path)
        return super().args()

    def describe(self) -> str:
        return _("Caches are writable for this project. Your own do not change.")


class AgentSettings(LayeredFolder):
    """A folder with an agent's settings, below a layer: see settings_layer.py."""

    rules: SettingsFolder
    # Names and texts of files for this run.
    files: tuple[tuple[str, str], ...]
    hides_login: bool
    home: str

    def describe(self) -> str:
        text = _("The agent sees {folder}. Of its changes there, only a new login is kept.")
        return text.format(folder=self.path)


class CacheFolders(Mount):
    """Folders with a project's cache layers above what the user has there."""

    # Masks what is below the layers.
    base: MaskedFolder
    # Relative to the base's folder; "" is that folder itself.
    names: tuple[str, ...]
    layers: CacheLayers
    # The part of the layers that belongs to the base.
    part: str
    point: OverlayPoint
    # Whether the layers are inside the base's folder: the kernel allows that only if another
    # overlay is between them.
    is_stacked: bool

    def paths(self) -> list[str]:
        return [f"{self.base.spec.folder}/{name}".rstrip("/") for name in self.names]

    def parts(self) -> Sequence[LayerPart]:
        if self.base.point.method is OverlayMethod.BWRAP:
            return [self._like(f"{self.part}/{name}".rstrip("/"), name) for name in self.names]
        # Only if the folder itself is shown, its mode is.
        return [self._like(self.part, "") if self.names == ("",) else LayerPart(self.part, 0o700)]

    def _like(self, part: str, name: str) -> LayerPart:
        found = os.stat(f"{self.base.spec.folder}/{name}")
        return LayerPart(part, stat.S_IMODE(found.st_mode) | 0o700)

    def overlay_mounts(self) -> Sequence[OverlayMount | BindMounts]:
        if self.base.point.method is not OverlayMethod.UNSHARE:
            return ()
        below: tuple[str, ...] = (*self.base.layers, self.base.spec.folder)
        before: tuple[OverlayMount | BindMounts, ...] = ()
        if self.is_stacked:
            below = (self.base.point.path,)
            before = () if self.base.has_caches else tuple(self.base.overlay_mounts())
        upper, work = self.layers.upper(self.part), self.layers.work(self.part)
        lower = (*self.layers.mounted_parts(self.part), *below)
        overlay = OverlayMount(lower, self.point.path, "userxattr,volatile", upper, work)
        if not self.base.has_caches:
            return (*before, overlay)
        return (*before, overlay, BindMounts(self.point.path, self.base.point.path, self.names))

    def args(self) -> Sequence[str]:
        if self.base.point.method is OverlayMethod.BWRAP:
            return [word for name in self.names for word in self._overlay_by_bwrap(name)]
        # Otherwise they are bound into the base already.
        return () if self.base.has_caches else ("--bind", self.point.path, self.base.spec.folder)

    def _overlay_by_bwrap(self, name: str) -> Sequence[str]:
        inner = f"/{name}" if name else ""
        folder, (top, frame) = self.base.spec.folder + inner, self.base.layers
        layers = self.layers.mounted_parts(self.part + inner)
        sources = [*layers, top + inner, frame + inner, folder]
        made = [word for source in reversed(sources) for word in ("--overlay-src", source)]
        upper, work = self.layers.upper(self.part + inner), self.layers.work(self.part + inner)
        return (*made, "--overlay", upper, work, folder)


class BoundFolder(Mount):
    """A folder rebuilt from binds of what is not hidden, where no overlay can be mounted."""

    folder: str
    mode: int
    shown: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    parents: tuple[tuple[str, int], ...]
    hidden: tuple[str, ...]
    # If only some names are shown: which ones.
    allowed: tuple[str, ...] | None = None

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
        if self.allowed is not None:
            return describe_allowed(self.folder, self.allowed)
        return _hidden_of(self.folder, self.hidden)


def _with_path(what: str, shown: str, _: Callable[[str], str]) -> str:
    # Translators: {what} is one of "the project", "linked from the project".
    return _("{what}, visible as {path}").format(what=what, path=shown) if shown else what


def _hidden_of(folder: str, names: Sequence[str]) -> str:
    # Only existing paths: most of the hundred masked names do not exist.
    there = [f"{folder}/{name}" for name in names if os.path.lexists(f"{folder}/{name}")]
    return _("Hidden: {paths}.").format(paths=", ".join(there)) if there else ""
