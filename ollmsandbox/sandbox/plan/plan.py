# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the plan of a run, which becomes bwrap's arguments and the permission question."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ... import N_
from ...errors import ProjectError, SandboxError
from ...i18n import _
from ...paths import FolderSet, Paths, is_inside, real_path
from ..overlay import Overlay
from ..profile.profile import Limits, Profile
from ..seccomp import FilterRules
from .folders import EMPTY_FOLDERS, find_working_dir, own_code
from .host import Host, path_and_parents
from .mask_layer import MOUNT_POINTS, spec_for
from .masks import hidden_paths
from .mounts import (
    LINKED,
    PLAYGROUND,
    PROJECT,
    BoundFolder,
    DevicesAndProcesses,
    EmptyFolder,
    HiddenPath,
    HostSystem,
    MaskedFolder,
    Mount,
    OverlaidFolder,
    OverlayMethod,
    OverlayMount,
    PinnedFolder,
    ReadOnlyBind,
    SealedFolder,
    UnrecordedFolder,
    WritableFolder,
)


@dataclass(frozen=True)
class Plan:
    """Everything a run is allowed, decided before it starts."""

    project: str
    working_dir: str
    network: bool
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    limits: Limits
    rules: FilterRules
    # The user and group inside, if they are not the user's own.
    ids: tuple[int, int] | None = None

    def args(self) -> list[str]:
        """Return bwrap's arguments, without the command."""
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
        # Only for the command: with LD_LIBRARY_PATH and others, the project would decide what bwrap
        # itself loads, outside the sandbox.
        made += ["--clearenv"]
        for name, value in self.environment.items():
            made += ["--setenv", name, value]
        return made

    def outer(self) -> list[OverlayMount]:
        kinds = (MaskedFolder, OverlaidFolder)
        return [o for mount in self.mounts if isinstance(mount, kinds) for o in mount.outer()]

    def notices(self) -> list[str]:
        """Return, in English for a model, why commands cannot write to the project."""
        found = [mount.notice() for mount in self.mounts if isinstance(mount, UnrecordedFolder)]
        if not found and not _may_write(self.project):
            found.append(
                f"{self.project} belongs to another user. Root has no special rights in the "
                "sandbox, so commands cannot change it. Run them as that user."
            )
        return found

    def describe(self) -> list[str]:
        """Return sentences for the user: about the network, then about each mount."""
        network = _("The network is on.") if self.network else _("The network is off.")
        return [network, *filter(None, (mount.describe() for mount in self.mounts))]


def make_plan(
    *,
    overlay: Overlay,
    working_dir: str | None,
    network: bool,
    profile: Profile,
    paths: Paths,
    host: Host,
    way: OverlayMethod,
    mounts_are_locked: bool,
    environ: Mapping[str, str],
) -> Plan:
    """Build the plan. The overlay's first root is the project.

    In a user namespace mounts are locked: a folder cannot be separated from what is mounted in it,
    so it cannot get an overlay.
    """
    home, project = paths.real_home, overlay.roots[0].path
    if home == "/" or not os.path.isdir(home):
        remedy = N_("Set HOME to your home folder.")
        raise ProjectError(N_("{home} cannot be a home folder."), remedy, home=home)
    hidden = hidden_paths(profile, paths, environ)
    check_visible(overlay, hidden)
    builder = _Builder(project, home, hidden, paths, host, way, locked=mounts_are_locked)
    limits = profile.limits
    inside = f"{home}/playground"
    mounts: list[Mount] = [HostSystem(), DevicesAndProcesses(is_root=os.getuid() == 0)]
    mounts += builder.outside()
    mounts += [EmptyFolder(folder, limits.tmp) for folder in builder.empty if folder != "/run"]
    mounts += builder.run_folder(profile.run, host.resolver if network else None)
    mounts += builder.home()
    mounts += [WritableFolder(inside, builder.playground, PLAYGROUND)]
    mounts += builder.roots(overlay)
    mounts += builder.own_code(overlay)
    mounts += builder.inside_writable(overlay)
    mounts += builder.seals()
    environment = profile.environment(environ)
    directory = find_working_dir(working_dir, project, paths, hidden)
    environment["PWD"] = directory
    if environ.get("HOME"):
        # A link to it may be in a folder that is empty inside.
        environment["HOME"] = home
    return Plan(
        project=project,
        working_dir=directory,
        network=network,
        mounts=tuple(mounts),
        environment=environment,
        limits=limits,
        rules=FilterRules.of(profile, network=network),
    )


class _Builder:
    """Builds the mounts that depend on the overlay method and on the host."""

    def __init__(
        self,
        project: str,
        home: str,
        hidden: Sequence[str],
        paths: Paths,
        host: Host,
        way: OverlayMethod,
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
        # Writes to /dev would go to memory, without limit.
        self._sealed: list[str] = ["/dev"]
        self.empty = [f for f in EMPTY_FOLDERS if os.path.isdir(f) and real_path(f) == f]

    def run_folder(self, keep: Sequence[str], resolver: str | None) -> list[Mount]:
        mounts: list[Mount] = [EmptyFolder("/run", 1 << 20, writable=False)]
        wanted = [*keep, *([resolver] if resolver and is_inside(resolver, "/run") else [])]
        mounts += [ReadOnlyBind(path) for path in wanted if os.path.exists(path)]
        return mounts

    def home(self) -> list[Mount]:
        """Return mounts for the home folder, which hide secrets and allow for the playground."""
        inside = self._relative(self._home)
        if self._can_layer(self._home):
            return self._masked_with_mounts(self._home, inside, ("playground",))
        return [self._bound(self._home, inside, ("playground",))]

    def outside(self) -> list[Mount]:
        """Return mounts that hide masked names and sockets outside the home folder."""
        elsewhere = FolderSet((*self.empty, self._home, self._project, "/dev"))
        names = {n for n in self._hidden_elsewhere if _can_see(n)}
        names |= {alias for name in names for alias in self._host.aliases(name)}
        listening = {s for s in self._host.sockets if s not in self._in_hidden}
        folders: dict[str, set[str]] = {}
        # The home folder may be mounted a second time.
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
                mounts.append(HiddenPath(path, os.path.isdir(path)))
        for folder in sorted(f for f in folders if not is_inside(f, *folders.keys() - {f})):
            hidden = {n for n in names.union(*folders.values()) if is_inside(n, folder)}
            mounts += self._masked_with_mounts(folder, tuple(n[len(folder) + 1 :] for n in hidden))
        return mounts

    def roots(self, overlay: Overlay) -> list[Mount]:
        """Return mounts for the project and linked folders. Sockets below an overlay are out of
        reach."""
        mounts: list[Mount] = []
        for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
            what = PROJECT if root.path == self._project else LINKED
            if not self._can_layer(root.path):
                mounts.append(UnrecordedFolder(root.path, what))
                mounts += self._hide(self._host.sockets_below(root.path))
                continue
            number = self._next_number()
            upper, work = overlay.upper(name), overlay.work(name)
            way, runtime = self._way, self._runtime
            mounts.append(
                OverlaidFolder(root.path, root.pending, upper, work, what, way, runtime, number)
            )
            mounted = self._host.mounted_below(root.path)
            mounts += [ReadOnlyBind(point) for point in mounted]
            listening = self._host.sockets_below(root.path)
            mounts += self._hide([s for s in listening if is_inside(s, *mounted)])
        return mounts

    def inside_writable(self, overlay: Overlay) -> list[Mount]:
        """Return mounts for each masked name and socket in writable folders."""
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
        """Protect the program's own code if its checkout is the project: a command that changed it
        would run outside the sandbox the next time."""
        roots = [root.path for root in overlay.roots]
        return [ReadOnlyBind(p) for p in own_code() if is_inside(p, *roots) and os.path.exists(p)]

    def _hide(self, paths: Sequence[str], pinned_below: str = "") -> list[Mount]:
        mounts: list[Mount] = []
        for path in paths:
            if pinned_below:
                mounts += self._pins(path, pinned_below)
            mounts.append(HiddenPath(path, os.path.isdir(path)))
        return mounts

    def _pins(self, path: str, writable: str) -> list[Mount]:
        """Keep the folders around a path from being renamed, which would uncover it the next time.
        A mount point cannot be renamed, nor can a folder below an overlay."""
        names = path[len(writable) + 1 :].split("/")[:-1]
        folders = ["/".join(names[: n + 1]) for n in range(len(names))]
        return [PinnedFolder(f"{writable}/{name}", f"{self.playground}/{name}") for name in folders]

    def _listening_on_mounts_in_home(self) -> list[str]:
        points = self._host.mounted_below(self._home)
        return [s for s in self._host.sockets if self._listens_in_home(s) and is_inside(s, *points)]

    def _listens_in_home(self, socket: str) -> bool:
        if not is_inside(socket, self._home) or is_inside(socket, self._project):
            return False
        return socket not in self._in_hidden

    def _can_layer(self, folder: str) -> bool:
        if self._way is OverlayMethod.NONE or folder == "/" or is_inside(folder, "/proc", "/sys"):
            return False
        return not self._locked or not self._host.mounted_below(folder)

    def seals(self) -> list[Mount]:
        return [SealedFolder(folder) for folder in self._sealed]

    def _masked_with_mounts(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> list[Mount]:
        mounts: list[Mount] = [self._masked(folder, hidden, added)]
        # The folder itself may be in one of the empty folders.
        empty = [f for f in self.empty if not is_inside(folder, f)]
        skipped = (*empty, "/proc", "/sys", "/dev")
        for point in self._host.mounted_below(folder):
            if point in self._in_hidden or is_inside(point, *skipped):
                continue
            # An overlay does not show what is mounted below its folder.
            if os.access(point, os.R_OK, effective_ids=True):
                names = self._relative(point)
                mounts.append(self._masked(point, names) if names else ReadOnlyBind(point))
        return mounts

    def _relative(self, folder: str) -> tuple[str, ...]:
        start = f"{folder}/"
        return tuple(name[len(start) :] for name in self._hidden if name.startswith(start))

    def _masked(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> MaskedFolder:
        number = self._next_number()
        # The overlays' own folders are in the cache, and bwrap finds them by their path, too.
        used = (self._project, self.playground, self._home, self._cache)
        bound = (*used, *self._host.mounted_below(folder))
        return MaskedFolder(
            spec_for(folder, hidden, added),
            self._way,
            self._runtime,
            number,
            in_place=not any(is_inside(path, folder) for path in bound),
        )

    def _next_number(self) -> int:
        if self._layers == MOUNT_POINTS:
            raise SandboxError(
                N_("Too many folders contain hidden files or sockets of other programs."),
                N_("Hide a common parent folder of them in your profile."),
            )
        self._layers += 1
        return self._layers - 1

    def _bound(self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...]) -> BoundFolder:
        spec = spec_for(folder, hidden, added)
        parents = {item.name for item in spec.folders}
        shown, links = [], []
        for parent in parents:
            for name in _names(f"{folder}/{parent}"):
                path = f"{parent}/{name}" if parent else name
                if path in parents or path in spec.hidden:
                    continue
                if os.path.islink(f"{folder}/{path}"):
                    # A bind would show the link's target, with all that is hidden there.
                    links.append((path, os.readlink(f"{folder}/{path}")))
                else:
                    shown.append(path)
        self._sealed.append(folder)
        return BoundFolder(
            folder=folder,
            mode=spec.folders[0].mode,
            shown=tuple(sorted(shown)),
            links=tuple(sorted(links)),
            parents=tuple((f.name, f.mode) for f in spec.folders[1:]),
            hidden=spec.hidden,
        )


def check_visible(overlay: Overlay, hidden: Sequence[str]) -> None:
    project, *linked = (root.path for root in overlay.roots)
    for name in set(hidden).intersection(path_and_parents(project)):
        raise ProjectError(
            N_("{project} is in {name}, which is hidden from commands."),
            N_("Choose another folder, or add it to `show` in your profile."),
            project=project,
            name=name,
        )
    for folder in linked:
        for name in set(hidden).intersection(path_and_parents(folder)):
            raise ProjectError(
                N_("{folder} is open to commands, but it is in {name}, which is hidden from them."),
                N_("Remove it: ollmsandbox roots remove {folder}"),
                folder=folder,
                name=name,
            )


def _may_write(folder: str) -> bool:
    """Return whether a command may write there: root has no capabilities inside."""
    found = os.stat(folder)
    if os.getuid() != 0 or found.st_uid == 0:
        return True
    group = found.st_gid in (os.getgid(), *os.getgroups()) and found.st_mode & 0o020
    return bool(group or found.st_mode & 0o002)


def _can_see(path: str) -> bool:
    """Return whether the user can read or enter a path; if not, it need not be hidden."""
    return any(os.access(path, way, effective_ids=True) for way in (os.R_OK, os.X_OK))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
