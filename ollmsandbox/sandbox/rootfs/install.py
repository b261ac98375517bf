# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from a mirror's list, or a tarball, to a system that commands can run in.

It is built aside and renamed into place when it is whole. Whoever is killed on the way leaves
nothing but what was fetched, which the next one takes up again.

A tarball that the person has, instead of the mirror's.

Work in threads that tells how far it is and that can be ended.

The way from a mirror's list, or a tarball, to a system that commands can run in.

It is built aside and renamed into place when it is whole. Whoever is killed on the way leaves
nothing but what was fetched, which the next one takes up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ParamSpec, TypeVar

from ... import N_
from ...errors import RootfsError, Sentence
from ...files import trees
from ...paths import Paths
from ..probe.probe import probe
from .extract import ArchiveLimits, extract_rootfs, make_safe
from .files import introduce_user, prepare_mount_points, read_inside, write_inside
from .http import FLAVOR, UnreachableError, without_password
from .packages import (
    KNOWN_PROGRAMS,
    TIERS,
    install_packages,
    missing_packages,
    program_versions,
    save_program_versions,
)
from .release import (
    Release,
    branch_of,
    cannot_write,
    detect_arch,
    download_rootfs,
    get_latest_version,
    sha256_of,
)
from .sandbox import RootfsSandbox
from .settings import RootfsSettings
from .store import Installed, RootfsStore, is_rootfs_ready, version_order

_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}")
_NAME_IT = Sentence(N_("Name the tarball of {name}, as it is on a mirror."), name=FLAVOR)


def check_given(tarball: Path) -> None:
    """A file of the person's. Where its checksum lies beside it, as on a mirror, it has to be
    right."""
    try:
        if not stat.S_ISREG(os.stat(tarball).st_mode):
            raise RootfsError(N_("{file} is no file."), _NAME_IT, file=tarball)
        found = sha256_of(tarball)
    except FileNotFoundError as error:
        raise RootfsError(N_("There is no file {file}."), _NAME_IT, file=tarball) from error
    except OSError as error:
        raise RootfsError(
            N_("{file} cannot be read: {why}."),
            _NAME_IT,
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
            N_("Mend it or remove it."),
            file=beside,
            why=error.strerror or str(error),
        ) from error
    if not words or words[0].lower() != found:
        raise RootfsError(
            N_("The checksum of {file} is not the one in {list}."),
            N_("Fetch both again."),
            file=tarball,
            list=beside.name,
        )


def version_in(folder: Path) -> str:
    version = read_inside(folder, "etc/alpine-release", 100).strip()
    if not _VERSION.fullmatch(version):
        raise RootfsError(N_("This is no Alpine system: it does not say its version."), _NAME_IT)
    return version


_P = ParamSpec("_P")
_R = TypeVar("_R")


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
class InstallProgress:
    step: Step
    # Bytes; the total is None where nobody knows it.
    done: int = 0
    total: int | None = None
    # A line that the package manager printed.
    text: str = ""


class _Stopped(Exception):
    """Cancelled while a thread was at work."""


class Work:
    def __init__(self, progress: Callable[[InstallProgress], None] | None) -> None:
        self._progress = progress
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._told: tuple[Step, int] | None = None

    def tell(self, step: Step, done: int = 0, total: int | None = None, text: str = "") -> None:
        """From any thread. Who cancelled is not told any more, and the thread ends here."""
        if self._stop.is_set():
            raise _Stopped
        # Thousands of pieces make a hundred steps.
        now = (step, 100 * done // total if total else done)
        if self._progress is not None and (text or now != self._told):
            self._told = now
            self._loop.call_soon_threadsafe(self._pass_on, InstallProgress(step, done, total, text))

    def _pass_on(self, progress: InstallProgress) -> None:
        if self._progress is not None and not self._stop.is_set():
            self._progress(progress)

    async def in_thread(
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

    async def online(self, function: Callable[_P, _R], *given: _P.args, **named: _P.kwargs) -> _R:
        """Cancelled, it is left behind: a line may be dead for long before that is noticed. Before
        it changes anything it asks tell(), where it ends."""
        ended: Future[_R] = Future()

        def work() -> None:
            try:
                result = function(*given, **named)
            except BaseException as error:  # noqa: BLE001  it is for who waits, not lost
                failed = error
                settle(lambda: ended.set_exception(failed))
            else:
                settle(lambda: ended.set_result(result))

        def settle(settled: Callable[[], None]) -> None:
            # Left behind, it may find that nobody waits any more, or that there is no loop.
            with contextlib.suppress(InvalidStateError, RuntimeError):
                settled()

        # Of its own: the end of the program would wait for the others.
        threading.Thread(target=work, daemon=True).start()
        try:
            return await asyncio.wrap_future(ended)
        except asyncio.CancelledError:
            self._stop.set()
            raise


@dataclass(frozen=True)
class Prepared:
    installed: Installed
    is_new: bool
    # What the person should know: that nobody could look for a newer one, for example.
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workshop:
    """What is worked with."""

    paths: Paths
    environ: Mapping[str, str]
    settings: RootfsSettings
    store: RootfsStore
    limits: ArchiveLimits
    largest: int

    def fetch(self, release: Release, tell: Callable[[int, int | None], None]) -> Path:
        return download_rootfs(release, self.store.downloads, tell, self.largest)

    def sandbox(self, folder: Path) -> RootfsSandbox:
        found = probe(self.paths, self.environ)
        if not found.can_wrap:
            cause, remedy = found.why_not()
            raise RootfsError(N_("Commands cannot be sandboxed here: {cause}"), remedy, cause=cause)
        return RootfsSandbox(folder, "Alpine", self.paths, self.environ, found)


class Preparation:
    def __init__(
        self,
        workshop: Workshop,
        progress: Callable[[InstallProgress], None] | None,
        tier: int,
        tarball: Path | None,
    ) -> None:
        self._shop = workshop
        self._store = workshop.store
        self._work = Work(progress)
        self._tier = TIERS[tier]
        self._tarball = tarball

    async def run(self) -> Prepared:
        async with contextlib.AsyncExitStack() as closing:
            lock = self._store.building(lambda: self._work.tell(Step.WAIT))
            # Left in a thread it was not entered in, which a file's lock does not mind.
            await self._work.in_thread(lock.__enter__)
            closing.callback(lock.__exit__, None, None, None)
            try:
                return await self._locked()
            except OSError as error:
                raise cannot_write(self._store.folder, error) from error

    async def _locked(self) -> Prepared:
        current = self._store.current()
        release = None
        if self._tarball is None:
            found = await self._look(current)
            if isinstance(found, Prepared):
                return found
            release = found
        self._check_room()
        # Nothing is fetched where nothing could run in it.
        await self._work.in_thread(self._shop.sandbox, self._store.folder)
        if release is not None:
            tarball = await self._fetch(release)
        else:
            assert self._tarball is not None
            tarball = self._tarball
            await self._work.in_thread(check_given, tarball)
        built = await self._work.in_thread(self._store.new_folder)
        try:
            installed = await self._build(built, tarball, release)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(_remove, built))
            raise
        await self._work.in_thread(self._store.forget_downloads)
        await self._work.in_thread(self._store.sweep)
        self._work.tell(Step.DONE)
        return Prepared(installed, is_new=True)

    async def _look(self, current: Installed | None) -> Release | Prepared:
        """What to fetch, or that there is nothing to do."""
        settings = self._shop.settings
        self._work.tell(Step.LOOK)
        if current and settings.version and self._is_ready(current, settings.version):
            return await self._nothing_to_do(current)
        try:
            release = await self._work.online(get_latest_version, settings, detect_arch())
        except UnreachableError as error:
            if current is None or not self._is_ready(current, settings.version):
                raise
            late = N_("{why} It is not known whether there is a newer version.")
            notice = Sentence(late, why=error.message)
            return Prepared(current, is_new=False, notices=(notice,))
        if current and self._is_ready(current, release.version):
            return await self._nothing_to_do(current)
        if current and self._is_ready(current, "") and self._is_older(release, current):
            late = N_("The mirror has {version} only, which is older.")
            return await self._nothing_to_do(current, Sentence(late, version=release.version))
        return release

    def _is_older(self, release: Release, current: Installed) -> bool:
        """A mirror may be behind. Who names a version or a branch wants that one, and who has left
        what is not released yet wants what is."""
        settings = self._shop.settings
        newest = not settings.version and settings.branch == RootfsSettings.branch
        released = branch_of(current.version) != "edge"
        return (
            newest and released and version_order(release.version) < version_order(current.version)
        )

    async def _build(self, built: Path, tarball: Path, release: Release | None) -> Installed:
        sandbox = await self._work.in_thread(self._shop.sandbox, built)
        self._work.tell(Step.UNPACK)
        await extract_rootfs(
            sandbox,
            tarball,
            self._shop.limits,
            lambda done, total: self._work.tell(Step.UNPACK, done, total),
        )
        await self._work.in_thread(prepare_mount_points, built)
        version = release.version if release else version_in(built)
        missing = missing_packages(built, self._tier.packages)
        mirror = self._shop.settings.mirror
        self._name_mirror(built, mirror, version)
        if missing:
            self._work.tell(Step.PACKAGES, 0, len(missing))
            await install_packages(sandbox, missing, self._said)
        self._work.tell(Step.FINISH)
        # From now on commands can read it.
        self._name_mirror(built, without_password(mirror), version)
        save_program_versions(built, await program_versions(sandbox, KNOWN_PROGRAMS))
        await make_safe(sandbox)
        return await self._work.in_thread(self._put_in_place, built, version)

    def _name_mirror(self, built: Path, mirror: str, version: str) -> None:
        lines = (f"{mirror}/{branch_of(version)}/{part}\n" for part in ("main", "community"))
        write_inside(built, "etc/apk/repositories", "".join(lines))

    def _put_in_place(self, built: Path, version: str) -> Installed:
        # A package may have put something else there.
        prepare_mount_points(built)
        needed = ["bin/sh", *(["usr/bin/python3"] if self._tier.number else [])]
        for name in needed:
            if not os.path.lexists(built / name):
                raise RootfsError(
                    N_("The system is not whole: /{name} is missing."), N_("Try again."), name=name
                )
        introduce_user(built)
        return self._store.put_in_place(built, version, self._tier.number)

    async def _fetch(self, release: Release) -> Path:
        self._work.tell(Step.FETCH, 0, release.size)
        return await self._work.online(
            self._shop.fetch,
            release,
            lambda done, total: self._work.tell(Step.FETCH, done, total),
        )

    async def _nothing_to_do(self, current: Installed, *notices: str) -> Prepared:
        self._store.use(os.path.basename(current.folder))
        await self._work.in_thread(self._store.sweep)
        self._work.tell(Step.DONE)
        return Prepared(current, is_new=False, notices=notices)

    def _is_ready(self, current: Installed, version: str) -> bool:
        return is_rootfs_ready(Path(current.folder), version, self._tier.number)

    def _check_room(self) -> None:
        found = os.statvfs(self._store.folder)
        free = found.f_bavail * found.f_frsize
        if free < self._tier.size:
            smaller = N_(
                "Make room, or choose a smaller tier: ollmsandbox rootfs install --tier {tier}"
            )
            raise RootfsError(
                N_(
                    "There is not enough room on the disk: it needs about {size} MiB in {folder}, "
                    "and {free} MiB are free."
                ),
                smaller if self._tier.number else N_("Make room."),
                size=self._tier.size >> 20,
                folder=self._store.folder,
                free=free >> 20,
                tier=self._tier.number - 1,
            )

    async def _said(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self._work.tell(Step.PACKAGES, text=lines[-1][:200])


def _remove(built: Path) -> None:
    # It may have been put into place already.
    with contextlib.suppress(FileNotFoundError):
        trees.empty(built)
        built.rmdir()
