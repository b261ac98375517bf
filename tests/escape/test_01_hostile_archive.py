# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives that want more than to be unpacked into the folder of a root file system: to write
elsewhere, to leave devices and setuid programs, to fill the disk. Rows 1, 5 and 7."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.rootfs import Entry, folder, link, pax, raw, tarball, unpack

from ollmsandbox import loop
from ollmsandbox.errors import RootfsError
from ollmsandbox.files import trees
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.sandbox.rootfs import extract
from ollmsandbox.sandbox.rootfs.extract import make_safe
from ollmsandbox.sandbox.rootfs.install import alpine_version
from ollmsandbox.sandbox.rootfs.packages import missing_packages
from ollmsandbox.sandbox.rootfs.sandbox import RootfsSandbox

HARD = tarfile.LNKTYPE


@pytest.fixture
def sandbox(person: Person) -> RootfsSandbox:
    target = person.home / "target"
    target.mkdir()
    return RootfsSandbox(target, person.paths, person.environ, person.capabilities())


@pytest.fixture
def outside(person: Person) -> Path:
    folder = person.home / "outside"
    folder.mkdir()
    (folder / "file").write_text("untouched")
    return folder


def state(outside: Path) -> tuple[object, ...]:
    """Return what an attack would change."""
    file = outside / "file"
    found = file.stat()
    names = sorted(path.name for path in (*outside.iterdir(), *outside.parent.iterdir()))
    return names, file.read_text(), found.st_nlink, found.st_mode, outside.stat().st_mode


@pytest.fixture
def untouched(outside: Path, sandbox: RootfsSandbox) -> Iterator[None]:
    (outside.parent / "given.tar.gz").touch()
    before = state(outside)
    yield
    assert state(outside) == before


# --- writing elsewhere --------------------------------------------------------------------------

ATTACKS = {
    "an absolute path": [Entry("{outside}/new", b"evil")],
    "a path that climbs": [Entry("../outside/new", b"evil")],
    "a path that climbs later": [folder("a"), Entry("a/../../outside/new", b"evil")],
    "a file behind an absolute link": [link("door", "{outside}"), Entry("door/new", b"evil")],
    "a file behind a relative link": [link("door", "../outside"), Entry("door/new", b"evil")],
    "a file behind two links": [
        link("one", ".."),
        link("two", "one/outside"),
        Entry("two/new", b"evil"),
    ],
    "a folder behind a link": [link("door", "{outside}"), folder("door/new")],
    "a hard link by an absolute path": [Entry("mine", type=HARD, link="{outside}/file")],
    "a hard link that climbs": [Entry("mine", type=HARD, link="../outside/file")],
    "a hard link behind a link": [
        link("door", "{outside}"),
        Entry("mine", type=HARD, link="door/file"),
    ],
    "the mode of a folder": [folder("../outside", 0o777)],
}


def attack(name: str, outside: Path) -> bytes:
    entries = []
    for entry in ATTACKS[name]:
        changed = [text.format(outside=outside) for text in (entry.name, entry.link)]
        entries.append(Entry(changed[0], entry.content, entry.mode, entry.type, changed[1]))
    return tarball(entries)


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_sandbox_the_archive_changes_what_is_outside(
    sandbox: RootfsSandbox, outside: Path, name: str
) -> None:
    """The control: `tar -P` trusts the archive."""
    before = state(outside)
    subprocess.run(
        ["tar", "-xzpPf", "-", "--overwrite"],
        cwd=sandbox.folder,
        input=attack(name, outside),
        check=False,
    )
    assert state(outside) != before


@pytest.mark.parametrize("trusting", [False, True], ids=["tar", "tar -P"])
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.usefixtures("untouched")
def test_an_archive_cannot_change_what_is_outside(
    sandbox: RootfsSandbox,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    trusting: bool,
) -> None:
    """Not even if `tar` were fooled: there is nothing else to write to."""
    if trusting:
        script = extract._UNPACK.replace("tar -x", "tar -P --overwrite -x")
        monkeypatch.setattr(extract, "_UNPACK", script)
    # Some are refused, others land inside.
    try:
        unpack(sandbox, attack(name, outside))
    except RootfsError as error:
        assert "could not be unpacked" in error.message


@pytest.mark.parametrize("where", ["/outside", "../outside/new", "a/../../outside/new"])
@pytest.mark.usefixtures("untouched")
def test_a_name_among_the_attributes_of_an_entry(sandbox: RootfsSandbox, where: str) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        data = pax(kind, path=where) + raw("harmless", size=4, content=b"evil") + bytes(1024)
        try:
            unpack(sandbox, data)
        except RootfsError as error:
            assert "could not be unpacked" in error.message


def test_what_unpacks_sees_nothing_of_the_user_and_writes_nowhere_else(
    person: Person, sandbox: RootfsSandbox, outside: Path
) -> None:
    script = f"""
    for name in {outside}/file {person.home} /home /root /etc/passwd /run /var; do
        ls "$name" >/dev/null 2>&1 && echo "sees $name"
    done
    for folder in / /usr /dev /proc /tmp /target; do
        touch "$folder/made" 2>/dev/null && echo "writes $folder"
    done
    wc -l </proc/net/dev
    """
    result = loop.run(sandbox.run_host(["/bin/sh", "-c", script]))
    assert result.stdout.text.split("\n") == ["writes /target", "3", ""], result.stderr.text


# --- things that are not files ------------------------------------------------------------------


def test_devices_and_pipes_are_left_out(sandbox: RootfsSandbox) -> None:
    data = tarball(
        [
            Entry("dev/null", type=tarfile.CHRTYPE),
            Entry("./dev/sda", type=tarfile.BLKTYPE),
            Entry("usr/dev/kept", b"x"),
            # The kernel lets everybody make the device 0:0, which hides a file below an overlay.
            Entry("etc/hidden", type=tarfile.CHRTYPE),
            Entry("etc/pipe", type=tarfile.FIFOTYPE),
        ]
    )
    unpack(sandbox, data)
    assert [p.name for p in sandbox.folder.rglob("*") if not p.is_dir()] == ["kept"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_a_device_elsewhere_is_refused(sandbox: RootfsSandbox, kind: bytes) -> None:
    header = tarfile.TarInfo("etc/disk")
    header.type, header.devmajor, header.devminor = kind, 8, 1
    with pytest.raises(RootfsError, match="mknod"):
        unpack(sandbox, header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert not (sandbox.folder / "etc/disk").exists()


def modes(sandbox: RootfsSandbox) -> dict[str, int]:
    return {p.name: stat.S_IMODE(p.lstat().st_mode) for p in sandbox.folder.rglob("*")}


def test_owners_and_setuid_bits_are_left_out(sandbox: RootfsSandbox) -> None:
    data = tarball(
        [
            Entry("su", b"x", 0o6755),
            folder("all", 0o7777),
            folder("closed", 0o000),
            Entry("closed/inner", b"x", 0o4000),
            Entry("open", b"x", 0o666),
        ]
    )
    unpack(sandbox, data)
    expected = {"su": 0o755, "all": 0o755, "closed": 0o700, "inner": 0o600, "open": 0o644}
    assert modes(sandbox) == expected
    assert {p.lstat().st_uid for p in sandbox.folder.rglob("*")} == {os.getuid()}


def test_what_programs_made_later_is_cleaned_and_no_link_is_followed(
    sandbox: RootfsSandbox, outside: Path
) -> None:
    (sandbox.folder / "deep").mkdir()
    (sandbox.folder / "deep/su").write_text("x")
    (sandbox.folder / "deep/su").chmod(0o4755)
    os.mkfifo(sandbox.folder / "deep/pipe")
    (outside / "file").chmod(0o4755)
    (sandbox.folder / "door").symlink_to(outside / "file")
    (sandbox.folder / "way").symlink_to(outside)
    before = state(outside)
    loop.run(make_safe(sandbox))
    assert state(outside) == before
    assert modes(sandbox) == {"deep": 0o755, "su": 0o755, "door": 0o777, "way": 0o777}


@pytest.mark.parametrize("kind", ["a link to endless zeros", "a pipe", "a link to a pipe"])
def test_what_is_read_of_the_new_system_is_read_in_it(
    sandbox: RootfsSandbox, outside: Path, kind: str
) -> None:
    """It would fill the memory, or wait for ever."""
    os.mkfifo(outside / "pipe")
    for name in ("etc/alpine-release", "lib/apk/db/installed"):
        file = sandbox.folder / name
        file.parent.mkdir(parents=True)
        if kind == "a pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero" if "zeros" in kind else outside / "pipe")
    with pytest.raises(RootfsError, match="Alpine"):
        alpine_version(sandbox.folder)
    assert missing_packages(sandbox.folder, ["bash"]) == ["bash"]


# --- too much of everything ---------------------------------------------------------------------


@pytest.mark.anybody
def test_a_small_archive_that_unpacks_to_a_huge_file(sandbox: RootfsSandbox) -> None:
    piece, number = gzip.compress(bytes(64 << 20)), 128
    header = tarfile.TarInfo("zeros")
    header.size = number * (64 << 20)
    bomb = gzip.compress(header.tobuf(tarfile.GNU_FORMAT)) + piece * number
    assert len(bomb) < 16 << 20
    with pytest.raises(RootfsError, match="unpacks to more than 64 MiB"):
        unpack(sandbox, bomb, most_bytes=64 << 20)
    assert trees.measure(sandbox.folder)[1] < header.size / 2


def test_a_file_that_says_it_is_huge_but_has_only_holes(
    person: Person, sandbox: RootfsSandbox
) -> None:
    size = 1 << 40
    (person.home / "holes").touch()
    os.truncate(person.home / "holes", size)
    packed = subprocess.run(
        ["tar", "-cSzf", "-", "holes"], cwd=person.home, capture_output=True, check=True
    )
    unpack(sandbox, packed.stdout)
    assert (sandbox.folder / "holes").stat().st_size == size
    assert trees.measure(sandbox.folder)[1] < 1 << 20


@pytest.mark.anybody
def test_far_too_many_files(sandbox: RootfsSandbox) -> None:
    bomb = tarball([Entry(f"f{number}") for number in range(50_000)])
    with pytest.raises(RootfsError, match="more than 1,000 files"):
        unpack(sandbox, bomb, most_entries=1000)
    # What tar wrote to the pipe until it was killed, and no more.
    assert len(os.listdir(sandbox.folder)) < 40_000


@pytest.mark.anybody
def test_few_files_in_far_too_many_folders(sandbox: RootfsSandbox) -> None:
    bomb = tarball([Entry(f"{number}/" + "d/" * 500 + "f") for number in range(100)])
    with pytest.raises(RootfsError, match="more than 10,000 files"):
        unpack(sandbox, bomb, most_entries=10_000)


@pytest.mark.parametrize("name", ["n" * 300, "d/" * 3000 + "f", "n" * (4 << 20)])
def test_names_that_are_longer_than_a_name_can_be(sandbox: RootfsSandbox, name: str) -> None:
    with pytest.raises(RootfsError, match="could not be unpacked") as caught:
        unpack(sandbox, tarball([Entry(name)]))
    assert len(str(caught.value)) < 1000


@pytest.mark.anybody
def test_a_name_that_is_larger_than_the_memory_limit(sandbox: RootfsSandbox) -> None:
    """tar reads a name into memory, however long it is."""
    piece, number = gzip.compress(bytes(64 << 20)), 32
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, number * (64 << 20)
    bomb = gzip.compress(header.tobuf(tarfile.GNU_FORMAT)) + piece * number
    with pytest.raises(RootfsError) as caught:
        unpack(sandbox, bomb)
    assert Stop.MEMORY.sentence in caught.value.message


def test_a_name_with_lines_in_it(sandbox: RootfsSandbox) -> None:
    """It could look like the end of the archive, or hide the number of files."""
    end = "a\nblock 9: ** Block of NULs **"
    unpack(sandbox, tarball([Entry(end, b"x")]))
    assert os.listdir(sandbox.folder) == [end]
    with pytest.raises(RootfsError, match="incomplete"):
        unpack(sandbox, raw(end))


def test_folders_that_are_very_deep_can_be_unpacked_and_removed(sandbox: RootfsSandbox) -> None:
    unpack(sandbox, tarball([folder("d/" * 1500, 0o4000)]))
    assert trees.measure(sandbox.folder)[0] == 0
    trees.empty(sandbox.folder)
    assert os.listdir(sandbox.folder) == []
