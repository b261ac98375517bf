# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, upgrade, remove and describe the Alpine root file system, for all front ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...errors import RootfsError, Sentence
from ...files import trees
from ...paths import Paths
from .install import Installation, InstallProgress, InstallResult, Worker
from .packages import TIERS, programs_in
from .settings import RootfsSettings, load_rootfs_settings
from .store import Installed, RootfsStore, find_rootfs


@dataclass(frozen=True)
class Status:
    installed: Installed | None
    # On disk, with unfinished downloads.
    size: int
    files: int
    # Older versions that commands still run in.
    others: tuple[Installed, ...]
    settings: RootfsSettings


class Rootfs:
    """The root file system, with the user's settings unless others are given."""

    tiers = TIERS

    def __init__(
        self, paths: Paths, environ: Mapping[str, str], settings: RootfsSettings | None = None
    ) -> None:
        self._paths = paths
        self._environ = environ
        self.settings = settings if settings is not None else load_rootfs_settings(paths.config)
        self.store = RootfsStore(paths.rootfs)

    def installed(self) -> Installed | None:
        return find_rootfs(self._paths, self._environ)

    def programs(self) -> list[str]:
        found = self.installed()
        return programs_in(found) if found else []

    def status(self) -> Status:
        """Return its state. Reads the whole folder: call it in a thread."""
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
    ) -> InstallResult:
        """Install or upgrade it; do nothing if it is up to date.

        Running commands stay in the version they started in. A cancellation leaves only the
        download.
        """
        if self._environ.get("ROOTFS_DIR"):
            given = self.installed()
            assert given is not None
            notice = Sentence(N_("ROOTFS_DIR is set: that root file system is used."))
            return InstallResult(given, is_new=False, notices=(notice,))
        wanted = self.settings.tier if tier is None else tier
        place = (self._paths, self._environ, self.settings, self.store)
        return await Installation(Worker(progress), *place, TIERS[wanted], tarball).run()

    async def remove(self) -> bool:
        """Remove all versions. Return False, and change nothing, if a command runs in one."""
        if self._environ.get("ROOTFS_DIR"):
            raise RootfsError(
                N_("The root file system in ROOTFS_DIR is not managed by this program."),
                N_("Unset ROOTFS_DIR, or remove the folder yourself."),
            )

        def remove() -> bool:
            if not self.store.folder.exists():
                return True
            try:
                with self.store.building(_fail_if_locked):
                    return self.store.remove()
            except OSError as error:
                raise RootfsError(
                    N_("Cannot remove {folder}: {why}."),
                    folder=self.store.folder,
                    why=error.strerror or str(error),
                ) from error

        return await asyncio.to_thread(remove)


def _fail_if_locked() -> None:
    raise RootfsError(N_("An installation is running."), N_("Wait until it is finished."))
