# SPDX-License-Identifier: GPL-3.0-or-later
"""The Alpine system, for who shows it and for who wants it installed, upgraded or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...errors import RootfsError, Sentence
from ...files import trees
from ...paths import Paths
from .extract import ArchiveLimits
from .install import InstallProgress, Preparation, Prepared, Workshop
from .packages import TIERS, programs_in
from .release import LARGEST
from .settings import RootfsSettings, load_rootfs_settings
from .store import Installed, RootfsStore, find


@dataclass(frozen=True)
class Status:
    installed: Installed | None
    # On disk, with what is kept of a download that broke off.
    size: int
    files: int
    # Older ones that commands still run in.
    others: tuple[Installed, ...]
    settings: RootfsSettings


class Rootfs:
    """`settings`: those of the person, if none are given."""

    tiers = TIERS

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        settings: RootfsSettings | None = None,
        *,
        limits: ArchiveLimits | None = None,
        largest: int = LARGEST,
    ) -> None:
        self._paths = paths
        self._environ = environ
        self.settings = settings if settings is not None else load_rootfs_settings(paths.config)
        self.store = RootfsStore(paths.rootfs)
        limits = limits or ArchiveLimits()
        self._shop = Workshop(paths, environ, self.settings, self.store, limits, largest)

    def installed(self) -> Installed | None:
        return find(self._paths, self._environ)

    def programs(self) -> list[str]:
        """What it offers, with versions."""
        found = self.installed()
        return programs_in(found) if found else []

    def status(self) -> Status:
        """Walks through all of it: call it in a thread."""
        installed = self.installed()
        folder = Path(installed.folder) if installed and installed.is_given else self.store.folder
        files, size = trees.measure(folder)
        used = installed.folder if installed else ""
        others = tuple(one for one in self.store.all() if one.folder != used)
        return Status(installed, size, files, others, self.settings)

    async def prepare(
        self,
        progress: Callable[[InstallProgress], None] | None = None,
        *,
        tier: int | None = None,
        tarball: Path | None = None,
    ) -> Prepared:
        """Install it, or a newer version of it; nothing is done if there is nothing to do.

        Whoever is in it goes on in what it was. Cancelled, nothing is left but what was fetched.
        """
        if self._environ.get("ROOTFS_DIR"):
            given = self.installed()
            assert given is not None
            notice = Sentence(N_("ROOTFS_DIR names a prepared system."))
            return Prepared(given, is_new=False, notices=(notice,))
        wanted = self.settings.tier if tier is None else tier
        return await Preparation(self._shop, progress, wanted, tarball).run()

    async def remove(self) -> bool:
        """False if a command still runs in it; then it is left as it is."""
        if self._environ.get("ROOTFS_DIR"):
            raise RootfsError(
                N_(
                    "ROOTFS_DIR names a system that somebody else prepared; it is not removed here."
                ),
                N_("Unset ROOTFS_DIR, or remove the folder yourself."),
            )

        def remove() -> bool:
            if not self.store.folder.exists():
                return True
            try:
                with self.store.building(_nobody_waits):
                    return self.store.remove()
            except OSError as error:
                raise RootfsError(
                    N_("{folder} cannot be removed: {why}."),
                    folder=self.store.folder,
                    why=error.strerror or str(error),
                ) from error

        return await asyncio.to_thread(remove)


def _nobody_waits() -> None:
    raise RootfsError(N_("Somebody is installing it."), N_("Wait until that is done."))
