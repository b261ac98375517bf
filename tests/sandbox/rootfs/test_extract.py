# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile tarballs write nothing outside the target folder."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.person import ROOT
from support.rootfs import Entry, folder, link, tarball

from ollmsandbox.errors import RootfsError
from ollmsandbox.sandbox.rootfs import extract
from ollmsandbox.sandbox.rootfs.extract import Room, drop_setuid, extract_rootfs

pytestmark = pytest.mark.anybody


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An empty folder, with a folder beside it that must not change."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("untouched")
    made = tmp_path / "target"
    made.mkdir()
    return made


def unpack(target: Path, *entries: Entry, room: Room | None = None, data: bytes = b"") -> int:
    file = target.parent / "given.tar.gz"
    file.write_bytes(data or tarball(list(entries)))
    try:
        return extract_rootfs(file, target, room)
    finally:
        outside = target.parent / "outside"
        assert [p.name for p in outside.iterdir()] == ["file"]
        assert (outside / "file").read_text() == "untouched"
        assert (outside / "file").stat().st_nlink == 1
        assert sorted(p.name for p in target.parent.iterdir()) == [
            "given.tar.gz",
            "outside",
            "target",
        ]


def test_files_folders_and_links_come_out_as_they_went_in(target: Path) -> None:
    count = unpack(
        target,
        folder("./"),
        folder("./bin/", 0o750),
        Entry("./bin/tool", b"content", 0o755),
        Entry("./bin/closed", b"secret", 0o200),
        Entry("./a/b/c", b"deep"),
        link("./bin/sh", "tool"),
        Entry("./bin/second", type=tarfile.LNKTYPE, link="./bin/tool"),
    )
    assert count == 7
    assert (target / "bin/tool").read_bytes() == b"content"
    assert stat.S_IMODE((target / "bin/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "bin").stat().st_mode) == 0o750
    assert (target / "a/b/c").read_bytes() == b"deep"
    assert os.readlink(target / "bin/sh") == "tool"
    assert (target / "bin/second").samefile(target / "bin/tool")
    assert (target / "bin/tool").stat().st_mtime == 1_700_000_000


def test_the_last_of_two_equal_entries_wins(target: Path) -> None:
    unpack(target, Entry("a", b"first"), link("b", "a"), Entry("a", b"last"), Entry("b", b"own"))
    assert (target / "a").read_bytes() == b"last"
    assert (target / "b").read_bytes() == b"own"
    assert not (target / "b").is_symlink()


@pytest.mark.parametrize(
    "name",
    ["../outside/new", "a/../../outside/new", "./..", "/outside", "//outside", "a/b/../../../x"],
)
def test_a_path_that_leaves_the_folder_is_refused(target: Path, name: str) -> None:
    with pytest.raises(RootfsError, match="outside its folder"):
        unpack(target, Entry(name, b"evil"))


@pytest.mark.parametrize("way", ["../outside", "{outside}"], ids=["relative", "absolute"])
def test_a_file_behind_a_link_that_leads_out_is_refused(target: Path, way: str) -> None:
    to = way.format(outside=target.parent / "outside")
    with pytest.raises(RootfsError):
        unpack(target, link("door", to), Entry("door/file", b"evil"))


def test_a_link_that_is_written_through_is_replaced_instead(target: Path) -> None:
    outside = target.parent / "outside/file"
    unpack(target, link("door", str(outside)), Entry("door", b"own"))
    assert (target / "door").read_bytes() == b"own"


@pytest.mark.parametrize("to", ["..", "../outside/file", "a/../../outside", "../../../../etc"])
def test_a_link_that_climbs_out_is_refused(target: Path, to: str) -> None:
    with pytest.raises(RootfsError, match="leads out"):
        unpack(target, link("door", to))


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("door", "/etc/passwd"),
        ("a/b/door", "/etc/passwd"),
        ("a/door", "//../../etc/passwd"),
        ("a/door", "/"),
        ("a/door", "../x"),
        ("door", "a/../x"),
    ],
)
def test_a_link_leads_into_the_folder_from_wherever_it_is_read(
    target: Path, name: str, to: str
) -> None:
    unpack(target, Entry("etc/passwd", b"of the system"), Entry("x", b""), link(name, to))
    found = os.path.realpath(target / name)
    assert found == str(target) or found.startswith(f"{target}/")
    assert os.path.exists(found)


def test_links_that_lead_to_each_other_do_not_lead_out_together(target: Path) -> None:
    """The last link alone stays inside; behind the first it would climb further."""
    unpack(target, folder("a/b"), link("a/b/top", "/"), link("a/b/door", "top/../../x"))
    assert os.path.realpath(target / "a/b/door").startswith(f"{target}/")


@pytest.mark.parametrize("to", ["../outside/file", "/etc/passwd", "a/../../outside/file"])
def test_a_hard_link_to_the_machine_is_refused(target: Path, to: str) -> None:
    with pytest.raises(RootfsError, match="outside its folder"):
        unpack(target, Entry("door", type=tarfile.LNKTYPE, link=to))


def test_a_hard_link_behind_a_link_is_refused(target: Path) -> None:
    with pytest.raises(RootfsError):
        unpack(
            target,
            link("door", str(target.parent / "outside")),
            Entry("mine", type=tarfile.LNKTYPE, link="door/file"),
        )


def test_a_hard_link_to_a_link_is_refused(target: Path) -> None:
    with pytest.raises(RootfsError, match="no file"):
        unpack(
            target,
            link("door", str(target.parent / "outside/file")),
            Entry("mine", type=tarfile.LNKTYPE, link="door"),
        )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_left_out(target: Path, kind: bytes) -> None:
    unpack(target, Entry("dev/thing", type=kind), Entry("file", b"x"))
    assert [p.name for p in target.rglob("*")] == ["file"]


def test_owners_and_setuid_bits_are_left_out(target: Path) -> None:
    unpack(target, Entry("su", b"x", 0o6755), folder("all", 0o3777), Entry("open", b"x", 0o666))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in target.iterdir()}
    assert modes == {"su": 0o755, "all": 0o755, "open": 0o644}
    assert {p.stat().st_uid for p in target.iterdir()} == {os.getuid()}


def test_setuid_bits_that_come_later_are_dropped_and_no_link_is_followed(target: Path) -> None:
    (target / "deep").mkdir()
    (target / "deep/su").write_text("x")
    (target / "deep/su").chmod(0o4755)
    outside = target.parent / "outside/file"
    outside.chmod(0o4755)
    (target / "door").symlink_to(outside)
    drop_setuid(target)
    assert stat.S_IMODE((target / "deep/su").stat().st_mode) == 0o755
    assert stat.S_IMODE(outside.stat().st_mode) == 0o4755


def test_far_too_many_entries_are_refused(target: Path) -> None:
    entries = [Entry(f"f{number}") for number in range(101)]
    with pytest.raises(RootfsError, match="more than 100 entries"):
        unpack(target, *entries, room=Room(entries=100))


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(target: Path) -> None:
    bomb = tarball([Entry("zeros", bytes(16 << 20))])
    assert len(bomb) < 1 << 20
    with pytest.raises(RootfsError, match="more than 8 MiB"):
        unpack(target, data=bomb, room=Room(size=8 << 20))
    assert sum(p.stat().st_size for p in target.iterdir()) <= 8 << 20


def test_a_name_as_large_as_memory_is_not_read(target: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    bomb = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(64 << 20), 1)
    with pytest.raises(RootfsError, match="too long"):
        unpack(target, data=bomb)


@pytest.mark.parametrize("name", ["a/" * 65 + "b", "n" * 1100], ids=["deep", "long"])
def test_absurd_paths_are_refused(target: Path, name: str) -> None:
    with pytest.raises(RootfsError, match="too long"):
        unpack(target, Entry(name))


@pytest.mark.parametrize("cut", [10, 200, 2000, 4000])
def test_a_tarball_that_is_cut_off_is_damaged(target: Path, cut: int) -> None:
    whole = tarball([Entry("a", os.urandom(3000)), Entry("b", os.urandom(3000))])
    with pytest.raises(RootfsError, match="damaged"):
        unpack(target, data=whole[:cut])


@pytest.mark.parametrize(
    "end",
    [b"", bytes(512), bytes(1023), bytes(512) + b"more" * 128, b"more" * 128, bytes(511) + b"x"],
    ids=["none", "one block", "a byte less", "one block and more", "no zeros", "not all zeros"],
)
def test_a_tarball_without_its_end_is_damaged(target: Path, end: bytes) -> None:
    packed = raw("a", size=3, content=b"abc") + end
    for data in (packed, gzip.compress(packed)):
        with pytest.raises(RootfsError, match="damaged"):
            unpack(target, data=data)


def test_a_tarball_with_a_broken_header_is_damaged(target: Path) -> None:
    whole = raw("a") + raw("b") + bytes(1024)
    for place in (600, 700):
        broken = whole[:place] + b"\xff" + whole[place + 1 :]
        with pytest.raises(RootfsError, match="damaged"):
            unpack(target, data=broken)


@pytest.mark.parametrize("program", [["tar", "--blocking-factor=1"], ["busybox", "tar"]])
def test_a_tarball_of_a_real_program_is_complete(target: Path, program: list[str]) -> None:
    packed = subprocess.run(
        [*program, "-c", "-f", "-", "outside"], cwd=target.parent, capture_output=True, check=True
    )
    assert unpack(target, data=packed.stdout) == 2
    assert (target / "outside/file").read_text() == "untouched"


@pytest.mark.parametrize("data", [b"text, not a tarball", b"\x1f\x8bnot really", b"\0"])
def test_a_file_that_is_no_tarball_is_refused(target: Path, data: bytes) -> None:
    with pytest.raises(RootfsError, match="damaged, or no tarball"):
        unpack(target, data=data)


def test_a_tarball_that_is_not_compressed_is_unpacked_too(target: Path) -> None:
    plain = gzip.decompress(tarball([Entry("a", b"x")]))
    assert unpack(target, data=plain) == 1
    assert (target / "a").read_bytes() == b"x"


def test_a_file_of_holes_does_not_fill_the_disk(target: Path) -> None:
    made = io.BytesIO()
    header = tarfile.TarInfo("holes")
    header.size = 0
    header.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.size": str(1 << 40),
        "GNU.sparse.map": f"{(1 << 40) - 1},0",
    }
    made.write(header.tobuf(tarfile.PAX_FORMAT))
    made.write(bytes(10240))
    with pytest.raises(RootfsError, match="holes"):
        unpack(target, data=gzip.compress(made.getvalue()))


# --- headers that say what is not so ----------------------------------------------------------


def headers(*blocks: bytes) -> bytes:
    return gzip.compress(b"".join(blocks) + bytes(1024), 1)


def raw(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, content: bytes = b"") -> bytes:
    """An entry whose header need not be true."""
    header = tarfile.TarInfo(name)
    header.type, header.size = kind, size
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def attributes(kind: bytes = tarfile.XHDTYPE, **given: str) -> bytes:
    text = b""
    for name, value in given.items():
        pair = f" {name.replace('__', '.')}={value}\n".encode()
        length = len(pair) + 1
        while len(str(length)) + len(pair) != length:
            length += 1
        text += str(length).encode() + pair
    return raw("attributes", kind, len(text), text)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_that_only_lead_to_the_next_one_come_to_an_end(target: Path, kind: bytes) -> None:
    with pytest.raises(RootfsError):
        unpack(target, data=headers(*[raw("again", kind) for _ in range(5_000)]))


def test_a_list_of_holes_that_does_not_end_is_not_read_into_memory(target: Path) -> None:
    sparse = attributes(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="9")
    endless = b"999999999\n" + b"0\n" * (4 << 20)
    with pytest.raises(RootfsError, match="too long"):
        unpack(target, data=headers(sparse, raw("holes", size=len(endless), content=endless)))


@pytest.mark.parametrize("size", [str(1 << 60), "9" * 30, "-5"])
def test_a_size_that_is_far_too_large_is_damage(target: Path, size: str) -> None:
    with pytest.raises(RootfsError):
        unpack(target, data=headers(attributes(size=size), raw("a", size=3, content=b"abc")))


@pytest.mark.parametrize("name", ["../outside/new", "/outside", "a/../../outside/new", "x" * 2000])
def test_a_name_among_the_attributes_is_looked_at_too(target: Path, name: str) -> None:
    for block in (attributes(path=name), attributes(tarfile.XGLTYPE, path=name)):
        with pytest.raises(RootfsError) as caught:
            unpack(target, data=headers(block, raw("harmless")))
        assert len(caught.value.message) < 300


def test_a_folder_where_a_link_is_does_not_lead_through_it(target: Path) -> None:
    with pytest.raises(RootfsError, match="through a link"):
        unpack(target, link("a", "b"), folder("b"), folder("a", 0o700))
    with pytest.raises(RootfsError, match="through a link"):
        unpack(target, link("c", "b"), folder("c/inner"))


def test_an_absurd_compression_ratio_is_refused_though_there_is_room(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "_AT_LEAST", 8 << 20)
    with pytest.raises(RootfsError, match="unpacks to more than"):
        unpack(target, Entry("zeros", bytes(12 << 20)))


def test_a_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "big.tar.gz").write_bytes(tarball([Entry("a", os.urandom(3 << 20))]))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from ollmsandbox.errors import RootfsError\n"
        "from ollmsandbox.sandbox.rootfs.extract import extract_rootfs\n"
        "try: extract_rootfs(Path(sys.argv[2]), Path(sys.argv[3]))\n"
        "except RootfsError as error: print(error)\n"
    )
    (tmp_path / "small").mkdir()
    script = 'mount -t tmpfs -o size=1m small "$4" && exec "$1" -I -c "$2" "$3" "$5" "$4"'
    given = [sys.executable, code, str(ROOT), str(tmp_path / "small"), str(tmp_path / "big.tar.gz")]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *given],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "There is no room left on the disk" in done.stdout, done.stderr
    assert "Make room" in done.stdout
