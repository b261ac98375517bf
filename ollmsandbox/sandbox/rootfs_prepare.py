# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from a mirror's list, or a tarball, to a system that commands can run in.

It is built aside and renamed into place when it is whole. Whoever is killed on the way leaves
nothing but what was fetched, which the next one takes up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ParamSpec, TypeVar

from .. import trees
from ..errors import RootfsError
from ..paths import Paths
from .probe import probe
from .rootfs_download import download_rootfs, sha256_of
from .rootfs_extract import Room, drop_setuid, extract_rootfs
from .rootfs_packages import (
    TIERS,
    Inside,
    ask_programs,
    install_packages,
    keep_programs,
    missing_packages,
)
from .rootfs_programs import KNOWN
from .rootfs_release import Release, UnreachableError, branch_of, detect_arch, get_latest_version
from .rootfs_settings import RootfsSettings
from .rootfs_store import (
    Installed,
    Store,
    is_rootfs_ready,
    prepare_mount_points,
    write_inside,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]*")


class Step(Enum):
    """What is being done; the value says it to a person."""

    WAIT = "Waiting for another program that installs it"
    LOOK = "Looking for the newest version"
    FETCH = "Fetching"
    UNPACK = "Unpacking"
    PACKAGES = "Installing packages"
    FINISH = "Putting it into place"
    DONE = "Done"


@dataclass(frozen=True)
class Progress:
    step: Step
    # Bytes; the total is None where nobody knows it.
    done: int = 0
    total: int | None = None
    # A line that the package manager printed.
    text: str = ""


@dataclass(frozen=True)
class Prepared:
    installed: Installed
    is_new: bool
    # What the person should know: that nobody could look for a newer one, for example.
    notices: tuple[str, ...] = ()


class _Stopped(Exception):
    """Cancelled while a thread was at work."""


@dataclass(frozen=True)
class Workshop:
    """What is worked with."""

    paths: Paths
    environ: Mapping[str, str]
    settings: RootfsSettings
    store: Store
    room: Room
    largest: int

    def fetch(self, release: Release, tell: Callable[[int, int | None], None]) -> Path:
        return download_rootfs(release, self.store.downloads, tell, self.largest)

    def unpack(self, tarball: Path, folder: Path, tell: Callable[[int, int], None]) -> None:
        extract_rootfs(tarball, folder, self.room, tell)
        prepare_mount_points(folder)

    def inside(self, folder: Path) -> Inside:
        found = probe(self.paths, self.environ)
        if not found.can_wrap:
            miss = found.misses[0]
            raise RootfsError(f"Commands cannot be sandboxed here: {miss.cause}", miss.remedy)
        return Inside(folder, "Alpine", self.paths, self.environ, found)


class Preparation:
    def __init__(
        self,
        workshop: Workshop,
        progress: Callable[[Progress], None] | None,
        tier: int,
        tarball: Path | None,
    ) -> None:
        self._shop = workshop
        self._store = workshop.store
        self._progress = progress
        self._tier = TIERS[tier]
        self._tarball = tarball
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> Prepared:
        async with contextlib.AsyncExitStack() as closing:
            lock = self._store.building(lambda: self._tell(Progress(Step.WAIT)))
            # Left in a thread it was not entered in, which a file's lock does not mind.
            await self._in_thread(lock.__enter__)
            closing.callback(lock.__exit__, None, None, None)
            return await self._locked()

    async def _locked(self) -> Prepared:
        settings = self._shop.settings
        current = self._store.current()
        release = None
        if self._tarball is None:
            self._tell(Progress(Step.LOOK))
            if current and settings.version and self._is_ready(current, settings.version):
                return await self._nothing_to_do(current)
            try:
                release = await self._in_thread(get_latest_version, settings, detect_arch())
            except UnreachableError as error:
                if current is None or not self._is_ready(current, settings.version):
                    raise
                late = f"{error.message} It is not known whether there is a newer version."
                return Prepared(current, is_new=False, notices=(late,))
            if current and self._is_ready(current, release.version):
                return await self._nothing_to_do(current)
        self._check_room()
        tarball = self._tarball or await self._fetch(release)
        if self._tarball is not None:
            await self._in_thread(_check_beside, tarball)
        built = await self._in_thread(self._store.new_folder)
        try:
            installed = await self._build(built, tarball, release)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(_remove, built))
            raise
        await self._in_thread(self._store.forget_downloads)
        await self._in_thread(self._store.sweep)
        self._tell(Progress(Step.DONE))
        return Prepared(installed, is_new=True)

    async def _build(self, built: Path, tarball: Path, release: Release | None) -> Installed:
        await self._in_thread(
            self._shop.unpack,
            tarball,
            built,
            lambda done, total: self._tell(Progress(Step.UNPACK, done, total)),
        )
        version = release.version if release else _version_in(built)
        missing = missing_packages(built, self._tier.packages)
        inside = await self._in_thread(self._shop.inside, built)
        mirror, branch = self._shop.settings.mirror, branch_of(version)
        lines = "".join(f"{mirror}/{branch}/{part}\n" for part in ("main", "community"))
        write_inside(built, "etc/apk/repositories", lines)
        if missing:
            self._tell(Progress(Step.PACKAGES, 0, len(missing)))
            await install_packages(inside, missing, self._said)
        self._tell(Progress(Step.FINISH))
        keep_programs(built, await ask_programs(inside, KNOWN))
        return await self._in_thread(self._put_in_place, built, version)

    def _put_in_place(self, built: Path, version: str) -> Installed:
        drop_setuid(built)
        needed = ["bin/sh", *(["usr/bin/python3"] if self._tier.number else [])]
        for name in needed:
            if not os.path.lexists(built / name):
                raise RootfsError(f"The system is not whole: /{name} is missing.", "Try again.")
        return self._store.put_in_place(built, version, self._tier.number)

    async def _fetch(self, release: Release | None) -> Path:
        assert release is not None
        self._tell(Progress(Step.FETCH, 0, release.size))
        return await self._in_thread(
            self._shop.fetch,
            release,
            lambda done, total: self._tell(Progress(Step.FETCH, done, total)),
        )

    async def _nothing_to_do(self, current: Installed) -> Prepared:
        self._store.use(os.path.basename(current.folder))
        await self._in_thread(self._store.sweep)
        self._tell(Progress(Step.DONE))
        return Prepared(current, is_new=False)

    def _is_ready(self, current: Installed, version: str) -> bool:
        return is_rootfs_ready(Path(current.folder), version, self._tier.number)

    def _check_room(self) -> None:
        found = os.statvfs(self._store.folder)
        free = found.f_bavail * found.f_frsize
        if free < self._tier.size:
            raise RootfsError(
                f"There is not enough room on the disk: it needs about {self._tier.size >> 20} "
                f"MiB in {self._store.folder}, and {free >> 20} MiB are free.",
                "Make room, or choose a smaller tier: ollmsandbox rootfs install --tier 1",
            )

    async def _said(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self._tell(Progress(Step.PACKAGES, text=lines[-1][:200]))

    def _tell(self, progress: Progress) -> None:
        """From any thread. Who cancelled is not told any more, and the thread ends here."""
        if self._stop.is_set():
            raise _Stopped
        if self._progress is not None:
            self._loop.call_soon_threadsafe(self._pass_on, progress)

    def _pass_on(self, progress: Progress) -> None:
        if self._progress is not None and not self._stop.is_set():
            self._progress(progress)

    async def _in_thread(
        self, function: Callable[_P, _R], *given: _P.args, **named: _P.kwargs
    ) -> _R:
        """Cancelled, it is waited for: it ends soon, and nobody else may begin before."""
        task = asyncio.ensure_future(asyncio.to_thread(function, *given, **named))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({task})
            with contextlib.suppress(_Stopped, Exception):
                task.result()  # how it ended is of no interest any more
            raise


def _remove(built: Path) -> None:
    # It may have been put into place already.
    with contextlib.suppress(FileNotFoundError):
        trees.empty(built)
        built.rmdir()


def _check_beside(tarball: Path) -> None:
    """Where the file's checksum lies beside it, as on a mirror, it has to be right."""
    if not tarball.is_file():
        raise RootfsError(f"There is no file {tarball}.")
    with contextlib.suppress(OSError, IndexError):
        wanted = tarball.with_name(f"{tarball.name}.sha256").read_text(encoding="ascii").split()[0]
        if sha256_of(tarball) != wanted:
            raise RootfsError(f"The checksum of {tarball} differs.", "Fetch it again.")


def _version_in(folder: Path) -> str:
    try:
        version = (folder / "etc/alpine-release").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        version = ""
    if not _VERSION.fullmatch(version):
        raise RootfsError("This is no Alpine system: it does not say its version.")
    return version
