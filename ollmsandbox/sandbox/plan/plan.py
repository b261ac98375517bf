# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run, which becomes bwrap's arguments and the permission question.

`host_plan.py` builds it for the host's system, and `rootfs/plan.py` for a root file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ... import N_
from ...errors import ProjectError, SandboxError
from ...i18n import _
from ...paths import Paths, is_inside, real_path
from ...record import Record
from ..caches import PLAIN_CACHES, CacheLayers
from ..overlay import Overlay
from ..profile.devices import usable_devices
from ..profile.profile import Limits, Profile
from ..seccomp import FilterRules
from ..spec import RunSpec
from . import mounts
from .caches import outermost
from .folders import own_code
from .host import Host, path_and_parents
from .mask_layer import MOUNT_POINTS, path_prefixes
from .masks import hidden_paths, names_inside
from .mounts import BindMounts, Mount, OverlayMount
from .projects import secrets_of_others

# No clean-up begins by itself, to be settled half finished, and git removes nothing that it cannot
# reach. It does not write what would be left out or held: see project/held/git/table.py.
_GIT_SETTINGS = (
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("gc.pruneExpire", "never"),
    ("gc.writeCommitGraph", "false"),
    ("repack.updateServerInfo", "false"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
)


class Plan(Record):
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
    # The cache layers that some of the mounts use.
    caches: CacheLayers | None = None
    # The playground, if the run has an overlay above it.
    playground: str = ""
    # Whether the network is only for hosts that the user allows.
    by_host: bool = False
    # Whether the user's ssh-agent signs for the command.
    ssh_agent: bool = False

    @property
    def has_own_network(self) -> bool:
        """Whether the command has a network namespace of its own."""
        return not self.network or self.by_host

    def args(self) -> list[str]:
        """Return bwrap's arguments, without the command."""
        made: list[str] = []
        for mount in self.mounts:
            made += mount.args()
        made += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        made += ["--unshare-cgroup-try", "--new-session"]
        if self.has_own_network:
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

    def overlay_mounts(self) -> list[OverlayMount | BindMounts]:
        """Return what to mount before bwrap starts."""
        return [overlay for mount in self.mounts for overlay in mount.overlay_mounts()]

    def open_caches(self) -> None:
        """Create the folders for what the command writes to caches."""
        if self.caches is not None:
            plain = [mount for mount in self.mounts if isinstance(mount, mounts.PlainCaches)]
            self.caches.open(
                [part for mount in self.mounts for part in mount.parts()],
                [name for mount in plain for name in mount.names],
            )

    def notices(self) -> list[str]:
        """Return, in English for a model, why commands cannot write to the project."""
        found = [
            mount.notice() for mount in self.mounts if isinstance(mount, mounts.UnrecordedFolder)
        ]
        if not found and not _may_write(self.project):
            found.append(
                f"{self.project} belongs to another user. Root has no special rights in the "
                "sandbox, so commands cannot change it. Run them as that user."
            )
        return found

    def describe(self) -> list[str]:
        """Return sentences for the user: about the network, then about each mount."""
        sentences = filter(None, (mount.describe() for mount in self.mounts))
        keys = _("Your ssh-agent signs for the command when it logs in somewhere.")
        return [self.describe_network(), *([keys] if self.ssh_agent else []), *sentences]

    def describe_network(self) -> str:
        if self.by_host:
            return _("The network is open to the hosts that you allow.")
        return _("The network is on.") if self.network else _("The network is off.")


class PlanInputs(Record):
    """Everything a plan is built from. The overlay's first root is the project."""

    overlay: Overlay
    spec: RunSpec
    profile: Profile
    paths: Paths
    host: Host
    method: mounts.OverlayMethod
    # In a user namespace a folder cannot be separated from what is mounted in it, so it cannot get
    # an overlay.
    mounts_are_locked: bool
    environ: Mapping[str, str]
    # Whether the layers of caches can be mounted here.
    can_cache: bool = True
    # Whose secrets commands do not see.
    other_projects: tuple[str, ...] = ()


class PlanBuilder:
    """Builds the mounts of the folders that a command may write to."""

    def __init__(self, inputs: PlanInputs) -> None:
        self.inputs = inputs
        self.host = inputs.host
        self.project = inputs.overlay.roots[0].path
        self.playground = real_path(inputs.paths.playground)
        self.runtime = str(inputs.paths.runtime)
        self.hidden = hidden_paths(inputs.profile, inputs.paths, inputs.environ)
        home, roots = inputs.paths.real_home, [root.path for root in inputs.overlay.roots]
        of_others = secrets_of_others(inputs.profile, roots, home, inputs.other_projects)
        self.hidden += tuple(path for path in of_others if is_inside(path, home))
        self.hidden_in_others = [path for path in of_others if not is_inside(path, home)]
        _check_visible(inputs.overlay, self.hidden)
        self._layers = 0
        self.caches: CacheLayers | None = None

    def shown(self, path: str) -> str:
        """Return the path that a path of the host has inside, or "" if it is the same."""
        return ""

    def roots(self) -> list[Mount]:
        """Return mounts for the project and linked folders."""
        made: list[Mount] = []
        overlay = self.inputs.overlay
        for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
            what = mounts.PROJECT if root.path == self.project else mounts.LINKED
            shown = self.shown(root.path)
            listening = self.host.sockets_below(root.path)
            if self.inputs.spec.agent.tools:
                made.append(mounts.ReadOnlyRoot(root.path, shown))
                made += self.hide(listening)
                continue
            if not self.can_overlay(root.path):
                made.append(mounts.UnrecordedFolder(root.path, what, shown))
                made += self.hide(listening)
                continue
            made.append(
                mounts.OverlaidFolder(
                    root.path,
                    tuple(root.lowers),
                    overlay.upper(name),
                    overlay.work(name),
                    what,
                    self.next_point(),
                    shown,
                )
            )
            mounted = self.host.mounted_below(root.path)
            made += [mounts.ReadOnlyBind(point, self.shown(point)) for point in mounted]
            # Sockets below an overlay are out of reach, but not those on other mounts.
            made += self.hide(s for s in listening if is_inside(s, *mounted))
        return made

    def devices(self) -> list[Mount]:
        """Return the sandbox's own /dev and /proc, and the devices that the profile names."""
        named = self.inputs.profile.devices
        found = usable_devices(named) if named else []
        own = mounts.DevicesAndProcesses(is_root=os.getuid() == 0, has_devices=bool(found))
        return [own, *map(mounts.Device, found)]

    def own_code(self) -> list[Mount]:
        """Protect the program's own code if its checkout is the project: a command that changed it
        would run outside the sandbox the next time."""
        roots = [root.path for root in self.inputs.overlay.roots]
        return [
            mounts.ReadOnlyBind(path, self.shown(path))
            for path in own_code()
            if is_inside(path, *roots) and os.path.exists(path)
        ]

    def hidden_in_roots(self) -> list[Mount]:
        roots = [root.path for root in self.inputs.overlay.roots]
        paths = [f"{root}/{name}" for root in roots for name in names_inside(self.hidden, root)]
        return self.hide(filter(os.path.exists, dict.fromkeys(paths)))

    def playground_at(self, shown: str) -> list[Mount]:
        """Return mounts for the playground, which is visible as `shown`.

        If it is shared, the sockets in it are hidden and the folders around them are pinned. If a
        command could rename one, the socket would not be hidden the next time.
        """
        if self._is_separate:
            overlay = self.inputs.overlay
            folders = (shown, (self.playground,), overlay.playground_upper, overlay.playground_work)
            return [mounts.SeparatePlayground(*folders, mounts.PLAYGROUND, self.next_point())]
        made: list[Mount] = [mounts.WritableFolder(shown, self.playground, mounts.PLAYGROUND)]
        for socket in self.host.sockets_below(self.playground):
            name = socket[len(self.playground) + 1 :]
            *around, _itself = path_prefixes(name)
            made += [mounts.PinnedFolder(f"{shown}/{f}", f"{self.playground}/{f}") for f in around]
            made.append(mounts.HiddenPath(f"{shown}/{name}", is_folder=False))
        return made

    @cached_property
    def _is_separate(self) -> bool:
        """Return whether the run gets a playground of its own, above the common one."""
        if self.inputs.profile.shared_playground or not self.can_overlay(self.playground):
            return False
        # What is mounted in it would not be visible. And what the run wrote is moved, which is
        # possible only within one mount of one file system.
        cache = real_path(self.inputs.paths.cache)
        return (
            not self.host.mounted_below(self.playground)
            and not is_inside(cache, self.playground)
            and self.host.mount_around(cache) == self.host.mount_around(self.playground)
            and os.stat(cache).st_dev == os.stat(self.playground).st_dev
        )

    def hide(self, paths: Iterable[str]) -> list[Mount]:
        return [mounts.HiddenPath(self.shown(path) or path, os.path.isdir(path)) for path in paths]

    def can_overlay(self, folder: str) -> bool:
        if self.inputs.method is mounts.OverlayMethod.NONE:
            return False
        if folder == "/" or is_inside(folder, "/proc", "/sys"):
            return False
        return not self.inputs.mounts_are_locked or not self.host.mounted_below(folder)

    def plain_caches(
        self, layers: CacheLayers, names: Iterable[str], linked_in: str = ""
    ) -> mounts.PlainCaches:
        """Return the mount of the folder with the caches that the user does not have."""
        part, point = layers.plain_part, self.next_point()
        return mounts.PlainCaches(
            PLAIN_CACHES, layers.plain, layers, part, point, tuple(names), linked_in
        )

    def next_point(self) -> mounts.OverlayPoint:
        """Return where another overlay of this run is mounted."""
        if self._layers == MOUNT_POINTS:
            raise SandboxError(
                N_("Too many folders are linked, or contain hidden files or sockets."),
                N_("Hide a common parent folder of them in your profile."),
            )
        self._layers += 1
        return mounts.OverlayPoint(self.inputs.method, self.runtime, self._layers - 1)

    def plan(self, given: Sequence[Mount], environment: dict[str, str], folder: str) -> Plan:
        network, profile = self.inputs.spec.network, self.inputs.profile
        return Plan(
            project=self.project,
            working_dir=folder,
            network=network,
            mounts=tuple(given),
            environment={**environment, **self._git_settings(environment, given), "PWD": folder},
            limits=profile.limits,
            # By host, there is no other network than our own sockets.
            rules=FilterRules.of(profile, network=network and not self.inputs.spec.by_host),
            caches=self.caches,
            playground=self.playground if self._is_separate else "",
            by_host=self.inputs.spec.by_host,
            ssh_agent=self.inputs.spec.ssh_agent,
        )

    def _git_settings(
        self, environment: Mapping[str, str], given: Sequence[Mount]
    ) -> dict[str, str]:
        """Return variables with settings for git: those above, and that it clones a folder that has
        an overlay as it clones from a server.

        Otherwise it makes hard links to the objects, and fails because a link has another inode
        number than its source. Overlayfs gives it the same one only for real root, and not in
        caches.
        """
        folders: list[str] = []
        if self.inputs.mounts_are_locked:
            folders += [self.shown(root.path) or root.path for root in self.inputs.overlay.roots]
            folders += [
                mount.folder for mount in given if isinstance(mount, mounts.SeparatePlayground)
            ]
        caches = (m for m in given if isinstance(m, mounts.CacheFolders | mounts.PlainCaches))
        folders += [path for mount in caches for path in mount.paths()]
        # git decodes the address.
        places = {path: path.replace("%", "%25") for path in outermost(folders)}
        settings = [(f"url.file://{place}.insteadOf", path) for path, place in places.items()]
        settings += _GIT_SETTINGS
        given_count = environment.get("GIT_CONFIG_COUNT", "")
        first = int(given_count) if given_count.isdecimal() else 0
        made = {"GIT_CONFIG_COUNT": str(first + len(settings))}
        for number, (key, value) in enumerate(settings, first):
            made[f"GIT_CONFIG_KEY_{number}"] = key
            made[f"GIT_CONFIG_VALUE_{number}"] = value
        return made


def _check_visible(overlay: Overlay, hidden: Sequence[str]) -> None:
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
                N_(
                    "Commands have access to {folder}, but it is in {name}, which is hidden "
                    "from them."
                ),
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
