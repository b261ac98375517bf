# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the plan of a run in a root file system, where the project is at /workspace."""

from __future__ import annotations

import os

from ... import N_
from ...errors import RootfsError
from ...paths import is_inside, real_path
from ..caches import PLAIN_CACHES, CacheLayers
from ..plan import mounts
from ..plan.caches import rootfs_caches
from ..plan.mask_layer import path_prefixes, spec_for
from ..plan.mounts import Mount
from ..plan.plan import Plan, PlanBuilder, PlanInputs
from ..plan.resolver import resolver_files, ssh_files, ssh_variables
from . import paths
from .files import MOUNT_POINTS, RESOLVER
from .store import Installed

_SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")


def make_rootfs_plan(inputs: PlanInputs, rootfs: Installed) -> Plan:
    """Build the plan. There is little to hide: nothing of the host is visible but what is mounted
    here."""
    profile = inputs.profile
    builder = _RootfsBuilder(inputs, rootfs)
    made: list[Mount] = [*builder.system(), *builder.devices()]
    made += [mounts.EmptyFolder(folder, profile.limits.tmp) for folder in _SCRATCH]
    made += [mounts.EmptyFolder("/run", 1 << 20, writable=False)]
    if inputs.spec.by_host:
        made += resolver_files(inputs.paths.runtime, rootfs.folder)
        if inputs.spec.ssh_agent:
            made += ssh_files(inputs.paths.runtime, inputs.overlay.run_id, rootfs.folder)
    elif inputs.spec.network:
        made += builder.resolver()
    caches = rootfs_caches(profile)
    made += builder.caches_for(tuple(caches.values()))
    made += builder.playground_at(paths.PLAYGROUND)
    made += builder.extra_ro_binds()
    made += builder.roots()
    made += builder.own_code()
    made += builder.hidden_in_roots()
    made += [mounts.SealedFolder("/dev")]
    environment = {variable: f"{PLAIN_CACHES}/{name}" for variable, name in caches.items()}
    has_proxies = inputs.spec.network and not inputs.spec.by_host
    environment |= paths.rootfs_environment(profile, inputs.environ, network=has_proxies)
    environment |= ssh_variables() if inputs.spec.ssh_agent else {}
    folder = paths.find_working_dir_inside(
        inputs.spec.working_dir, builder.places, inputs.paths, rootfs.folder, builder.hidden
    )
    return builder.plan(made, environment, folder)


class _RootfsBuilder(PlanBuilder):
    def __init__(self, inputs: PlanInputs, rootfs: Installed) -> None:
        super().__init__(inputs)
        self._rootfs = rootfs
        linked = [root.path for root in inputs.overlay.roots[1:]]
        home, profile = inputs.paths.real_home, inputs.profile
        named = [home + path[1:] if path[0] == "~" else path for path in profile.extra_ro_binds]
        self._extra = tuple(path for path in map(os.path.realpath, named) if os.path.isdir(path))
        self._skills = paths.skills_folder(profile, inputs.paths)
        self.places = paths.PathMap.of(inputs.paths, self.project, (*linked, *self._extra))

    def shown(self, path: str) -> str:
        return self.places.to_inside(path) or path

    def system(self) -> list[Mount]:
        """Return mounts for `/`. It is read-only, so a mask layer adds mount points it lacks."""
        folder, title = self._rootfs.folder, self._rootfs.title
        made: list[Mount] = [mounts.RootfsSystem(folder, title)]
        points = [*MOUNT_POINTS, *(path.lstrip("/") for path in self.places.linked)]
        missing = [point for point in points if paths.folder_in(folder, point) != f"/{point}"]
        if missing:
            if self.inputs.method is mounts.OverlayMethod.NONE:
                raise RootfsError(
                    N_("{folder} has no folder {name}, and no overlay can be mounted here."),
                    N_("Create it: mkdir -p {folder}/{name}"),
                    folder=folder,
                    name=missing[0],
                )
            added = {prefix for point in missing for prefix in path_prefixes(point)}
            spec = spec_for(folder, (), tuple(sorted(added)))
            made.append(mounts.MaskedFolder(spec, self.next_point(), shown="/"))
        return made

    def caches_for(self, names: tuple[str, ...]) -> list[Mount]:
        """Return the mount of the project's caches for this system. They are not in the home
        folder, which is the project, and the user's own are for other programs."""
        if not names:
            return []
        root, run_id = real_path(self.inputs.paths.caches[0]), self.inputs.overlay.run_id
        self.caches = CacheLayers(root, self.project, run_id, "rootfs")
        return [self.plain_caches(self.caches, names)]

    def extra_ro_binds(self) -> list[Mount]:
        """Return mounts for what the profile shows of this computer, without what is hidden."""
        binds = [(path, path) for path in self._extra]
        if self._skills:
            binds.append((self._skills, paths.SKILLS))
        made: list[Mount] = []
        for path, shown in binds:
            if is_inside(path, *self.hidden):
                raise RootfsError(
                    N_("{path} is hidden from commands."),
                    N_("Remove it from the profile, or add it to `show`."),
                    path=path,
                )
            made.append(mounts.ReadOnlyBind(path, shown))
            inside = [name for name in self.hidden if is_inside(name, path)]
            for name in (*filter(os.path.lexists, inside), *self.host.sockets_below(path)):
                made.append(mounts.HiddenPath(shown + name[len(path) :], os.path.isdir(name)))
        return made

    def resolver(self) -> list[Mount]:
        if not os.path.isfile(self.host.resolver):
            return []
        inside = f"{self._rootfs.folder}/{RESOLVER}"
        if os.path.islink(inside) or not os.path.isfile(inside):
            raise RootfsError(
                N_("{file} is missing, so host names cannot be resolved."),
                N_("Create an empty file with that name."),
                file=inside,
            )
        return [mounts.ReadOnlyBind(self.host.resolver, f"/{RESOLVER}")]
