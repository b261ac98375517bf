# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack a tarball with `tar` in a sandbox, where only the new folder is writable.

An archive can be hostile: whatever its paths and links say, there is nothing else to write to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ... import N_
from ...errors import RootfsError, Sentence, in_lines
from ...text.ansi import harmless
from ..process import Result, Stop
from .sandbox import RootfsSandbox

_GZIP = b"\x1f\x8b"
# A system unpacks to three times the size of its tarball, rarely to ten times.
_RATIO = 50
_AT_LEAST = 256 << 20
# Devices and pipes are left out: a sandbox has its own /dev. Owners, setuid bits and permissions
# for others to write are left out, too, and the user gets the permission to remove everything.
_CLEAN = "chmod -R u+rwX,go-w,a-st . && find . ! -type d ! -type f ! -type l -delete"
# -R makes tar say how the archive ends: it accepts one that was cut off between two files.
_UNPACK = f"""\
umask 022
tar -x -v -R -f - --no-same-owner --no-same-permissions --anchored --exclude='dev/?*' \\
    --exclude='./dev/?*' "$@" || exit
{_CLEAN}
"""
# More than a whole system with all packages needs: the size, and the number of files, folders and
# links, with a folder counted for every path through it.
_MOST_BYTES, _MOST_ENTRIES = 4 << 30, 1_000_000
_END = "** Block of NULs **"
_LONGEST = 500


async def extract_rootfs(
    sandbox: RootfsSandbox,
    tarball: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    most_bytes: int = _MOST_BYTES,
    most_entries: int = _MOST_ENTRIES,
) -> None:
    """Unpack a .tar.gz or .tar into the sandbox's folder, and make it safe to use.

    `progress` receives the number of bytes read, and the size of the tarball.
    """
    if not shutil.which("tar", path=sandbox.environ.get("PATH")):
        raise RootfsError(N_("The program tar is missing."), N_("Install it: apt install tar"))
    descriptor, size, is_packed = _open(tarball)
    disk = min(most_bytes, _AT_LEAST + _RATIO * size)
    entries = 0

    def count(listing: bytes) -> None:
        nonlocal entries
        entries += listing.count(b"\n") + listing.count(b"/")
        if entries > most_entries:
            text = N_("{file} contains more than {number:,} files.")
            raise RootfsError(text, file=tarball, number=most_entries)
        if progress is not None:
            # The descriptor's position is shared with tar.
            progress(os.lseek(descriptor, 0, os.SEEK_CUR), size)

    try:
        argv = ["/bin/sh", "-c", _UNPACK, "sh", *(["--gzip"] if is_packed else [])]
        result = await sandbox.run_host(argv, disk=disk, stdin=descriptor, sink=count)
    finally:
        os.close(descriptor)
    if result.stop is Stop.DISK:
        text = N_("{file} unpacks to more than {size:,} MiB.")
        raise RootfsError(text, file=tarball, size=disk >> 20)
    what = Sentence(N_("{file} could not be unpacked."), file=tarball)
    _check(result, what)
    lines = result.stdout.text.splitlines()
    if not lines or not lines[-1].endswith(_END):
        raise RootfsError(
            in_lines(what, Sentence(N_("It is incomplete."))), N_("Download it again.")
        )


def _open(tarball: Path) -> tuple[int, int, bool]:
    """Return a descriptor, the size, and whether the tarball is compressed."""
    try:
        with open(tarball, "rb", buffering=0) as file:
            is_packed = os.pread(file.fileno(), len(_GZIP), 0) == _GZIP
            return os.dup(file.fileno()), os.fstat(file.fileno()).st_size, is_packed
    except OSError as error:
        why = error.strerror or str(error)
        raise RootfsError(N_("{file} cannot be read: {why}."), file=tarball, why=why) from error


async def make_safe(sandbox: RootfsSandbox) -> None:
    """Remove setuid bits, devices and pipes that programs in the sandbox made."""
    result = await sandbox.run_host(["/bin/sh", "-c", _CLEAN])
    _check(result, Sentence(N_("The permissions of the root file system could not be changed.")))


def _check(result: Result, what: Sentence) -> None:
    if result.stop is not None:
        raise RootfsError(in_lines(what, result.stop.sentence))
    if result.exit_code != 0:
        said = harmless(result.stderr.text).strip()[:_LONGEST]
        raise RootfsError(in_lines(what, said), N_("Download it again, or use another tarball."))
