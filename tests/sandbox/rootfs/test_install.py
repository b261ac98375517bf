# SPDX-License-Identifier: GPL-3.0-or-later
"""Installing a root file system: once, complete or not at all, and beside the one in use."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.person import ROOT, Person
from support.rootfs import (
    PYTHON,
    VERSION,
    Entry,
    Mirror,
    folder,
    install,
    prepare,
    quick_mirror,
    system,
    tarball,
)
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.errors import RootfsError
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.rootfs.install import InstallProgress, InstallResult, Step
from ollmsandbox.sandbox.rootfs.mirror import UnreachableError
from ollmsandbox.sandbox.rootfs.packages import TIERS, programs_in
from ollmsandbox.sandbox.rootfs.rootfs import Rootfs
from ollmsandbox.sandbox.rootfs.settings import RootfsSettings, save_rootfs_settings
from ollmsandbox.sandbox.rootfs.store import (
    Installed,
    RootfsStore,
    find_rootfs,
    is_rootfs_ready,
    need_rootfs,
)


@pytest.fixture
def served() -> Iterator[Mirror]:
    with quick_mirror(2, "community") as running:
        yield running


def names(person: Person) -> list[str]:
    return sorted(os.listdir(person.paths.rootfs))


def test_an_installed_system_is_complete(alpine: Installed) -> None:
    whole = Path(alpine.folder)
    assert whole.name == f"alpine-{VERSION}"
    assert (whole / ".alpine-version").read_text() == f"{VERSION}\n"
    assert is_rootfs_ready(whole, VERSION, 1)
    assert not is_rootfs_ready(whole, "3.99.2")
    assert not is_rootfs_ready(whole, VERSION, 2)
    for name in {*TIERS[1].packages} - {"bash", "python3"}:
        assert (whole / f"usr/share/{name}").exists()
    assert sorted(os.listdir(whole.parent)) == [".rootfs.lock", f"alpine-{VERSION}", "current"]
    offered = programs_in(alpine)
    assert {"wget (busybox)", "python3 9.8.7"} <= set(offered)
    assert not any(one.startswith("git") for one in offered)


@pytest.mark.ordinary
def test_an_empty_folder_is_no_system(tmp_path: Path) -> None:
    assert not is_rootfs_ready(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").touch()
    assert not is_rootfs_ready(tmp_path)
    (tmp_path / ".alpine-version").write_text("3.99.1\n")
    assert is_rootfs_ready(tmp_path)
    assert not is_rootfs_ready(tmp_path, tier=1)


@pytest.mark.ordinary
def test_the_steps_are_reported_in_order(person: Person, served: Mirror) -> None:
    told: list[InstallProgress] = []
    assert prepare(person, served, progress=told.append).is_new
    steps = list(dict.fromkeys(progress.step for progress in told))
    between = [Step.UNPACK, Step.PACKAGES, Step.FINISH]
    assert steps == [Step.LOOK, Step.FETCH, *between, Step.DONE]
    assert any(progress.text.startswith("Installing ") for progress in told)


@pytest.mark.ordinary
def test_a_second_time_nothing_is_fetched(person: Person, served: Mirror) -> None:
    # With the settings of the user.
    save_rootfs_settings(person.paths.config, replace(served.settings, tier=0))
    person._copy_probe()
    first = loop.run(Rootfs(person.paths, person.environ).prepare())
    assert (first.installed.version, first.installed.tier) == (VERSION, 0)
    assert RootfsStore(person.paths.rootfs).current() == first.installed
    asked = len(served.asked)
    second = prepare(person, served, tier=0)
    assert second == replace(first, is_new=False)
    assert [path for path, _ in served.asked[asked:] if "minirootfs" in path] == []


def test_a_higher_tier_is_built_and_a_lower_one_counts_as_installed(
    person: Person, served: Mirror
) -> None:
    assert prepare(person, served, tier=0).installed.tier == 0
    assert prepare(person, served, tier=2).is_new
    assert not prepare(person, served, tier=1).is_new
    found = need_rootfs(person.paths, person.environ)
    assert found.tier == 2
    assert len([name for name in names(person) if name.startswith("alpine-")]) == 1
    assert Rootfs(person.paths, person.environ, served.settings).status().files > 20


def test_packages_come_from_the_mirror_and_a_missing_one_is_reported(
    person: Person, served: Mirror
) -> None:
    del served.files["/v3.99/community/grep.tar.gz"]
    with pytest.raises(RootfsError, match=r"grep \(no such package\)"):
        prepare(person, served)
    assert find_rootfs(person.paths, person.environ) is None
    assert [name for name in names(person) if name.startswith((".new", "alpine"))] == []


@pytest.mark.ordinary
def test_a_system_without_python_is_not_put_into_place(person: Person, served: Mirror) -> None:
    served.files["/v3.99/community/python3.tar.gz"] = tarball([folder("./usr")])
    with pytest.raises(RootfsError, match="incomplete"):
        prepare(person, served)
    assert find_rootfs(person.paths, person.environ) is None


def test_a_package_cannot_write_outside_the_system(person: Person, served: Mirror) -> None:
    """It cannot write where the builder itself writes later, either."""
    outside = person.home / "outside"
    outside.write_text("untouched")
    plant = f"ln -sf {outside} /.alpine-version"
    script = f"#!/bin/sh\n{plant}\necho evil >{outside}\necho evil >/proc/self/root{outside}\n"
    apk = "#!/bin/sh\n/evil\n[ $2 = --help ] && exit\ncp /evil /usr/bin/python3\n"
    evil = [Entry("./evil", script.encode(), 0o755), Entry("./sbin/apk", apk.encode(), 0o755)]
    served.has(VERSION, system(VERSION, *evil))
    assert prepare(person, served).is_new
    assert outside.read_text() == "untouched"
    assert need_rootfs(person.paths, person.environ).version == VERSION


@pytest.mark.ordinary
def test_too_little_disk_space_is_reported_before_the_download(
    person: Person, served: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = [replace(tier, size=1 << 60) for tier in TIERS]
    monkeypatch.setattr("ollmsandbox.sandbox.rootfs.rootfs.TIERS", huge)
    with pytest.raises(RootfsError, match="Not enough disk space"):
        prepare(person, served)
    assert [path for path, _ in served.asked if "minirootfs" in path] == []


def test_without_a_network_what_is_there_stays_in_use(person: Person, served: Mirror) -> None:
    prepare(person, served, tier=0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = RootfsSettings(mirror=f"http://127.0.0.1:{taken.getsockname()[1]}", tier=0)
        prepared = prepare(person, served, settings=away)
        assert not prepared.is_new
        assert "newer version may exist" in prepared.notices[0]
        with pytest.raises(UnreachableError):
            prepare(person, served, settings=replace(away, tier=1))


def test_a_system_is_installed_from_a_file_without_a_network(
    person: Person, tmp_path: Path
) -> None:
    file = tmp_path / "alpine.tar.gz"
    file.write_bytes(system("3.98.4", PYTHON, Entry("./lib/apk/db/installed", _installed(1))))
    settings = RootfsSettings(mirror="http://127.0.0.1:1", tier=1)
    rootfs = Rootfs(person.paths, person.environ, settings)
    prepared = loop.run(rootfs.prepare(tarball=file))
    assert (prepared.installed.version, prepared.installed.tier) == ("3.98.4", 1)
    assert file.exists()
    assert "python3 3.0.1" in rootfs.programs()


def _installed(tier: int) -> bytes:
    lines = "P:{0}\nV:3.0.1-r2\nF:usr/bin\nR:{0}\n\n"
    return "".join(map(lines.format, TIERS[tier].packages)).encode()


@pytest.mark.ordinary
@pytest.mark.parametrize("wrong", ["checksum", "version", "missing"])
def test_a_file_that_cannot_be_right_is_refused(person: Person, tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "alpine.tar.gz"
    if wrong != "missing":
        file.write_bytes(system("../../x" if wrong == "version" else VERSION))
    if wrong == "checksum":
        (tmp_path / "alpine.tar.gz.sha256").write_text("0" * 64 + "  alpine.tar.gz\n")
    with pytest.raises(RootfsError, match=r"checksum|not an Alpine|does not exist"):
        loop.run(Rootfs(person.paths, person.environ).prepare(tarball=file, tier=0))
    assert find_rootfs(person.paths, person.environ) is None


@pytest.mark.ordinary
def test_two_builders_at_once_build_it_once(person: Person, served: Mirror) -> None:
    waits = threading.Event()

    def ask(path: str) -> None:
        if path.endswith(".tar.gz"):
            # Until the other one has come and found the lock taken.
            assert waits.wait(PATIENCE)

    served.when = ask
    told: list[Step] = []

    def noticed(progress: InstallProgress) -> None:
        told.append(progress.step)
        if progress.step is Step.WAIT:
            waits.set()

    async def both() -> list[InstallResult]:
        makers = [Rootfs(person.paths, person.environ, served.settings) for _ in range(2)]
        return await asyncio.gather(*(maker.prepare(noticed, tier=0) for maker in makers))

    person._copy_probe()
    prepared = loop.run(both())
    assert sorted(one.is_new for one in prepared) == [False, True]
    assert len([path for path, _ in served.asked if path.endswith(".tar.gz")]) == 1
    assert Step.WAIT in told


def test_cancelled_it_closes_the_connection_to_the_mirror_at_once(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.rootfs.mirror._PATIENCE", 2 * PATIENCE)

    async def cancel() -> bytes:
        heard = asyncio.Event()
        rest = asyncio.get_running_loop().create_future()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            heard.set()
            rest.set_result(await reader.read())
            writer.close()

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = RootfsSettings(mirror=f"http://127.0.0.1:{port}")
        task = asyncio.ensure_future(Rootfs(person.paths, person.environ, settings).prepare())
        await asyncio.wait_for(heard.wait(), PATIENCE)
        task.cancel()
        return bytes(await asyncio.wait_for(rest, PATIENCE))

    person._copy_probe()
    assert loop.run(cancel()) == b""


_BUILDER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox import loop
from ollmsandbox.paths import Paths
from ollmsandbox.sandbox.rootfs import store
from ollmsandbox.sandbox.rootfs.rootfs import Rootfs
from ollmsandbox.sandbox.rootfs.install import Step
from ollmsandbox.sandbox.rootfs.packages import programs_in
from ollmsandbox.sandbox.rootfs.settings import RootfsSettings

step, number = sys.argv[3], int(sys.argv[4])
seen = 0

def die(*_given):
    os.kill(os.getpid(), signal.SIGKILL)

def noticed(progress):
    global seen
    if progress.step.name == step:
        seen += 1
        if seen == number:
            die()

if step == "use":
    store.RootfsStore.use = die
if step == "sweep":
    store.RootfsStore.put_in_place = die
settings = RootfsSettings(mirror=sys.argv[2], tier=1)
loop.run(Rootfs(Paths.from_environ(os.environ), os.environ, settings).prepare(noticed))
"""


@pytest.mark.ordinary
def test_a_builder_that_is_killed_at_any_step_leaves_nothing_half_done(
    person: Person, served: Mirror
) -> None:
    person._copy_probe()
    path = next(path for path in served.files if path.endswith(".tar.gz") and "mini" in path)
    steps = {"LOOK": 1, "FETCH": 4, "UNPACK": 2, "PACKAGES": 2, "FINISH": 1, "sweep": 0}
    for step, number in steps.items():
        _kill_at(person, served, step, number)
        assert find_rootfs(person.paths, person.environ) is None
    # What was fetched before it was killed is not fetched again.
    assert served.fetched(path)[0] == ""
    assert all(begin.startswith("bytes=") for begin in served.fetched(path)[1:])
    # It is in place by then, and only its name is not noted.
    _kill_at(person, served, "use", 0)
    assert need_rootfs(person.paths, person.environ).version == VERSION
    assert not prepare(person, served).is_new
    left = [name for name in names(person) if name.startswith(".") and name != ".rootfs.lock"]
    assert left == []


def _kill_at(person: Person, served: Mirror, step: str, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _BUILDER, str(ROOT), served.address, step, str(number)],
        env=person.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, (step, done.stderr)


def test_an_upgrade_leaves_running_commands_where_they_are(
    person: Person, served: Mirror, alpine: Installed
) -> None:
    old = install(person, alpine)
    served.has("3.99.2", system("3.99.2"))
    wait = "while [ ! -e /playground/go ]; do sleep 0.02; done"
    script = f"echo ready; {wait}; cat /etc/alpine-release"
    person.share_playground()

    async def upgrade() -> str:
        ready, main = asyncio.Event(), asyncio.get_running_loop()

        def noticed(_data: bytes) -> None:
            main.call_soon_threadsafe(ready.set)

        bubble = person.bubble(rootfs=old)
        running = asyncio.ensure_future(bubble.exec(script, sinks=Sinks(noticed)))
        await ready.wait()
        rootfs = Rootfs(person.paths, person.environ, served.settings)
        prepared = await rootfs.prepare(tier=0)
        assert prepared.installed.version == "3.99.2"
        status = await asyncio.to_thread(rootfs.status)
        assert [other.version for other in status.others] == [VERSION]
        (person.playground / "go").touch()
        return (await running).stdout.text

    assert loop.run(upgrade()) == f"ready\n{VERSION}\n"
    assert not os.path.exists(old.folder)
    new = need_rootfs(person.paths, person.environ)
    assert person.run("cat /etc/alpine-release", rootfs=new).stdout.text == "3.99.2\n"
    with pytest.raises(RootfsError, match="was just removed"):
        person.run("true", rootfs=old)


def test_a_system_is_not_removed_while_a_command_runs_in_it(
    person: Person, alpine: Installed
) -> None:
    used = install(person, alpine)
    rootfs = Rootfs(person.paths, person.environ)
    lock = used.hold()
    assert not loop.run(rootfs.remove())
    assert find_rootfs(person.paths, person.environ) == used
    used.release(lock)
    assert loop.run(rootfs.remove())
    assert find_rootfs(person.paths, person.environ) is None
    assert names(person) == [".rootfs.lock"]
    assert os.path.exists(f"{alpine.folder}/bin/sh")
