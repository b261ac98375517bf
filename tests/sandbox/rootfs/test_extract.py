# SPDX-License-Identifier: GPL-3.0-or-later
"""A tarball is unpacked whole, or there is an error. Attacks: escape/test_01_hostile_archive.py."""

from __future__ import annotations

import asyncio
import gzip
import os
import stat
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.person import Person
from support.rootfs import Entry, folder, link, raw, tarball, unpack

from ollmsandbox import loop
from ollmsandbox.errors import RootfsError
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.rootfs.extract import extract_rootfs
from ollmsandbox.sandbox.rootfs.sandbox import RootfsSandbox


@pytest.fixture
def sandbox(person: Person) -> RootfsSandbox:
    target = person.home / "target"
    target.mkdir()
    return RootfsSandbox(target, person.paths, person.environ, person.capabilities())


def test_files_folders_and_links_come_out_as_they_went_in(sandbox: RootfsSandbox) -> None:
    entries = [
        folder("./"),
        folder("./bin/", 0o750),
        Entry("./bin/tool", b"content", 0o755),
        Entry("./bin/closed", b"secret", 0o200),
        Entry("./a/b/c", b"deep"),
        link("./bin/sh", "tool"),
        link("./bin/ls", "/bin/tool"),
        Entry("./bin/second", type=tarfile.LNKTYPE, link="./bin/tool"),
    ]
    unpack(sandbox, tarball(entries))
    target = sandbox.folder
    assert (target / "bin/tool").read_bytes() == b"content"
    assert stat.S_IMODE((target / "bin/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "bin").stat().st_mode) == 0o750
    assert (target / "a/b/c").read_bytes() == b"deep"
    assert os.readlink(target / "bin/sh") == "tool"
    assert os.readlink(target / "bin/ls") == "/bin/tool"
    assert (target / "bin/second").samefile(target / "bin/tool")
    assert (target / "bin/tool").stat().st_mtime == 1_700_000_000


def test_the_last_entry_of_a_name_counts(sandbox: RootfsSandbox) -> None:
    unpack(sandbox, tarball([Entry("a", b"first"), link("b", "a"), Entry("b", b"own")]))
    unpack(sandbox, tarball([Entry("a", b"last")]))
    assert (sandbox.folder / "a").read_bytes() == b"last"
    assert (sandbox.folder / "b").read_bytes() == b"own"


@pytest.mark.ordinary
@pytest.mark.parametrize("program", [["tar", "--blocking-factor=1"], ["busybox", "tar"]])
@pytest.mark.parametrize("is_packed", [True, False])
def test_what_a_program_packed_is_whole(
    person: Person, sandbox: RootfsSandbox, program: list[str], is_packed: bool
) -> None:
    (person.home / "some").mkdir()
    (person.home / "some/file").write_text("text")
    packed = subprocess.run(
        [*program, "-c", "-f", "-", "some"], cwd=person.home, capture_output=True, check=True
    )
    unpack(sandbox, gzip.compress(packed.stdout) if is_packed else packed.stdout)
    assert (sandbox.folder / "some/file").read_text() == "text"


@pytest.mark.parametrize("namespaces", [(), ("user", "mount", "pid")])
def test_it_needs_no_overlays_and_no_namespaces_but_those_of_bwrap(
    sandbox: RootfsSandbox, namespaces: tuple[str, ...]
) -> None:
    found = sandbox.found._replace(namespaces=namespaces, overlay=OverlayMethod.NONE)
    unpack(replace(sandbox, found=found), tarball([Entry("a", b"x")]))
    assert (sandbox.folder / "a").read_bytes() == b"x"


@pytest.mark.ordinary
@pytest.mark.parametrize("cut", [10, 200, 4000])
def test_a_tarball_that_is_cut_off_is_an_error(sandbox: RootfsSandbox, cut: int) -> None:
    whole = tarball([Entry("a", os.urandom(3000)), Entry("b", os.urandom(3000))])
    for data in (whole[:cut], gzip.decompress(whole)[:cut]):
        with pytest.raises(RootfsError, match="could not be unpacked"):
            unpack(sandbox, data)


HEADERS = raw("a") + raw("b") + bytes(1024)


@pytest.mark.ordinary
@pytest.mark.parametrize(
    "packed",
    [
        *(
            raw("a", size=3, content=b"abc") + end
            for end in (b"", bytes(511) + b"x", b"more" * 128)
        ),
        # With a broken header.
        *(HEADERS[:place] + b"\xff" + HEADERS[place + 1 :] for place in (600, 700)),
    ],
    ids=["none", "not all zeros", "no zeros", "broken header", "broken checksum"],
)
def test_a_tarball_without_its_end_is_an_error(sandbox: RootfsSandbox, packed: bytes) -> None:
    for data in (packed, gzip.compress(packed)):
        with pytest.raises(RootfsError, match="could not be unpacked"):
            unpack(sandbox, data)


@pytest.mark.ordinary
@pytest.mark.parametrize("data", [b"", b"text, not a tarball", b"\x1f\x8bnot really", b"\0"])
def test_what_is_no_tarball_is_an_error(sandbox: RootfsSandbox, data: bytes) -> None:
    with pytest.raises(RootfsError, match=r"given\.tar\.gz could not be unpacked"):
        unpack(sandbox, data)


def test_a_missing_tarball_or_tar_is_an_error(sandbox: RootfsSandbox, tmp_path: Path) -> None:
    with pytest.raises(RootfsError, match=r"missing\.tar cannot be read"):
        loop.run(extract_rootfs(sandbox, tmp_path / "missing.tar"))
    without = replace(sandbox, environ={**sandbox.environ, "PATH": "/nowhere"})
    with pytest.raises(RootfsError, match="tar is missing"):
        unpack(without, tarball([Entry("a")]))


def test_progress_reaches_the_end_of_the_tarball(sandbox: RootfsSandbox) -> None:
    file = sandbox.folder.parent / "given.tar.gz"
    # A list of names that no pipe holds at once: tar has to wait until each part of it is read.
    file.write_bytes(tarball([Entry(f"{n:0200}", os.urandom(1000)) for n in range(4000)]))
    told: list[tuple[int, int]] = []
    progress = extract_rootfs(sandbox, file, lambda done, size: told.append((done, size)))
    loop.run(progress)
    assert {size for _, size in told} == {file.stat().st_size}
    assert told[-1][0] == file.stat().st_size
    assert len({done for done, _ in told}) > 2


def test_who_cancels_ends_it(sandbox: RootfsSandbox) -> None:
    file = sandbox.folder.parent / "given.tar.gz"
    number, piece = 64, bytes(64 << 20)
    begin = raw("a") + raw("b", size=number * len(piece))
    file.write_bytes(gzip.compress(begin) + number * gzip.compress(piece))

    async def cancel() -> None:
        task = asyncio.ensure_future(extract_rootfs(sandbox, file))
        while "b" not in os.listdir(sandbox.folder):
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        size = (sandbox.folder / "b").stat().st_size
        await asyncio.sleep(0.2)
        assert (sandbox.folder / "b").stat().st_size == size < number * len(piece)

    loop.run(cancel())
