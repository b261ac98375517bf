# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Alpine there is for this machine, asked of the mirror."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from .. import N_
from ..errors import RootfsError, Sentence
from .rootfs_http import FLAVOR, OTHER_MIRROR, MissingError, fetch, without_password
from .rootfs_settings import RootfsSettings

ARCH_MAP = {
    "x86_64": "x86_64",
    "aarch64": "aarch64",
    # As some containers on other systems say it.
    "arm64": "aarch64",
    "armv7l": "armv7",
    "i686": "x86",
    "i386": "x86",
}
_LIST = "latest-releases.yaml"
# As 3.22.1, or the day on which what is not released yet was put together.
_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]{0,30}|20[0-9]{6}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Release:
    """A tarball on the mirror. Nothing in it is believed before the checksum was compared."""

    version: str
    file: str
    sha256: str
    url: str
    size: int | None = None


def detect_arch(machine: str | None = None) -> str:
    found = machine if machine is not None else platform.machine()
    if found not in ARCH_MAP:
        raise RootfsError(
            N_("There is no Alpine system for this kind of machine ({machine})."),
            N_("It is there for: {machines}."),
            # Translators: a kind of machine, such as x86_64, that is not known.
            machine=found or Sentence(N_("unknown")),
            machines=", ".join(ARCH_MAP),
        )
    return ARCH_MAP[found]


def branch_of(version: str) -> str:
    """The folder of the mirror that a version's packages are in."""
    if "." not in version or "_alpha" in version:
        return "edge"
    return f"v{'.'.join(version.split('.')[:2])}"


def get_latest_version(settings: RootfsSettings, arch: str) -> Release:
    """The newest of the branch, or the one that the person has set."""
    try:
        return _find(settings, arch)
    except MissingError as error:
        if not settings.version:
            raise
        raise RootfsError(
            N_("The mirror has no Alpine {version} for {arch}."),
            N_(
                "Set another one: ollmsandbox settings rootfs-version VERSION\nThe newest is "
                'taken if VERSION is "".'
            ),
            version=settings.version,
            arch=arch,
        ) from error


def _find(settings: RootfsSettings, arch: str) -> Release:
    branch = branch_of(settings.version) if settings.version else settings.branch
    folder = f"{settings.mirror}/{branch}/releases/{arch}"
    for entry in _read_list(f"{folder}/{_LIST}"):
        if entry.get("flavor") == FLAVOR:
            release = _release(entry, folder, arch)
            if settings.version in ("", release.version):
                return release
    if settings.version:
        return _by_name(settings.version, folder, arch)
    raise RootfsError(
        N_("{address}/{list} names no {name}."),
        N_("Set another mirror or branch: ollmsandbox settings rootfs-mirror ADDRESS"),
        address=without_password(folder),
        list=_LIST,
        name=FLAVOR,
    )


def _read_list(url: str) -> list[dict[object, object]]:
    text = fetch(url)
    try:
        # Nothing but text, lists and names: what is written is never made into more than it is.
        found = yaml.load(text, yaml.BaseLoader)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise RootfsError(
            N_("{address} is no list of releases."), OTHER_MIRROR, address=without_password(url)
        ) from error
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _release(entry: Mapping[object, object], folder: str, arch: str) -> Release:
    version, file, size = (_text(entry, key) for key in ("version", "file", "size"))
    sha256 = _text(entry, "sha256").lower()
    # The mirror names a file of its own, and never one of ours.
    if (
        not _VERSION.fullmatch(version)
        or not _SHA256.fullmatch(sha256)
        or not re.fullmatch(rf"{FLAVOR}-[0-9a-z._]{{1,40}}-{arch}\.tar\.gz", file)
    ):
        raise RootfsError(
            N_("{address}/{list} does not say what it should."),
            OTHER_MIRROR,
            address=without_password(folder),
            list=_LIST,
        )
    known = int(size) if re.fullmatch("[0-9]{1,15}", size) else 0
    return Release(version, file, sha256, f"{folder}/{file}", known or None)


def _text(entry: Mapping[object, object], key: str) -> str:
    """A list in its place may be short to write and endless to read."""
    found = entry.get(key)
    return found if isinstance(found, str) else ""


def _by_name(version: str, folder: str, arch: str) -> Release:
    """An older one is not in the list, but its checksum lies beside it."""
    file = f"{FLAVOR}-{version}-{arch}.tar.gz"
    found = fetch(f"{folder}/{file}.sha256").decode("ascii", "replace").lower().split()
    if not found or not _SHA256.fullmatch(found[0]):
        raise RootfsError(
            N_("{address}/{file}.sha256 is no checksum."),
            OTHER_MIRROR,
            address=without_password(folder),
            file=file,
        )
    return Release(version, file, found[0], f"{folder}/{file}")
