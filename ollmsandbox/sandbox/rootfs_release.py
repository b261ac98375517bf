# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Alpine there is for this machine, asked of the mirror."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
import yaml

from ..errors import RootfsError
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
FLAVOR = "alpine-minirootfs"
# To connect, and between two pieces of an answer.
PATIENCE = (10.0, 10.0)
_LIST = "latest-releases.yaml"
_LARGEST_LIST = 1 << 16
_VERSION = re.compile(r"[0-9]+\.[0-9]+[0-9a-z._]*")
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
            f"There is no Alpine system for this kind of machine ({found or 'unknown'}).",
            f"It is there for: {', '.join(ARCH_MAP)}.",
        )
    return ARCH_MAP[found]


def branch_of(version: str) -> str:
    """The folder of the mirror that a version's packages are in."""
    return f"v{'.'.join(version.split('.')[:2])}"


def get_latest_version(settings: RootfsSettings, arch: str) -> Release:
    """The newest of the branch, or the one that the person has set."""
    branch = branch_of(settings.version) if settings.version else settings.branch
    folder = f"{settings.mirror}/{branch}/releases/{arch}"
    listed = _read_list(f"{folder}/{_LIST}")
    for entry in listed:
        if entry.get("flavor") == FLAVOR:
            release = _release(entry, folder, arch)
            if settings.version in ("", release.version):
                return release
    if settings.version:
        return _by_name(settings.version, folder, arch)
    raise RootfsError(
        f"{folder}/{_LIST} names no {FLAVOR}.",
        "Set another mirror or branch: ollmsandbox settings rootfs-mirror ADDRESS",
    )


def _read_list(url: str) -> list[dict[str, object]]:
    try:
        found = yaml.safe_load(fetch(url))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise RootfsError(f"{url} is no list of releases.", _OTHER_MIRROR) from error
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _release(entry: dict[str, object], folder: str, arch: str) -> Release:
    version, file, sha256 = (str(entry.get(key)) for key in ("version", "file", "sha256"))
    size = entry.get("size")
    # The mirror names a file of its own, and never one of ours.
    if (
        not _VERSION.fullmatch(version)
        or not _SHA256.fullmatch(sha256)
        or not re.fullmatch(rf"{FLAVOR}-[0-9a-z._]+-{arch}\.tar\.gz", file)
    ):
        raise RootfsError(f"{folder}/{_LIST} does not say what it should.", _OTHER_MIRROR)
    known = size if isinstance(size, int) and size > 0 else None
    return Release(version, file, sha256, f"{folder}/{file}", known)


def _by_name(version: str, folder: str, arch: str) -> Release:
    """An older one is not in the list, but its checksum lies beside it."""
    file = f"{FLAVOR}-{version}-{arch}.tar.gz"
    found = fetch(f"{folder}/{file}.sha256").decode("ascii", "replace").split()
    if not found or not _SHA256.fullmatch(found[0]):
        raise RootfsError(f"{folder}/{file}.sha256 is no checksum.", _OTHER_MIRROR)
    return Release(version, file, found[0], f"{folder}/{file}")


def fetch(url: str) -> bytes:
    """A small document."""
    with get(url) as answer:
        content = b""
        for piece in answer.iter_content(1 << 14):
            content += piece
            if len(content) > _LARGEST_LIST:
                raise RootfsError(f"{url} is far too large.", _OTHER_MIRROR)
        return content


@contextmanager
def get(url: str, headers: dict[str, str] | None = None) -> Iterator[requests.Response]:
    """What can go wrong on the way is told in words, and what to do about it."""
    try:
        with requests.get(url, stream=True, timeout=PATIENCE, headers=headers) as answer:
            if url.startswith("https:") and not answer.url.startswith("https:"):
                raise RootfsError(f"{url} leads to an address that is not secure.", _OTHER_MIRROR)
            # 416: there is nothing after what we have.
            if not answer.ok and answer.status_code != 416:
                raise RootfsError(
                    f"{url} answers {answer.status_code} {answer.reason}.".replace(" .", "."),
                    "Try again later. " + _OTHER_MIRROR,
                )
            yield answer
    except (requests.RequestException, OSError) as error:
        raise UnreachableError(url) from error


class UnreachableError(RootfsError):
    """No answer, or one that broke off."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{urlsplit(url).hostname} cannot be reached.",
            "See whether this machine is online, and try again: what was fetched is kept. "
            + _OTHER_MIRROR
            + "\nWithout a network, fetch the file elsewhere and name it: "
            "ollmsandbox rootfs install --from FILE\n"
            f"It is the {FLAVOR} from alpinelinux.org/downloads.",
        )


_OTHER_MIRROR = "Another mirror is set with: ollmsandbox settings rootfs-mirror ADDRESS"
