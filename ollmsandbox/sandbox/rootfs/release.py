# SPDX-License-Identifier: GPL-3.0-or-later
"""Find an Alpine release on a mirror, download its tarball and verify the checksum."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...config.yaml_reader import Value, YamlSource, parse_yaml
from ...errors import RootfsError, Sentence
from ...net.http import CancellableSockets
from ...paths import make_folder
from . import mirror
from .settings import RootfsSettings

ARCH_MAP = {
    "x86_64": "x86_64",
    "aarch64": "aarch64",
    # Containers on macOS use this name.
    "arm64": "aarch64",
    "armv7l": "armv7",
    "armv8l": "armv7",
    "armv6l": "armhf",
    "i686": "x86",
    "i386": "x86",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
# A 32-bit system on a 64-bit kernel: its system-call filter kills 64-bit programs.
_WITH_32_BITS = {"x86_64": "x86", "aarch64": "armv7"}
_LIST = "latest-releases.yaml"
# What is read of each entry of the list.
_KEYS = ("flavor", "version", "file", "size", "sha256")
# Such as 3.22.1, or a date for a snapshot of edge.
_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}|20[0-9]{6}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Release:
    """A tarball on the mirror, and its checksum in the mirror's list."""

    version: str
    file: str
    sha256: str
    url: str
    size: int | None = None


def detect_arch(machine: str | None = None) -> str:
    found = machine if machine is not None else platform.machine()
    if found not in ARCH_MAP:
        raise RootfsError(
            N_("Alpine does not support this kind of machine ({machine})."),
            N_("It supports: {machines}."),
            # Translators: a kind of machine, such as x86_64, that is not known.
            machine=found or Sentence(N_("unknown")),
            machines=", ".join(ARCH_MAP),
        )
    arch = ARCH_MAP[found]
    return _WITH_32_BITS.get(arch, arch) if machine is None and sys.maxsize < 1 << 32 else arch


def branch_of(version: str) -> str:
    """Return the folder on the mirror with a version's packages."""
    if "." not in version or "_alpha" in version:
        return "edge"
    return f"v{'.'.join(version.split('.')[:2])}"


def find_release(
    settings: RootfsSettings, arch: str, sockets: CancellableSockets | None = None
) -> Release:
    """Return the newest release of the branch, or the version that the user chose."""
    try:
        return _find(settings, arch, sockets)
    except mirror.MissingError as error:
        if not settings.version:
            raise
        raise RootfsError(
            N_("The mirror has no Alpine {version} for {arch}."),
            N_(
                "Choose another one: ollmsandbox settings rootfs-version VERSION\n"
                'Use "" for the newest.'
            ),
            version=settings.version,
            arch=arch,
        ) from error


def _find(settings: RootfsSettings, arch: str, sockets: CancellableSockets | None) -> Release:
    branch = branch_of(settings.version) if settings.version else settings.branch
    folder = f"{settings.mirror}/{branch}/releases/{arch}"
    for entry in _read_list(f"{folder}/{_LIST}", sockets):
        if entry["flavor"] == mirror.FLAVOR:
            release = _release(entry, folder, arch)
            if settings.version in ("", release.version):
                return release
    if settings.version:
        return _by_name(settings.version, folder, arch, sockets)
    raise RootfsError(
        N_("{address}/{list} does not list {name}."),
        N_("Use another mirror: ollmsandbox settings rootfs-mirror ADDRESS"),
        address=mirror.without_password(folder),
        list=_LIST,
        name=mirror.FLAVOR,
    )


def _read_list(url: str, sockets: CancellableSockets | None) -> list[dict[str, str]]:
    text = mirror.fetch(url, sockets)
    try:
        root = parse_yaml(text.decode(), YamlSource(RootfsError))
        return [_texts(item) for item in root.items()] if root else []
    except (UnicodeDecodeError, RootfsError) as error:
        raise RootfsError(
            N_("{address} is not a list of releases."),
            mirror.OTHER_MIRROR,
            address=mirror.without_password(url),
        ) from error


def _texts(item: Value) -> dict[str, str]:
    found = item.mapping()
    return {key: found[key].text() if key in found else "" for key in _KEYS}


def _release(entry: Mapping[str, str], folder: str, arch: str) -> Release:
    version, file, size = (entry[key] for key in ("version", "file", "size"))
    sha256 = entry["sha256"].lower()
    # The name becomes part of an address.
    if (
        not _VERSION.fullmatch(version)
        or not _SHA256.fullmatch(sha256)
        or not re.fullmatch(rf"{mirror.FLAVOR}-[0-9a-z._]{{1,40}}-{arch}\.tar\.gz", file)
    ):
        raise RootfsError(
            N_("{address}/{list} is not valid."),
            mirror.OTHER_MIRROR,
            address=mirror.without_password(folder),
            list=_LIST,
        )
    known = int(size) if re.fullmatch("[0-9]{1,15}", size) else 0
    return Release(version, file, sha256, f"{folder}/{file}", known or None)


def _by_name(version: str, folder: str, arch: str, sockets: CancellableSockets | None) -> Release:
    """Return an older release, which is not in the list: its checksum is beside the file."""
    file = f"{mirror.FLAVOR}-{version}-{arch}.tar.gz"
    text = mirror.fetch(f"{folder}/{file}.sha256", sockets)
    found = text.decode("ascii", "replace").lower().split()
    if not found or not _SHA256.fullmatch(found[0]):
        raise RootfsError(
            N_("{address}/{file}.sha256 is not a checksum."),
            mirror.OTHER_MIRROR,
            address=mirror.without_password(folder),
            file=file,
        )
    return Release(version, file, found[0], f"{folder}/{file}")


# The real one is smaller than 4 MiB.
_LARGEST = 256 << 20

# Receives the bytes downloaded so far and the total, before each piece is written. May raise.
ReportProgress = Callable[[int, int | None], None]


def download_rootfs(
    release: Release,
    folder: Path,
    progress: ReportProgress,
    largest: int = _LARGEST,
    sockets: CancellableSockets | None = None,
) -> Path:
    """Return the complete tarball, or raise. Blocks."""
    make_folder(folder)
    # Named by the checksum, so that another version's download is never continued.
    part = folder / f"{release.sha256}.part"
    whole = folder / f"{release.sha256}.tar.gz"
    try:
        if whole.exists() and sha256_of(whole) == release.sha256:
            return whole
        _fetch(release, part, progress, largest, sockets)
        if sha256_of(part) == release.sha256:
            os.rename(part, whole)
            return whole
        part.unlink()
    except OSError as error:
        raise cannot_write(folder, error) from error
    raise RootfsError(
        N_(
            "{address} is not the file in the mirror's list: the checksum differs. It was not "
            "unpacked."
        ),
        N_("Try again. If that does not help, use another mirror."),
        address=mirror.without_password(release.url),
    )


def _fetch(
    release: Release,
    part: Path,
    progress: ReportProgress,
    largest: int,
    sockets: CancellableSockets | None,
) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else None
    with mirror.get(release.url, headers, sockets) as (answer, pieces):
        if answer.status_code == 416:
            return  # already complete, or wrong: the checksum decides
        begins = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code != 206 or not begins:
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if re.fullmatch("[0-9]{1,15}", length) else None
        if (total or release.size or 0) > largest:
            raise _too_large(release, largest)
        # After a cancellation this raises, before anything is written.
        progress(have, total or release.size)
        with open(part, "r+b" if have else "wb", buffering=0) as file:
            if have:
                file.truncate(file.seek(have))
            for piece in pieces:
                have += len(piece)
                if have > largest:
                    raise _too_large(release, largest)
                progress(have, total or release.size)
                left = memoryview(piece)
                while left:
                    left = left[file.write(left) :]
        if total is not None and have < total:
            raise mirror.UnreachableError(release.url)


def cannot_write(folder: Path, error: OSError) -> RootfsError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RootfsError(
            N_("No space left on the disk of {folder}."),
            N_("Free up some space and try again."),
            folder=folder,
        )
    return RootfsError(
        N_("Cannot write to {folder}: {why}."), folder=folder, why=error.strerror or str(error)
    )


def _too_large(release: Release, largest: int) -> RootfsError:
    return RootfsError(
        N_("{address} is larger than {size} MiB, too large for an Alpine root file system."),
        N_("Use another mirror: ollmsandbox settings rootfs-mirror ADDRESS"),
        address=mirror.without_password(release.url),
        size=largest >> 20,
    )


def sha256_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
