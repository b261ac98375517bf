# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the Alpine root file system, from a mirror or from the user's own tarball.

It is built in a temporary folder and renamed into place when it is complete. A crash leaves only
the download, which the next installation continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ParamSpec, TypeVar

from ... import N_
from ...errors import RootfsError, Sentence
from ...files import trees
from ...loop import in_daemon
from ...net.http import CancellableSockets
from ...paths import Paths
from ..probe.probe import probe
from . import packages
from .extract import extract_rootfs, make_safe
from .files import add_user, prepare_mount_points, read_inside, write_inside
from .mirror import FLAVOR, UnreachableError, without_password
from .release import (
    Release,
    branch_of,
    cannot_write,
    detect_arch,
    download_rootfs,
    find_release,
    sha256_of,
)
from .sandbox import RootfsSandbox
from .settings import RootfsSettings
from .store import Installed, RootfsStore, is_rootfs_ready, version_order

_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}")
_USE_MINIROOTFS = Sentence(N_("Use an {name} tarball, as on Alpine's mirrors."), name=FLAVOR)


def check_tarball(tarball: Path) -> None:
    """Raise if the user's tarball cannot be read, or if the checksum beside it differs."""
    try:
        if not stat.S_ISREG(os.stat(tarball).st_mode):
            raise RootfsError(N_("{file} is not a file."), _USE_MINIROOTFS, file=tarball)
        found = sha256_of(tarball)
    except FileNotFoundError as error:
        raise RootfsError(N_("{file} does not exist."), _USE_MINIROOTFS, file=tarball) from error
    except OSError as error:
        raise RootfsError(
            N_("{file} cannot be read: {why}."),
            _USE_MINIROOTFS,
            file=tarball,
            why=error.strerror or str(error),
        ) from error
    beside = tarball.with_name(f"{tarball.name}.sha256")
    try:
        words = beside.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RootfsError(
            N_("{file} cannot be read: {why}."),
            N_("Correct the file or remove it."),
            file=beside,
            why=error.strerror or str(error),
        ) from error
    if not words or words[0].lower() != found:
        raise RootfsError(
            N_("The checksum of {file} differs from the one in {list}."),
            N_("Download both again."),
            file=tarball,
            list=beside.name,
        )


def alpine_version(folder: Path) -> str:
    version = read_inside(folder, "etc/alpine-release", 100).strip()
    if not _VERSION.fullmatch(version):
        raise RootfsError(
            N_("This is not an Alpine root file system: etc/alpine-release is missing."),
            _USE_MINIROOTFS,
        )
    return version


_P = ParamSpec("_P")
_R = TypeVar("_R")


class Step(Enum):
    """A step of the installation; the value is a text for the user."""

    WAIT = N_("Waiting for another installation")
    LOOK = N_("Looking for the latest version")
    FETCH = N_("Downloading")
    UNPACK = N_("Unpacking")
    PACKAGES = N_("Installing packages")
    FINISH = N_("Finishing")
    DONE = N_("Done")


@dataclass(frozen=True)
class InstallProgress:
    step: Step
    # Bytes, or packages; the total is None if it is unknown.
    done: int = 0
    total: int | None = None
    # The last line that the package manager printed.
    text: str = ""


class _Stopped(Exception):
    """The installation was cancelled; raised in its threads."""


class Worker:
    """Runs blocking code in threads, which report progress and end when cancelled."""

    def __init__(self, progress: Callable[[InstallProgress], None] | None) -> None:
        self._progress = progress
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._last: tuple[Step, int] | None = None

    def report(self, step: Step, done: int = 0, total: int | None = None, text: str = "") -> None:
        """Report progress, from any thread. Raise `_Stopped` after a cancellation."""
        if self._stop.is_set():
            raise _Stopped
        # Report each percent once, not every piece.
        now = (step, 100 * done // total if total else done)
        if self._progress is not None and (text or now != self._last):
            self._last = now
            self._loop.call_soon_threadsafe(self._pass_on, InstallProgress(step, done, total, text))

    def _pass_on(self, progress: InstallProgress) -> None:
        if self._progress is not None and not self._stop.is_set():
            self._progress(progress)

    async def in_thread(
        self, function: Callable[_P, _R], *given: _P.args, **named: _P.kwargs
    ) -> _R:
        """Run a function and wait for its end even if cancelled: it may still change the folder."""
        task = asyncio.ensure_future(asyncio.to_thread(function, *given, **named))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({task})
            with contextlib.suppress(_Stopped, Exception):
                task.result()  # the cancellation counts, not how it ended
            raise

    async def online(self, function: Callable[[CancellableSockets], _R]) -> _R:
        """Run a function that uses the network. A cancellation closes its connections and does not
        wait for its end: a name lookup may take long. It calls `report` before it changes
        anything."""
        sockets = CancellableSockets()
        try:
            return await in_daemon("mirror", function, sockets)
        except asyncio.CancelledError:
            self._stop.set()
            sockets.cancel()
            raise
        finally:
            sockets.close()


@dataclass(frozen=True)
class InstallResult:
    installed: Installed
    is_new: bool
    # Sentences for the user, such as that the mirror could not be reached.
    notices: tuple[str, ...] = ()


@dataclass
class Installation:
    _worker: Worker
    _paths: Paths
    _environ: Mapping[str, str]
    _settings: RootfsSettings
    _store: RootfsStore
    _tier: packages.Tier
    _tarball: Path | None

    def _sandbox(self, folder: Path) -> RootfsSandbox:
        found = probe(self._paths, self._environ)
        if not found.can_wrap:
            cause, remedy = found.why_not()
            raise RootfsError(N_("Commands cannot be sandboxed here: {cause}"), remedy, cause=cause)
        return RootfsSandbox(folder, self._paths, self._environ, found)

    async def run(self) -> InstallResult:
        async with contextlib.AsyncExitStack() as closing:
            lock = self._store.building(lambda: self._worker.report(Step.WAIT))
            # A file lock may be released in another thread than the one that took it.
            await self._worker.in_thread(lock.__enter__)
            closing.callback(lock.__exit__, None, None, None)
            try:
                return await self._locked()
            except OSError as error:
                raise cannot_write(self._store.folder, error) from error

    async def _locked(self) -> InstallResult:
        current = self._store.current()
        release = None
        if self._tarball is None:
            found = await self._look(current)
            if isinstance(found, InstallResult):
                return found
            release = found
        self._check_room()
        # Download nothing if nothing could run in it.
        await self._worker.in_thread(self._sandbox, self._store.folder)
        if release is not None:
            tarball = await self._fetch(release)
        else:
            assert self._tarball is not None
            tarball = self._tarball
            await self._worker.in_thread(check_tarball, tarball)
        built = await self._worker.in_thread(self._store.new_folder)
        try:
            installed = await self._build(built, tarball, release)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # it may already be in place
                await asyncio.shield(asyncio.to_thread(trees.remove_path, built))
            raise
        await self._worker.in_thread(self._store.forget_downloads)
        await self._worker.in_thread(self._store.sweep)
        self._worker.report(Step.DONE)
        return InstallResult(installed, is_new=True)

    async def _look(self, current: Installed | None) -> Release | InstallResult:
        """Return the release to install, or a result if there is nothing to do."""
        settings = self._settings
        self._worker.report(Step.LOOK)
        if current and settings.version and self._is_ready(current, settings.version):
            return await self._nothing_to_do(current)
        try:
            arch = detect_arch()
            release = await self._worker.online(
                lambda sockets: find_release(settings, arch, sockets)
            )
        except UnreachableError as error:
            if current is None or not self._is_ready(current, settings.version):
                raise
            late = N_("{why} A newer version may exist.")
            notice = Sentence(late, why=error.message)
            return InstallResult(current, is_new=False, notices=(notice,))
        if current and self._is_ready(current, release.version):
            return await self._nothing_to_do(current)
        if current and self._is_ready(current, "") and self._is_older(release, current):
            late = N_("The mirror only has {version}, which is older.")
            return await self._nothing_to_do(current, Sentence(late, version=release.version))
        return release

    def _is_older(self, release: Release, current: Installed) -> bool:
        """Return whether the mirror is outdated. A version or branch that the user chose is
        installed even if it is older, and so is a release in place of `edge`."""
        settings = self._settings
        newest = not settings.version and settings.branch == RootfsSettings.branch
        released = branch_of(current.version) != "edge"
        return (
            newest and released and version_order(release.version) < version_order(current.version)
        )

    async def _build(self, built: Path, tarball: Path, release: Release | None) -> Installed:
        sandbox = await self._worker.in_thread(self._sandbox, built)
        self._worker.report(Step.UNPACK)
        await extract_rootfs(
            sandbox,
            tarball,
            lambda done, total: self._worker.report(Step.UNPACK, done, total),
        )
        await self._worker.in_thread(prepare_mount_points, built)
        version = release.version if release else alpine_version(built)
        missing = packages.missing_packages(built, self._tier.packages)
        mirror = self._settings.mirror
        self._name_mirror(built, mirror, version)
        if missing:
            self._worker.report(Step.PACKAGES, 0, len(missing))
            await packages.install_packages(sandbox, missing, self._on_apk_output)
        self._worker.report(Step.FINISH)
        # Commands can read it from now on.
        self._name_mirror(built, without_password(mirror), version)
        await make_safe(sandbox)
        return await self._worker.in_thread(self._put_in_place, built, version)

    def _name_mirror(self, built: Path, mirror: str, version: str) -> None:
        lines = (f"{mirror}/{branch_of(version)}/{part}\n" for part in ("main", "community"))
        write_inside(built, "etc/apk/repositories", "".join(lines))

    def _put_in_place(self, built: Path, version: str) -> Installed:
        # A package may have replaced them.
        prepare_mount_points(built)
        needed = ["bin/sh", *(["usr/bin/python3"] if self._tier.number else [])]
        for name in needed:
            if not os.path.lexists(built / name):
                raise RootfsError(
                    N_("The Alpine installation is incomplete: /{name} is missing."),
                    N_("Try again."),
                    name=name,
                )
        add_user(built)
        return self._store.put_in_place(built, version, self._tier.number)

    async def _fetch(self, release: Release) -> Path:
        self._worker.report(Step.FETCH, 0, release.size)

        def report(done: int, total: int | None) -> None:
            self._worker.report(Step.FETCH, done, total)

        folder = self._store.downloads
        return await self._worker.online(
            lambda sockets: download_rootfs(release, folder, report, sockets=sockets)
        )

    async def _nothing_to_do(self, current: Installed, *notices: str) -> InstallResult:
        self._store.use(os.path.basename(current.folder))
        await self._worker.in_thread(self._store.sweep)
        self._worker.report(Step.DONE)
        return InstallResult(current, is_new=False, notices=notices)

    def _is_ready(self, current: Installed, version: str) -> bool:
        return is_rootfs_ready(Path(current.folder), version, self._tier.number)

    def _check_room(self) -> None:
        found = os.statvfs(self._store.folder)
        free = found.f_bavail * found.f_frsize
        if free < self._tier.size:
            smaller = N_(
                "Free up space, or choose a smaller tier: ollmsandbox rootfs install --tier {tier}"
            )
            raise RootfsError(
                N_(
                    "Not enough disk space: about {size} MiB is needed in {folder}, but only "
                    "{free} MiB is free."
                ),
                smaller if self._tier.number else N_("Free up some space."),
                size=self._tier.size >> 20,
                folder=self._store.folder,
                free=free >> 20,
                tier=self._tier.number - 1,
            )

    def _on_apk_output(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self._worker.report(Step.PACKAGES, text=lines[-1][:200])
