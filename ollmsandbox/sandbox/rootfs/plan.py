# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run in another system: `/` is that system, the project is at /workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ... import N_
from ...errors import RootfsError
from ...paths import Paths, is_inside
from ..overlay import Overlay
from ..plan.folders import own_code
from ..plan.host import Host
from ..plan.mask_layer import MOUNT_POINTS as MOST_LAYERS
from ..plan.mask_layer import spec_for
from ..plan.masks import hidden_paths
from ..plan.mounts import (
    LINKED,
    PROJECT,
    DevicesAndProcesses,
    EmptyFolder,
    HiddenPath,
    MaskedFolder,
    Mount,
    OverlaidFolder,
    OverlayMethod,
    PinnedFolder,
    ReadOnlyBind,
    RootfsSystem,
    SealedFolder,
    UnrecordedFolder,
    WritableFolder,
)
from ..plan.mounts import PLAYGROUND as THE_PLAYGROUND
from ..plan.plan import Plan, check_visible
from ..profile.profile import Profile
from ..seccomp import FilterRules
from .files import MOUNT_POINTS, RESOLVER
from .paths import PLAYGROUND, Places, environment_of, find_working_dir_inside, folder_in
from .store import Installed

_SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")


def make_rootfs_plan(
    *,
    rootfs: Installed,
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
    """As make_plan. Nothing of the machine is seen but what is mounted here, so there is little to
    hide: what the profile names in the folders that can be written, and what listens there."""
    project, *linked = (root.path for root in overlay.roots)
    hidden = hidden_paths(profile, paths, environ)
    check_visible(overlay, hidden)
    places = Places.of(paths, project, linked)
    builder = _Builder(rootfs, places, paths, host, way, locked=mounts_are_locked)
    limits = profile.limits
    mounts: list[Mount] = [*builder.system(), DevicesAndProcesses(is_root=os.getuid() == 0)]
    mounts += [EmptyFolder(folder, limits.tmp) for folder in _SCRATCH]
    mounts += [EmptyFolder("/run", 1 << 20, writable=False)]
    if network:
        mounts += builder.resolver()
    mounts += [WritableFolder(PLAYGROUND, places.playgrounds[0], THE_PLAYGROUND)]
    mounts += builder.roots(overlay)
    mounts += builder.hidden(hidden)
    mounts += [SealedFolder("/dev")]
    directory = find_working_dir_inside(working_dir, places, paths, rootfs.folder, hidden)
    environment = environment_of(profile, environ, network=network)
    environment["PWD"] = directory
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
    def __init__(
        self,
        rootfs: Installed,
        places: Places,
        paths: Paths,
        host: Host,
        way: OverlayMethod,
        *,
        locked: bool,
    ) -> None:
        self._rootfs = rootfs
        self._places = places
        self._host = host
        self._way = way
        self._locked = locked
        self._runtime = str(paths.runtime)
        self._layers = 0

    def system(self) -> list[Mount]:
        """Nothing can be added to it, so where a mount point is missing a layer has it."""
        folder, title = self._rootfs.folder, self._rootfs.title
        mounts: list[Mount] = [RootfsSystem(folder, title)]
        points = [*MOUNT_POINTS, *(path.lstrip("/") for path in self._places.linked)]
        missing = [point for point in points if folder_in(folder, point) != f"/{point}"]
        if missing:
            if self._way is OverlayMethod.NONE:
                raise RootfsError(
                    N_("{folder} has no folder {name}, and no overlay can be mounted here."),
                    N_("Make it: mkdir -p {folder}/{name}"),
                    folder=folder,
                    name=missing[0],
                )
            ways = {way for point in missing for way in _ways(point)}
            spec = spec_for(folder, (), tuple(sorted(ways)))
            mounts.append(
                MaskedFolder(spec, self._way, self._runtime, self._next_number(), shown="/")
            )
        return mounts

    def resolver(self) -> list[Mount]:
        if not os.path.isfile(self._host.resolver):
            return []
        inside = f"{self._rootfs.folder}/{RESOLVER}"
        if os.path.islink(inside) or not os.path.isfile(inside):
            raise RootfsError(
                N_("{file} is missing, so names of the network cannot be looked up in there."),
                N_("Make an empty file of that name."),
                file=inside,
            )
        return [ReadOnlyBind(self._host.resolver, f"/{RESOLVER}")]

    def roots(self, overlay: Overlay) -> list[Mount]:
        mounts: list[Mount] = []
        for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
            what = PROJECT if root.path == self._places.project else LINKED
            shown = self._shown(root.path)
            below_it = self._host.mounted_below(root.path)
            if self._way is OverlayMethod.NONE or (self._locked and below_it):
                mounts.append(UnrecordedFolder(root.path, what, shown))
                mounts += self._hide(self._host.sockets_below(root.path))
                continue
            mounts.append(
                OverlaidFolder(
                    root.path,
                    root.pending,
                    overlay.upper(name),
                    overlay.work(name),
                    what,
                    self._way,
                    self._runtime,
                    self._next_number(),
                    shown,
                )
            )
            mounts += [ReadOnlyBind(point, self._shown(point)) for point in below_it]
            # Behind an overlay nothing that listens can be reached; on these it could.
            listening = [s for s in self._host.sockets_below(root.path) if is_inside(s, *below_it)]
            mounts += self._hide(listening)
        return mounts

    def hidden(self, hidden: Sequence[str]) -> list[Mount]:
        places = self._places
        writable = (places.project, *places.linked)
        # The program itself may lie in one of them, if that is its checkout.
        mounts: list[Mount] = [
            ReadOnlyBind(path, self._shown(path))
            for path in own_code()
            if is_inside(path, *writable) and os.path.exists(path)
        ]
        mounts += self._hide([n for n in hidden if is_inside(n, *writable) and os.path.exists(n)])
        playground = places.playgrounds[0]
        for socket in self._host.sockets_below(playground):
            mounts += self._pins(socket, playground)
            mounts += self._hide([socket])
        return mounts

    def _pins(self, path: str, playground: str) -> list[Mount]:
        """A folder around it could be renamed, and be there without the mount the next time. A
        mount point cannot."""
        around = _ways(path[len(playground) + 1 :])[:-1]
        return [PinnedFolder(f"{PLAYGROUND}/{name}", f"{playground}/{name}") for name in around]

    def _hide(self, paths: Sequence[str]) -> list[Mount]:
        return [HiddenPath(self._shown(path), os.path.isdir(path)) for path in paths]

    def _shown(self, path: str) -> str:
        return self._places.to_inside(path) or path

    def _next_number(self) -> int:
        if self._layers == MOST_LAYERS:
            raise RootfsError(N_("Too many folders are linked from the project."))
        self._layers += 1
        return self._layers - 1


def _ways(path: str) -> list[str]:
    """The path itself last, after the folders on the way to it."""
    parts = path.split("/")
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]
