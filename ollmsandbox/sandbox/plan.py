# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run: what becomes bwrap's arguments, and what a person is asked about."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import ProjectError, SandboxError, WorkingDirError
from ..paths import Paths
from .host import Host, below
from .layer import MOUNT_POINTS, spec_for
from .mounts import (
    Hidden,
    Kernel,
    Layered,
    Mount,
    OverlayMount,
    OverlayWay,
    Pieced,
    ReadOnly,
    Scratch,
    Sealed,
    System,
    Writable,
)
from .profile import Limits, Profile
from .seccomp import Rules

# Where programs put sockets and temporary files: the sandbox has its own, empty ones.
EMPTY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_NO_PROJECT = ("/proc", "/sys", "/dev", "/run/user")
_OF_THE_KERNEL = ("/proc", "/dev")


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

    def args(self) -> list[str]:
        """bwrap's arguments, without the command."""
        made: list[str] = []
        for mount in self.mounts:
            made += mount.args()
        made += ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        made += ["--unshare-cgroup-try", "--die-with-parent", "--new-session"]
        if not self.network:
            made += ["--unshare-net"]
        made += ["--uid", str(os.getuid()), "--gid", str(os.getgid())]
        made += ["--cap-drop", "ALL", "--chdir", self.working_dir]
        return made

    def outer(self) -> list[OverlayMount]:
        return [o for mount in self.mounts if isinstance(mount, Layered) for o in mount.outer()]

    def describe(self) -> list[str]:
        """Sentences for a person, from the same objects."""
        network = (
            "The network can be reached." if self.network else "The network cannot be reached."
        )
        return [network, *filter(None, (mount.describe() for mount in self.mounts))]


def find_project(folder: str | os.PathLike[str], paths: Paths) -> str:
    """The project folder, links resolved, or an error that says why it cannot be one."""
    given = os.fspath(folder)
    try:
        found = os.stat(given)
    except PermissionError as error:
        raise ProjectError(f"The project folder cannot be opened: {given}.") from error
    except OSError as error:
        raise ProjectError(f"The project folder does not exist: {given}.") from error
    except ValueError as error:
        raise ProjectError(f"This cannot be a folder's name: {given!r}.") from error
    if not stat.S_ISDIR(found.st_mode):
        raise ProjectError(
            f"The project is a file, not a folder: {given}.", "Name the folder that holds it."
        )
    project = os.path.realpath(given)
    home = os.path.realpath(paths.home)
    if below(home, project):
        raise ProjectError(
            f"{project} holds your whole home folder, and with it your keys and passwords.",
            "Choose a folder inside it.",
        )
    for own in (*paths.own, paths.runtime()):
        real = os.path.realpath(own)
        if below(project, real) or below(real, project):
            # A command that could write there would decide what the next one may do.
            raise ProjectError(f"{project} has files of this program in it, or lies among them.")
    for place in _NO_PROJECT:
        if below(project, place) and not below(project, "/dev/shm"):
            raise ProjectError(f"{project} cannot be a project: it is not on a disk.")
    if below(project, f"{home}/playground"):
        raise ProjectError(
            f"{project} lies where commands find the playground.", "Move it to another folder."
        )
    if project in EMPTY:
        raise ProjectError(
            f"{project} is for every program's temporary files.", "Choose a folder inside it."
        )
    return project


def find_working_dir(
    working_dir: str | None,
    project: str,
    paths: Paths,
    hidden: Sequence[str],
    empty: Sequence[str] = EMPTY,
) -> str:
    """Where the command starts, as a path inside the sandbox."""
    if not working_dir:
        return project
    inside = os.path.realpath(paths.home) + "/playground"
    if working_dir == "playground":
        return inside
    if "\0" in working_dir:
        raise WorkingDirError(working_dir)
    # Not by expanduser: the home folder is the one of the run, not of this process.
    whole = working_dir
    if whole == "~" or whole.startswith("~/"):
        whole = f"{paths.home}{whole[1:]}"
    path = os.path.normpath(os.path.join(project, whole))
    for shown in (str(paths.playground_inside), inside):
        # The playground is elsewhere on the host.
        if below(path, shown):
            playground = os.path.realpath(paths.playground)
            real = os.path.realpath(f"{playground}/{path[len(shown) :]}")
            if below(real, playground) and _may_enter(real):
                return inside + real[len(playground) :]
            raise WorkingDirError(working_dir)
    path = os.path.realpath(path)
    if not _may_enter(path):
        raise WorkingDirError(working_dir)
    home = os.path.realpath(paths.home)
    # What leads to the project or the home folder is there, even in a folder that is else empty.
    leads = below(project, path) or below(home, path) or path in empty
    in_scratch = _in_any(path, empty) and not leads and not below(path, home)
    alive = _in_any(path, _OF_THE_KERNEL) and path not in (*EMPTY, *_OF_THE_KERNEL, "/dev/pts")
    unseen = in_scratch or alive or _in_any(path, hidden)
    if unseen and not below(path, project):
        raise WorkingDirError(working_dir)
    return path


def make_plan(
    *,
    project: str,
    working_dir: str | None,
    network: bool,
    profile: Profile,
    paths: Paths,
    host: Host,
    way: OverlayWay,
    mounts_are_locked: bool,
    environ: Mapping[str, str],
) -> Plan:
    """Decide everything. Mounts are locked in a user namespace: it cannot take a folder apart
    from what is mounted below it, so no overlay can be put over such a folder."""
    home = os.path.realpath(paths.home)
    if home == "/" or not os.path.isdir(home):
        raise ProjectError(f"{home} cannot be a home folder.", "Set HOME to a folder of yours.")
    hidden = hidden_paths(profile, paths)
    for name in hidden:
        if below(project, name):
            raise ProjectError(
                f"{project} lies in {name}, which commands may not see.",
                "Choose another folder, or name it under `show` in your profile.",
            )
    builder = _Builder(project, home, hidden, paths, host, way, locked=mounts_are_locked)
    limits = profile.limits
    inside = f"{home}/playground"
    mounts: list[Mount] = [System(), Kernel(is_root=os.getuid() == 0)]
    mounts += builder.outside()
    mounts += [Scratch(folder, limits.tmp) for folder in builder.empty if folder != "/run"]
    mounts += builder.run_folder(profile.run, host.resolver if network else None)
    mounts += builder.home()
    mounts += [Writable(inside, os.path.realpath(paths.playground), "the playground")]
    mounts += [Writable(project, project, "the project")]
    mounts += builder.inside_writable()
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
        rules=Rules(
            unix_sockets=profile.unix_sockets and not network,
            netlink=profile.unix_sockets,
            deny=profile.deny_syscalls,
        ),
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
        self._hidden_elsewhere = [name for name in hidden if not below(name, home)]
        self._way = way
        self._locked = locked
        self._host = host
        self._playground = os.path.realpath(paths.playground)
        self._runtime = str(paths.runtime())
        self._layers = 0
        # Its devices are there by now; what is written there would be in memory, without limit.
        self._sealed: list[str] = ["/dev"]
        self.empty = [f for f in EMPTY if os.path.isdir(f) and os.path.realpath(f) == f]

    def run_folder(self, keep: Sequence[str], resolver: str | None) -> list[Mount]:
        mounts: list[Mount] = [Scratch("/run", 16 << 20, writable=False)]
        wanted = [*keep, *([resolver] if resolver and below(resolver, "/run") else [])]
        mounts += [ReadOnly(path) for path in wanted if os.path.exists(path)]
        self._sealed.append("/run")
        return mounts

    def home(self) -> list[Mount]:
        """The home folder without secrets, with the playground's mount point."""
        inside = self._relative(self._home)
        if self._can_layer(self._home):
            return self._walled(self._home, inside, ("playground",))
        return [self._pieced(self._home, inside, ("playground",))]

    def outside(self) -> list[Mount]:
        """What is hidden, and what listens, outside the home folder."""
        elsewhere = (*self.empty, self._home, self._project, "/dev")
        names = {n for n in self._hidden_elsewhere if _can_see(n)}
        names |= {alias for name in names for alias in self._host.aliases(name)}
        listening = {s for s in self._host.sockets if not _in_any(s, self._hidden)}
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
            if _in_any(path, (*elsewhere, *folders)) or not os.path.lexists(path):
                continue
            if self._can_layer(folder):
                folders.setdefault(folder, set())
            else:
                mounts.append(Hidden(path, os.path.isdir(path)))
        for folder in sorted(f for f in folders if not _in_any(f, folders.keys() - {f})):
            hidden = {n for n in names.union(*folders.values()) if below(n, folder)}
            mounts += self._walled(folder, tuple(n[len(folder) + 1 :] for n in hidden))
        return mounts

    def inside_writable(self) -> list[Mount]:
        """Where changes are real, what is hidden and what listens needs a mount of its own."""
        names = [n for n in self._hidden if below(n, self._project) and os.path.exists(n)]
        sockets = [s for s in self._host.sockets if below(s, self._project)]
        if not self._can_layer(self._home):
            sockets += [s for s in self._host.sockets if self._listens_in_home(s)]
        shown = f"{self._home}/playground"
        sockets += [
            shown + socket[len(self._playground) :]
            for socket in self._host.sockets
            if below(socket, self._playground)
        ]
        return [Hidden(path, os.path.isdir(path)) for path in (*names, *sockets)]

    def _listens_in_home(self, socket: str) -> bool:
        seen = not _in_any(socket, (*self._hidden, self._project))
        return seen and below(socket, self._home)

    def _can_layer(self, folder: str) -> bool:
        if self._way is OverlayWay.NONE or folder == "/" or _in_any(folder, ("/proc", "/sys")):
            return False
        return not self._locked or not self._host.mounted_below(folder)

    def seals(self) -> list[Mount]:
        return [Sealed(folder) for folder in self._sealed]

    def _walled(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> list[Mount]:
        mounts: list[Mount] = [self._layered(folder, hidden, added)]
        # The folder itself may lie in one that is else empty.
        empty = [f for f in self.empty if not below(folder, f)]
        skipped = (*self._hidden, *empty, "/proc", "/sys", "/dev")
        for point in self._host.mounted_below(folder):
            # An overlay does not show what is mounted below its folder.
            if not _in_any(point, skipped) and os.access(point, os.R_OK, effective_ids=True):
                names = self._relative(point)
                mounts.append(self._layered(point, names) if names else ReadOnly(point))
        return mounts

    def _relative(self, folder: str) -> tuple[str, ...]:
        return tuple(
            name[len(folder) + 1 :]
            for name in self._hidden
            if below(name, folder) and name != folder
        )

    def _layered(
        self, folder: str, hidden: tuple[str, ...], added: tuple[str, ...] = ()
    ) -> Layered:
        if self._layers == MOUNT_POINTS:
            raise SandboxError(
                "Too many folders have to be hidden or hold sockets of other programs.",
                "Hide a folder around them in your profile.",
            )
        self._layers += 1
        number = self._layers - 1
        return Layered(spec_for(folder, hidden, added), self._way, self._runtime, number)

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


def hidden_paths(profile: Profile, paths: Paths) -> tuple[str, ...]:
    """Full paths of what commands do not see, with links resolved; it need not exist."""
    home = os.path.realpath(paths.home)
    found: dict[str, None] = {}
    for given, names in profile.hidden_by_folder.items():
        folder = home + given[1:] if given.startswith("~") else given
        # The folder around a name may be a link, and so may the name itself.
        around = os.path.realpath(folder).rstrip("/")
        for name in names:
            path = f"{folder}/{name}"
            found[f"{around}/{name}"] = None
            pattern = glob.escape(home) + path[len(home) :] if given.startswith("~") else path
            for match in glob.glob(pattern) if "*" in f"{given}/{name}" else ():
                found[f"{os.path.realpath(os.path.dirname(match))}/{os.path.basename(match)}"] = (
                    None
                )
                found[os.path.realpath(match)] = None
            if os.path.islink(path):
                found[os.path.realpath(path)] = None
    for own in paths.own:
        found[os.path.realpath(own)] = None
    return tuple(name for name in found if not below(home, name))


def _in_any(path: str, folders: Iterable[str]) -> bool:
    return any(below(path, folder) for folder in folders)


def _may_enter(path: str) -> bool:
    """Inside, root has no more rights than a folder's mode gives."""
    if not os.path.isdir(path) or not os.access(path, os.X_OK):
        return False
    while os.getuid() == 0 and path != "/":
        found = os.stat(path)
        mine, group = found.st_uid == 0, found.st_gid in (os.getgid(), *os.getgroups())
        if not found.st_mode & (0o100 if mine else 0o010 if group else 0o001):
            return False
        path = os.path.dirname(path)
    return True


def _can_see(path: str) -> bool:
    """What the person may neither read nor enter need not be hidden from a command."""
    return any(os.access(path, way, effective_ids=True) for way in (os.R_OK, os.X_OK))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
