# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run: what becomes bwrap's arguments, and what a person is asked about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from gettext import gettext as _

from ... import N_
from ...errors import ProjectError, SandboxError
from ...paths import FolderSet, Paths, is_inside, real_path
from ..overlay import Overlay
from ..profile.profile import Limits, Profile
from ..seccomp import Rules
from .folders import EMPTY, find_working_dir, own_code
from .host import Host, folders_of
from .mask_layer import MOUNT_POINTS, spec_for
from .masks import hidden_paths
from .mounts import (
    LINKED,
    PLAYGROUND,
    PROJECT,
    Hidden,
    Kernel,
    Layered,
    Mount,
    Overlaid,
    OverlayMount,
    OverlayWay,
    Pieced,
    Pinned,
    ReadOnly,
    Scratch,
    Sealed,
    System,
    Unrecorded,
    Writable,
)


@dataclass(frozen=True)
class Plan:
    """Everything a run is made of, decided before it starts."""

    project: str
    working_dir: str
    network: bool
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    limits: Limits
    rules: Rules
    # As whom it runs, if not as the person.
    ids: tuple[int, int] | None = None

    def args(self) -> list[str]:
        """bwrap's arguments, without the command."""
        made: list[str] = []
        for mount in self.mounts:
            made += mount.args()
        made += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        made += ["--unshare-cgroup-try", "--die-with-parent", "--new-session"]
        if not self.network:
            made += ["--unshare-net"]
        uid, gid = self.ids or (os.getuid(), os.getgid())
        made += ["--uid", str(uid), "--gid", str(gid)]
        made += ["--cap-drop", "ALL", "--chdir", self.working_dir]
        # Given to the command alone: LD_LIBRARY_PATH and others would decide what bwrap itself
        # loads, outside of any sandbox.
        made += ["--clearenv"]
        for name, value in self.environment.items():
            made += ["--setenv", name, value]
        return made

    def outer(self) -> list[OverlayMount]:
        kinds = (Layered, Overlaid)
        return [o for mount in self.mounts if isinstance(mount, kinds) for o in mount.outer()]

    def notices(self) -> list[str]:
        """What a model that expects the project to be written should know, in English."""
        found = [mount.notice() for mount in self.mounts if isinstance(mount, Unrecorded)]
        if not found and not _may_write(self.project):
            found.append(
                f"{self.project} belongs to another user. Root has no more rights in the sandbox "
                "than anybody: commands cannot change it. Run them as that user."
            )
        return found

    def describe(self) -> list[str]:
        """Sentences for a person, from the same objects: on the network, then on each mount."""
        open_, closed = _("The network can be reached."), _("The network cannot be reached.")
        network = open_ if self.network else closed
        return [network, *filter(None, (mount.describe() for mount in self.mounts))]


def make_plan(
    *,
    overlay: Overlay,
    working_dir: str | None,
    network: bool,
    profile: Profile,
    paths: Paths,
    host: Host,
    way: OverlayWay,
    mounts_are_locked: bool,
    environ: Mapping[str, str],
) -> Plan:
    """Decide everything. The overlay's first root is the project.

    Mounts are locked in a user namespace: it cannot take a folder apart from what is mounted below
    it, so no overlay can be put over such a folder.
    """
    home, project = paths.real_home, overlay.roots[0].path
    if home == "/" or not os.path.isdir(home):
        remedy = N_("Set HOME to a folder of yours.")
        raise ProjectError(N_("{home} cannot be a home folder."), remedy, home=home)
    hidden = hidden_paths(profile, paths, environ)
    check_visible(overlay, hidden)
    builder = _Builder(project, home, hidden, paths, host, way, locked=mounts_are_locked)
    limits = profile.limits
    inside = f"{home}/playground"
    mounts: list[Mount] = [System(), Kernel(is_root=os.getuid() == 0)]
    mounts += builder.outside()
    mounts += [Scratch(folder, limits.tmp) for folder in builder.empty if folder != "/run"]
    mounts += builder.run_folder(profile.run, host.resolver if network else None)
    mounts += builder.home()
    mounts += [Writable(inside, builder.playground, PLAYGROUND)]
    mounts += builder.roots(overlay)
    mounts += builder.own_code(overlay)
    mounts += builder.inside_writable(overlay)
    mounts += builder.seals()
    environment = profile.environment(environ)
    directory = find_working_dir(working_dir, project, paths, hidden)
    environment["PWD"] = directory
    if environ.get("HOME"):
        # A link to it may lie in a folder that is empty inside.
        environment["HOME"] = home
    return Plan(
        project=project,
        working_dir=directory,
        network=network,
        mounts=tuple(mounts),
        environment=environment,
        limits=limits,
        rules=Rules.of(profile, network=network),
    )


class _Builder:
    """The mounts that depend on who can mount an overlay, and on what the machine has."""

    def __init__(
        self,
        project: str,
        home: str,
        hidden: Sequence[str],
        paths: Paths,
        host: Host,
        way: OverlayWay,
        *,
        locked: bool,
    ) -> None:
        self._project = project
        self._home = home
        self._hidden = hidden
        self._in_hidden = FolderSet(hidden)
        self._hidden_elsewhere = [name for name in hidden if not name.startswith(f"{home}/")]
        self._way = way
        self._locked = locked
        self._host = host
        self.playground = real_path(paths.playground)
        self._cache = real_path(paths.cache)
        self._runtime = str(paths.runtime)
        self._layers = 0
        # Its devices are there by now; what is written there would be in memory, without limit.
        self._sealed: list[str] = ["/dev"]
        self.empty = [f for f in EMPTY if os.path.isdir(f) and real_path(f) == f]

    def run_folder(self, keep: Sequence[str], resolver: str | None) -> list[Mount]:
        mounts: list[Mount] = [Scratch("/run", 1 << 20, writable=False)]
        wanted = [*keep, *([resolver] if resolver and is_inside(resolver, "/run") else [])]
        mounts += [ReadOnly(path) for path in wanted if os.path.exists(path)]
        return mounts

    def home(self) -> list[Mount]:
        """The home folder without secrets, with the playground's mount point."""
        inside = self._relative(self._home)
        if self._can_layer(self._home):
            return self._walled(self._home, inside, ("playground",))
        return [self._pieced(self._home, inside, ("playground",))]

    def outside(self) -> list[Mount]:
        """What is hidden, and what listens, outside the home folder."""
        elsewhere = FolderSet((*self.empty, self._home, self._project, "/dev"))
        names = {n for n in self._hidden_elsewhere if _can_see(n)}
        names |= {alias for name in names for alias in self._host.aliases(name)}
        listening = {s for s in self._host.sockets if s not in self._in_hidden}
        folders: dict[str, set[str]] = {}
        # The home folder may be mounted in a second place.
        for home in self._host.aliases(self._home):
            if self._can_layer(home):
                folders[home] = {f"{home}/{name}" for name in self._relative(self._home)}
            else:
                names |= {f"{home}/{name}" for name in self._relative(self._home)}
        mounts: list[Mount] = []
        for path in sorted(names | listening):
            folder = os.path.dirname(path)
            if path in elsewhere or is_inside(path, *folders) or not os.path.lexists(path):
                continue
            if self._can_layer(folder):
                folders.setdefault(folder, set())
            else:
                mounts.append(Hidden(path, os.path.isdir(path)))
        for folder in sorted(f for f in folders if not is_inside(f, *folders.keys() - {f})):
            hidden = {n for n in names.union(*folders.values()) if is_inside(n, folder)}
            mounts += self._walled(folder, tuple(n[len(folder) + 1 :] for n in hidden))
        return mounts

    def roots(self, overlay: Overlay) -> list[Mount]:
        """What the command writes to. Behind an overlay nothing that listens can be reached."""
        mounts: list[Mount] = []
        for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
            what = PROJECT if root.path == self._project else LINKED
            if not self._can_layer(root.path):
                mounts.append(Unrecorded(root.path, what))
                mounts += self._hide(self._host.sockets_below(root.path))
                continue
            number = self._next_number()
            upper, work = overlay.upper(name), overlay.work(name)
            way, runtime = self._way, self._runtime
            mounts.append(
                Overlaid(root.path, root.pending, upper, work, what, way, runtime, number)
            )
            mounted = self._host.mounted_below(root.path)
            mounts += [ReadOnly(point) for point in mounted]
            listening = self._host.sockets_below(root.path)
            mounts += self._hide([s for s in listening if is_inside(s, *mounted)])
        return mounts

    def inside_writable(self, overlay: Overlay) -> list[Mount]:
        """In what can be written, what is hidden and what listens needs a mount of its own."""
        inside = tuple(f"{root.path}/" for root in overlay.roots)
        names = [n for n in self._hidden if n.startswith(inside) and os.path.exists(n)]
        sockets: list[str] = []
        if not self._can_layer(self._home):
            sockets += [s for s in self._host.sockets if self._listens_in_home(s)]
        sockets += self._listening_on_mounts_in_home()
        shown = f"{self._home}/playground"
        moved = [
            shown + socket[len(self.playground) :]
            for socket in self._host.sockets_below(self.playground)
        ]
        return [*self._hide(names + sockets), *self._hide(moved, pinned_below=shown)]

    def own_code(self, overlay: Overlay) -> list[Mount]:
        """The program itself may lie in the project, if that is its checkout. A command that
        could change it would run outside the next time."""
        roots = [root.path for root in overlay.roots]
        return [ReadOnly(p) for p in own_code() if is_inside(p, *roots) and os.path.exists(p)]

    def _hide(self, paths: Sequence[str], pinned_below: str = "") -> list[Mount]:
        mounts: list[Mount] = []
        for path in paths:
            if pinned_below:
                mounts += self._pins(path, pinned_below)
            mounts.append(Hidden(path, os.path.isdir(path)))
        return mounts

    def _pins(self, path: str, writable: str) -> list[Mount]:
        """A folder around it could be renamed, and be there without the mount the next time. A
        mount point cannot. (Nor can a folder below an overlay.)"""
        names = path[len(writable) + 1 :].split("/")[:-1]
        folders = ["/".join(names[: n + 1]) for n in range(len(names))]
        return [Pinned(f"{writable}/{name}", f"{self.playground}/{name}") for name in folders]

    def _listening_on_mounts_in_home(self) -> list[str]:
        points = self._host.mounted_below(self._home)
        return [s for s in self._host.sockets if self._listens_in_home(s) and is_inside(s, *points)]

    def _listens_in_home(self, socket: str) -> bool:
        if not is_inside(socket, self._home) or is_inside(socket, self._project):
            return False
        return socket not in self._in_hidden

    def _can_layer(self, folder: str) -> bool:
        if self._way is OverlayWay.NONE or folder == "/" or is_inside(folder, "/proc", "/sys"):
            return False
        return not self._locked or not self._host.mounted_below(folder)

    def seals(self) -> list[Mount]:
        return [Sealed(folder) for folder in self._sealed]

    def _walled(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> list[Mount]:
        mounts: list[Mount] = [self._layered(folder, hidden, added)]
        # The folder itself may lie in one that is else empty.
        empty = [f for f in self.empty if not is_inside(folder, f)]
        skipped = (*empty, "/proc", "/sys", "/dev")
        for point in self._host.mounted_below(folder):
            if point in self._in_hidden or is_inside(point, *skipped):
                continue
            # An overlay does not show what is mounted below its folder.
            if os.access(point, os.R_OK, effective_ids=True):
                names = self._relative(point)
                mounts.append(self._layered(point, names) if names else ReadOnly(point))
        return mounts

    def _relative(self, folder: str) -> tuple[str, ...]:
        start = f"{folder}/"
        return tuple(name[len(start) :] for name in self._hidden if name.startswith(start))

    def _layered(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> Layered:
        number = self._next_number()
        # The folders of the overlays lie in the cache, and are looked for by their own path too.
        used = (self._project, self.playground, self._home, self._cache)
        bound = (*used, *self._host.mounted_below(folder))
        return Layered(
            spec_for(folder, hidden, added),
            self._way,
            self._runtime,
            number,
            in_place=not any(is_inside(path, folder) for path in bound),
        )

    def _next_number(self) -> int:
        if self._layers == MOUNT_POINTS:
            raise SandboxError(
                N_("Too many folders have to be hidden or hold sockets of other programs."),
                N_("Hide a folder around them in your profile."),
            )
        self._layers += 1
        return self._layers - 1

    def _pieced(self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...]) -> Pieced:
        spec = spec_for(folder, hidden, added)
        parents = {item.name for item in spec.folders}
        shown, links = [], []
        for parent in parents:
            for name in _names(f"{folder}/{parent}"):
                path = f"{parent}/{name}" if parent else name
                if path in parents or path in spec.hidden:
                    continue
                if os.path.islink(f"{folder}/{path}"):
                    # Bound, it would be what it leads to, with all that is hidden there.
                    links.append((path, os.readlink(f"{folder}/{path}")))
                else:
                    shown.append(path)
        self._sealed.append(folder)
        return Pieced(
            folder=folder,
            mode=spec.folders[0].mode,
            shown=tuple(sorted(shown)),
            links=tuple(sorted(links)),
            parents=tuple((f.name, f.mode) for f in spec.folders[1:]),
            hidden=spec.hidden,
        )


def check_visible(overlay: Overlay, hidden: Sequence[str]) -> None:
    project, *linked = (root.path for root in overlay.roots)
    for name in set(hidden).intersection(folders_of(project)):
        raise ProjectError(
            N_("{project} lies in {name}, which commands may not see."),
            N_("Choose another folder, or name it under `show` in your profile."),
            project=project,
            name=name,
        )
    for folder in linked:
        for name in set(hidden).intersection(folders_of(folder)):
            raise ProjectError(
                N_("{folder} was opened to commands, but lies in {name}, which they may not see."),
                N_("Close it again: ollmsandbox roots remove {folder}"),
                folder=folder,
                name=name,
            )


def _may_write(folder: str) -> bool:
    """As it is for root inside, who has no capabilities there."""
    found = os.stat(folder)
    if os.getuid() != 0 or found.st_uid == 0:
        return True
    group = found.st_gid in (os.getgid(), *os.getgroups()) and found.st_mode & 0o020
    return bool(group or found.st_mode & 0o002)


def _can_see(path: str) -> bool:
    """What the person may neither read nor enter need not be hidden from a command."""
    return any(os.access(path, way, effective_ids=True) for way in (os.R_OK, os.X_OK))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
