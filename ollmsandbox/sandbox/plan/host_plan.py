# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the plan of a run that uses the host's system, with secrets and sockets hidden."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ... import N_
from ...errors import ProjectError, SandboxError, WorkingDirError
from ...paths import FolderSet, home_on_record, is_inside, project_key, real_path
from ..caches import PLAIN_CACHES, CacheLayers
from ..profile.agent import SettingsFolder
from ..profile.profile import FolderTemplate
from . import mounts
from .caches import FoundCaches, find_caches, needs_base, outermost, plain_name, usable_caches
from .folders import EMPTY_FOLDERS, find_working_dir, is_home
from .home import AllowedPaths, allowed_paths, unlisted_names
from .mask_layer import path_prefixes, spec_for
from .masks import by_folder, names_inside
from .mounts import Mount
from .plan import Plan, PlanBuilder, PlanInputs
from .resolver import resolver_files, ssh_files, ssh_variables, without_proxies

_NOT_FILES = ("/proc", "/sys", "/dev")


def make_host_plan(inputs: PlanInputs) -> Plan:
    paths, profile = inputs.paths, inputs.profile
    home = paths.real_home
    if home == "/" or not os.path.isdir(home):
        remedy = N_("Set HOME to your home folder.")
        raise ProjectError(N_("{home} cannot be a home folder."), remedy, home=home)
    environment = profile.environment(inputs.environ, network=inputs.spec.network)
    if inputs.environ.get("HOME"):
        # A link to it may be in a folder that is empty inside.
        environment["HOME"] = home
    if inputs.spec.by_host:
        environment = without_proxies(environment)
    # Compiled files that are not what their source says would run outside, unseen.
    caches = FolderTemplate("XDG_CACHE_HOME", "~/.cache", "/python")
    where = caches.expand(environment.get(caches.variable, ""), home)
    environment.setdefault("PYTHONPYCACHEPREFIX", where)
    builder = _HostBuilder(inputs, environment)
    made: list[Mount] = [mounts.HostSystem(), *builder.devices()]
    made += builder.outside()
    made += [
        mounts.EmptyFolder(folder, profile.limits.tmp)
        for folder in builder.empty
        if folder != "/run"
    ]
    uses_resolver = inputs.spec.network and not inputs.spec.by_host
    made += builder.run_folder(profile.run, inputs.host.resolver if uses_resolver else None)
    if inputs.spec.by_host:
        made += resolver_files(inputs.paths.runtime)
    if inputs.spec.ssh_agent:
        made += ssh_files(inputs.paths.runtime, inputs.overlay.run_id)
        environment |= ssh_variables()
    made += builder.home()
    made += builder.agent_settings()
    made += builder.playground_at(f"{home}/playground")
    made += builder.roots()
    made += builder.own_code()
    made += builder.hidden_in_roots()
    made += builder.sockets_in_home()
    made += builder.seals()
    folder = find_working_dir(inputs.spec.working_dir, builder.project, paths, builder.hidden)
    if not builder.sees(folder):
        raise WorkingDirError(inputs.spec.working_dir or folder)
    return builder.plan(made, environment, folder)


class _HostBuilder(PlanBuilder):
    def __init__(self, inputs: PlanInputs, environment: Mapping[str, str]) -> None:
        super().__init__(inputs)
        self.environment = environment
        self._home = inputs.paths.real_home
        settings = {os.path.realpath(path) for path, _rules in self._settings_folders()}
        if settings:
            self.hidden = tuple(path for path in self.hidden if path not in settings)
        if inputs.spec.network:
            shown = [*(root.path for root in inputs.overlay.roots), self.playground]
            for home in dict.fromkeys((self._home, real_path(home_on_record() or self._home))):
                self.hidden += unlisted_names(inputs.profile, environment, home, shown)
        self._in_hidden = FolderSet(self.hidden)
        self._cache = real_path(inputs.paths.cache)
        # Writes to /dev would go to memory, without limit.
        self._sealed: list[str] = ["/dev"]
        self.empty = [f for f in EMPTY_FOLDERS if os.path.isdir(f) and real_path(f) == f]

    def run_folder(self, keep: Sequence[str], resolver: str | None) -> list[Mount]:
        made: list[Mount] = [mounts.EmptyFolder("/run", 1 << 20, writable=False)]
        wanted = [*keep, *([resolver] if resolver and is_inside(resolver, "/run") else [])]
        made += [mounts.ReadOnlyBind(path) for path in wanted if os.path.exists(path)]
        return made

    def home(self) -> list[Mount]:
        """Return mounts for the home folder, which hide secrets and allow for the playground and
        for caches."""
        inside = names_inside(self.hidden, self._home)
        existing, missing = self._usable_caches()
        names = [path[len(self._home) + 1 :] for path in missing]
        links = tuple((name, f"{PLAIN_CACHES}/{plain_name(name)}") for name in names)
        plain: list[Mount] = []
        if links:
            plain.append(
                self.plain_caches(self._cache_layers(), map(plain_name, names), self._home)
            )
        allowed = self.allowed
        if allowed is not None:
            existing = tuple(p for p in existing if p in allowed or not is_inside(p, self._home))
        if not self.can_overlay(self._home):
            home = self._bound(self._home, inside, ("playground",), links, allowed)
            return [home, *plain, *self._caches_apart(existing)]
        mounted = self.host.mounted_below(self._home)
        below = {p for p in existing if is_inside(p, self._home) and not is_inside(p, *mounted)}
        cached = tuple(sorted(path[len(self._home) + 1 :] for path in below))
        masks, *others = self._masked_with_mounts(
            self._home, inside, ("playground", *_with_parents(cached)), links
        )
        assert isinstance(masks, mounts.MaskedFolder)
        if cached:
            masks = masks._replace(has_caches=True)
        if allowed is not None:
            masks = masks._replace(in_parts=True)
            self._sealed.append(self._home)
            new = (link for link in links if f"{self._home}/{link[0]}" not in allowed)
            mine = allowed.relative(self._home, skipped=mounted)
            others = [mounts.AllowedHome(masks, mine, (*allowed.links_in(self._home), *new))]
            others += self._apart(path for path in allowed.paths if is_inside(path, *mounted))
        if cached:
            others.insert(0, self._layered(masks, cached))
        return [masks, *others, *plain, *self._caches_apart(p for p in existing if p not in below)]

    def _settings_folders(self) -> list[tuple[str, SettingsFolder]]:
        """Return the folders with the settings of the profile's agent, with their paths."""
        agent = self.inputs.profile.agent
        found = []
        for rules in agent.folders if agent is not None else ():
            template = FolderTemplate.of(rules.folder)
            assert template is not None
            value = self.environment.get(template.variable, "")
            found.append((template.expand(value, self._home), rules))
        return found

    def agent_settings(self) -> list[Mount]:
        made: list[Mount] = []
        agent, inputs = self.inputs.profile.agent, self.inputs
        files = agent.always.files if agent is not None else ()
        for path, rules in self._settings_folders():
            assert agent is not None
            lower = os.path.realpath(path)
            roots = [root.path for root in inputs.overlay.roots]
            if any(is_inside(root, lower) or is_inside(lower, root) for root in roots):
                raise ProjectError(
                    N_("{agent} keeps its settings in {folder}, so that cannot be in the project."),
                    N_("Choose another project."),
                    agent=agent.title,
                    folder=path,
                )
            if not inputs.can_cache or not self.can_overlay(lower):
                raise SandboxError(
                    N_(
                        "No layer can be mounted over {folder} here, so {agent} cannot run in the "
                        "sandbox."
                    ),
                    N_("See `ollmsandbox doctor`."),
                    agent=agent.title,
                    folder=path,
                )
            made.append(
                mounts.AgentSettings(
                    path,
                    lower if os.path.isdir(lower) else "",
                    self._cache_layers(),
                    f"settings-{project_key(path)}",
                    self.next_point(),
                    rules,
                    files,
                    agent.hides_login,
                    self._home,
                )
            )
            files = ()
        return made

    @cached_property
    def allowed(self) -> AllowedPaths | None:
        """Return the paths in the home folder that a command with the network sees; None without
        the network, where masks alone decide."""
        if not self.inputs.spec.network:
            return None
        return self._allowed_in(self._home)

    def _allowed_in(self, home: str) -> AllowedPaths:
        writable = (*(root.path for root in self.inputs.overlay.roots), self.playground)
        return allowed_paths(self.inputs.profile, self.environment, home, writable, self._in_hidden)

    def _apart(self, paths: Iterable[str]) -> list[Mount]:
        """Return a read-only mount for each path, without what is hidden in it."""
        made: list[Mount] = []
        for path in paths:
            names = names_inside(self.hidden, path)
            if not names:
                made.append(mounts.ReadOnlyBind(path))
            elif self.can_overlay(path):
                made.append(self._masked(path, names))
            else:
                made.append(self._bound(path, names))
        return made

    def _usable_caches(self) -> FoundCaches:
        inputs = self.inputs
        found = usable_caches(
            find_caches(inputs.profile, self.environment, self._home),
            self._home,
            (*(root.path for root in inputs.overlay.roots), self.playground),
            self.hidden,
            (*self.empty, *_NOT_FILES),
            tuple(self.host.aliases(self._home)),
            frozenset(mount.path for mount in self.host.mounts),
        )
        can_overlay = inputs.can_cache and inputs.method is not mounts.OverlayMethod.NONE
        return found if can_overlay else found._replace(existing=())

    def _caches_apart(self, folders: Iterable[str]) -> list[Mount]:
        """Return mounts for caches outside the home folder's overlay, each with one of its own."""
        found = [path for path in folders if self.can_overlay(path)]
        return [
            self._layered(self._masked(path, names_inside(self.hidden, path)), ("",))
            for path in found
        ]

    def _layered(self, base: mounts.MaskedFolder, names: tuple[str, ...]) -> mounts.CacheFolders:
        folder = base.spec.folder
        mounted = self.host.mounted_below(folder)
        return mounts.CacheFolders(
            base,
            names,
            self._cache_layers(),
            "home" if folder == self._home else project_key(folder),
            self.next_point(),
            is_stacked=needs_base(self._cache_root, folder, mounted),
        )

    def _cache_layers(self) -> CacheLayers:
        if self.caches is None:
            run_id = self.inputs.overlay.run_id
            self.caches = CacheLayers(self._cache_root, self.project, run_id)
        return self.caches

    @cached_property
    def _cache_root(self) -> str:
        usual, for_bwrap = self.inputs.paths.caches
        return real_path(for_bwrap if self.inputs.method is mounts.OverlayMethod.BWRAP else usual)

    def outside(self) -> list[Mount]:
        """Return mounts that hide masked names and sockets outside the home folder."""
        elsewhere = FolderSet((*self.empty, self._home, self.project, "/dev"))
        names = _visible(self.hidden, self._home)
        names |= {alias for name in names for alias in self.host.aliases(name)}
        listening = {s for s in self.host.sockets if s not in self._in_hidden}
        folders: dict[str, set[str]] = {}
        # The home folder may be mounted a second time.
        aliases = self.host.aliases(self._home)
        for home in aliases if self.allowed is None else ():
            if self.can_overlay(home):
                folders[home] = {f"{home}/{name}" for name in names_inside(self.hidden, self._home)}
            else:
                names |= {f"{home}/{name}" for name in names_inside(self.hidden, self._home)}
        made: list[Mount] = []
        for path in sorted(names | listening):
            folder = os.path.dirname(path)
            if path in elsewhere or is_inside(path, *folders) or not os.path.lexists(path):
                continue
            if self.can_overlay(folder):
                folders.setdefault(folder, set())
            else:
                made.append(mounts.HiddenPath(path, os.path.isdir(path)))
        for folder in sorted(f for f in folders if not is_inside(f, *folders.keys() - {f})):
            hidden = {n for n in names.union(*folders.values()) if is_inside(n, folder)}
            made += self._masked_with_mounts(folder, tuple(n[len(folder) + 1 :] for n in hidden))
        # Not with layers: there may be many folders.
        existing = (path for path in self.hidden_in_others if os.path.lexists(path))
        made += self.hide(path for path in existing if path not in elsewhere)
        return [*made, *self._other_homes()]

    def _other_homes(self) -> list[Mount]:
        """Return mounts that hide the home folder in other places from commands with the network:
        where it, or a part of it, is mounted a second time, and where it is if HOME names another
        folder."""
        if self.allowed is None:
            return []
        others = {*self.host.aliases(self._home), *self.host.views(self._home)}
        on_record = real_path(home_on_record() or self._home)
        if is_home(on_record) and _can_see(on_record) and not is_inside(on_record, self._home):
            others |= {on_record, *self.host.aliases(on_record), *self.host.views(on_record)}
        others = {path for path in others if not is_inside(self._home, path) or path == on_record}
        made: list[Mount] = []
        for folder in outermost(others):
            made.append(mounts.EmptyFolder(folder, 1 << 20, writable=False))
            self._sealed.append(folder)
            if folder == on_record:
                made += self._apart(self._allowed_in(folder).paths)
        return made

    def sees(self, path: str) -> bool:
        """Return whether a command sees a path, as far as that depends on the network."""
        if self.allowed is None or not is_inside(path, self._home):
            return True
        roots = [root.path for root in self.inputs.overlay.roots]
        shown = (*roots, *self.allowed.paths, f"{self._home}/playground")
        return is_inside(path, *shown) or any(is_inside(other, path) for other in shown)

    def sockets_in_home(self) -> list[Mount]:
        if self.allowed is not None and not self.inputs.spec.by_host:
            # With the whole network, the filter refuses Unix sockets.
            return []
        listening = [s for s in self.host.sockets if self._listens_in_home(s) and self.sees(s)]
        if self.can_overlay(self._home):
            # A mask layer covers the home folder, but not what is mounted in it.
            points = self.host.mounted_below(self._home)
            listening = [s for s in listening if is_inside(s, *points)]
        return self.hide(listening)

    def _listens_in_home(self, socket: str) -> bool:
        if not is_inside(socket, self._home) or is_inside(socket, self.project):
            return False
        return socket not in self._in_hidden

    def seals(self) -> list[Mount]:
        return [mounts.SealedFolder(folder) for folder in self._sealed]

    def _masked_with_mounts(
        self,
        folder: str,
        hidden: tuple[str, ...],
        added: tuple[str, ...] = (),
        links: tuple[tuple[str, str], ...] = (),
    ) -> list[Mount]:
        made: list[Mount] = [self._masked(folder, hidden, added, links)]
        # The folder itself may be in one of the empty folders.
        empty = [f for f in self.empty if not is_inside(folder, f)]
        skipped = (*empty, *_NOT_FILES)
        for point in self.host.mounted_below(folder):
            if point in self._in_hidden or is_inside(point, *skipped):
                continue
            # An overlay does not show what is mounted below its folder.
            if os.access(point, os.R_OK, effective_ids=True):
                names = names_inside(self.hidden, point)
                # Not in place, where the folder's own overlay would cover it.
                masked = self._masked(point, names)._replace(in_place=False)
                made.append(masked if names else mounts.ReadOnlyBind(point))
        return made

    def _masked(
        self,
        folder: str,
        hidden: tuple[str, ...],
        added: tuple[str, ...] = (),
        links: tuple[tuple[str, str], ...] = (),
    ) -> mounts.MaskedFolder:
        # The overlays' own folders are in the cache, and bwrap finds them by their path, too.
        used = (self.project, self.playground, self._home, self._cache)
        bound = (*used, *self.host.mounted_below(folder))
        return mounts.MaskedFolder(
            spec_for(folder, hidden, added, links),
            self.next_point(),
            in_place=not any(is_inside(path, folder) for path in bound),
        )

    def _bound(
        self,
        folder: str,
        hidden: tuple[str, ...],
        added: tuple[str, ...] = (),
        new_links: tuple[tuple[str, str], ...] = (),
        allowed: AllowedPaths | None = None,
    ) -> mounts.BoundFolder:
        shown, links = [], list(new_links)
        names = None
        if allowed is not None:
            names = allowed.relative(folder)
            links += allowed.links_in(folder)
            added = (*added, *_with_parents(filter(None, map(os.path.dirname, names))))
        spec = spec_for(folder, hidden, added, new_links)
        parents = {
            item.name
            for item in spec.folders
            if allowed is None or item.name in ("", *added) or f"{folder}/{item.name}" in allowed
        }
        for parent in parents:
            for name in _names(f"{folder}/{parent}"):
                path = f"{parent}/{name}" if parent else name
                if path in parents or path in spec.hidden:
                    continue
                if allowed is not None and f"{folder}/{path}" not in allowed:
                    continue
                if os.path.islink(f"{folder}/{path}"):
                    # A bind would show the link's target, with all that is hidden there.
                    links.append((path, os.readlink(f"{folder}/{path}")))
                else:
                    shown.append(path)
        self._sealed.append(folder)
        return mounts.BoundFolder(
            folder=folder,
            mode=spec.folders[0].mode,
            shown=tuple(sorted(shown)),
            links=tuple(sorted(links)),
            parents=tuple((f.name, f.mode) for f in spec.folders[1:] if f.name in parents),
            hidden=spec.hidden,
            allowed=names,
        )


def _visible(paths: tuple[str, ...], home: str) -> set[str]:
    """Return the paths outside the home folder that the user can read or enter."""
    # Most of these folders do not exist.
    there = ((f, names) for f, names in by_folder(paths, home).items() if os.path.isdir(f or "/"))
    inside = (f"{folder}/{name}" for folder, names in there for name in names)
    return set(filter(_can_see, inside))


def _can_see(path: str) -> bool:
    """Return whether the user can read or enter a path; if not, it need not be hidden."""
    # Most of these paths do not exist.
    if not os.access(path, os.F_OK, effective_ids=True):
        return False
    return any(os.access(path, way, effective_ids=True) for way in (os.R_OK, os.X_OK))


def _with_parents(names: Iterable[str]) -> list[str]:
    return sorted({prefix for name in names for prefix in path_prefixes(name)})


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
