# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures while the root file system is installed, upgraded or removed."""

from __future__ import annotations

import asyncio
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.person import Person
from support.rootfs import (
    ARCH,
    VERSION,
    Entry,
    Mirror,
    base,
    folder,
    install,
    link,
    prepare,
    quick_mirror,
    system,
    tarball,
)
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError, RootfsError
from ollmsandbox.sandbox.rootfs.install import check_tarball
from ollmsandbox.sandbox.rootfs.release import sha256_of
from ollmsandbox.sandbox.rootfs.rootfs import Rootfs
from ollmsandbox.sandbox.rootfs.store import Installed, RootfsStore, need_rootfs


@pytest.fixture
def served() -> Iterator[Mirror]:
    with quick_mirror(1, "main") as running:
        yield running


# --- a line that is dead ------------------------------------------------------------------------


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("dead", "tier", "left"),
    [
        ("latest-releases.yaml", 0, []),
        (f"-{ARCH}.tar.gz", 0, ["downloads"]),
        ("/python3.tar.gz", 1, ["downloads"]),
    ],
)
def test_cancelling_does_not_wait_for_a_mirror_that_does_not_respond(
    person: Person, served: Mirror, dead: str, tier: int, left: list[str]
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def stall(path: str) -> None:
        if path.endswith(dead):
            asked.set()
            answers.wait(PATIENCE)

    served.when = stall
    rootfs = Rootfs(person.paths, person.environ, served.settings)

    async def cancel() -> None:
        task = asyncio.ensure_future(rootfs.prepare(tier=tier))
        await asyncio.to_thread(asked.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The mirror has not responded yet, so cancelling did not wait for it.
        assert not answers.is_set()

    person._copy_probe()
    loop.run(cancel())
    # Only what was fetched is left.
    assert sorted(os.listdir(person.paths.rootfs)) == [".rootfs.lock", *left]
    answers.set()
    served.when = lambda _path: None
    # Whoever was left behind is not in the way of the next.
    assert prepare(person, served, tier=tier).is_new


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.ordinary
def test_a_mirror_that_is_behind_does_not_bring_back_an_older_version(
    person: Person, served: Mirror
) -> None:
    prepare(person, served, tier=0)
    served.has("3.99.0", system("3.99.0"))
    again = prepare(person, served, tier=0)
    assert (again.is_new, again.installed.version) == (False, VERSION)
    assert "only has 3.99.0, which is older" in again.notices[0]
    # Who names it gets it.
    served.files |= {
        path.replace("/latest-stable/", "/v3.99/"): content
        for path, content in list(served.files.items())
        if path.startswith("/latest-stable/")
    }
    wanted = replace(served.settings, version="3.99.0")
    assert prepare(person, served, tier=0, settings=wanted).installed.version == "3.99.0"
    # Who leaves what is not released yet goes back as well.
    served.has("20991231", system("3.100.0_alpha20991231"), branch="edge")
    edge = replace(served.settings, branch="edge")
    assert prepare(person, served, tier=0, settings=edge).installed.version == "20991231"
    assert prepare(person, served, tier=0).installed.version == "3.99.0"


def _merged() -> bytes:
    """Return a system as newer versions are: /bin, /sbin and /lib are in /usr."""
    kept = []
    for entry in base():
        top = entry.name.split("/")[1]
        if entry.type == tarfile.DIRTYPE and entry.name in ("./bin/", "./sbin/", "./lib/"):
            continue
        if top in ("bin", "sbin"):
            entry = replace(entry, name=f"./usr/{entry.name[2:]}")
        kept.append(entry)
    links = [link(f"./{name}", f"usr/{name}") for name in ("bin", "sbin", "lib")]
    release = Entry("./etc/alpine-release", b"3.99.5\n")
    return tarball([*kept, folder("./usr/lib/"), *links, release])


def test_a_version_whose_folders_are_merged_is_installed_and_used(
    person: Person, served: Mirror
) -> None:
    served.has("3.99.5", _merged())
    made = prepare(person, served).installed
    assert (made.version, made.tier) == ("3.99.5", 1)
    assert os.path.islink(f"{made.folder}/bin")
    result = person.run("cat /etc/alpine-release; /bin/ls /workspace; sed --version", rootfs=made)
    assert result.stdout.text.startswith("3.99.5\n"), result.stderr.text
    assert not prepare(person, served).is_new


# --- packages -----------------------------------------------------------------------------------


@pytest.mark.ordinary
def test_the_output_of_apk_cannot_move_the_cursor(person: Person, served: Mirror) -> None:
    apk = "#!/bin/sh\nprintf '\\033[2J\\033]0;title\\007 broken\\n' >&2\nexit 3\n"
    served.has(VERSION, system(VERSION, Entry("./sbin/apk", apk.encode(), 0o755)))
    with pytest.raises(RootfsError, match="broken") as caught:
        prepare(person, served)
    assert "\033" not in str(caught.value)
    assert "--tier 0" in caught.value.remedy


@pytest.mark.ordinary
def test_a_password_of_the_mirror_is_not_left_where_commands_can_read_it(
    person: Person, served: Mirror
) -> None:
    secret = replace(served.settings, mirror=served.address.replace("//", "//me:secret@"))
    seen = "#!/bin/sh\ncp /etc/apk/repositories /seen\ncp /bin/busybox /usr/bin/python3\n"
    served.has(VERSION, system(VERSION, Entry("./sbin/apk", seen.encode(), 0o755)))
    found = prepare(person, served, settings=secret).installed
    assert "me:secret@" in Path(found.folder, "seen").read_text()
    repositories = Path(found.folder, "etc/apk/repositories").read_text()
    assert repositories.startswith(f"{served.address}/v3.99/main\n")


# --- removal ------------------------------------------------------------------------------------


def test_nothing_is_removed_while_a_command_runs_in_an_older_one(
    person: Person, served: Mirror, alpine: Installed
) -> None:
    older = install(person, alpine)
    lock = older.hold()
    served.has("3.99.2", system("3.99.2"))
    newer = prepare(person, served, tier=0).installed
    rootfs = Rootfs(person.paths, person.environ)
    assert not loop.run(rootfs.remove())
    assert need_rootfs(person.paths, person.environ) == newer
    older.release(lock)
    assert not os.path.exists(older.folder)
    assert loop.run(rootfs.remove())
    assert RootfsStore(person.paths.rootfs).all() == []


@pytest.mark.ordinary
@pytest.mark.parametrize("action", ["status", "remove", "prepare", "need"])
def test_a_store_of_another_user_is_reported(person: Person, action: str) -> None:
    """A misplaced `sudo` leaves such a store. Root can read any folder, so root gets a file."""
    store = person.paths.rootfs
    if os.getuid() == 0:
        store.parent.mkdir(parents=True)
        store.touch()
    else:
        store.mkdir(parents=True, mode=0)
    rootfs = Rootfs(person.paths, person.environ)
    try:
        with pytest.raises(OllmSandboxError, match=r"/ollmchat/rootfs"):
            if action == "status":
                rootfs.status()
            elif action == "need":
                need_rootfs(person.paths, person.environ)
            else:
                loop.run(rootfs.remove() if action == "remove" else rootfs.prepare())
    finally:
        store.chmod(0o700)


# --- files that are given -----------------------------------------------------------------------


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("checksum", "right"),
    [("{}  alpine.tar.gz\n", True), ("{}", True), ("upper", True), ("", False), ("\xff", False),
     ("deadbeef", False)],
)  # fmt: skip
def test_a_checksum_beside_a_file_has_to_be_right(
    person: Person, tmp_path: Path, checksum: str, right: bool
) -> None:

    file = tmp_path / "alpine.tar.gz"
    file.write_bytes(b"content")
    found = sha256_of(file)
    text = found.upper() if checksum == "upper" else checksum.format(found)
    (tmp_path / "alpine.tar.gz.sha256").write_text(text, encoding="latin-1")
    if right:
        check_tarball(file)
    else:
        with pytest.raises(RootfsError, match="checksum"):
            check_tarball(file)


@pytest.mark.ordinary
@pytest.mark.parametrize("kind", ["folder", "closed", "behind-a-closed-folder", "pipe"])
def test_an_unreadable_file_is_reported(person: Person, tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder/alpine.tar.gz"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind != "folder":
        file.touch()
    if kind == "closed":
        file.chmod(0)
    if kind == "behind-a-closed-folder":
        file.parent.chmod(0)
    given = file.parent if kind == "folder" else file
    try:
        with pytest.raises(RootfsError) as caught:
            loop.run(Rootfs(person.paths, person.environ).prepare(tarball=given, tier=0))
    finally:
        file.parent.chmod(0o700)
    if os.getuid() != 0 or kind in ("folder", "pipe"):
        assert "alpine-minirootfs" in caught.value.remedy
