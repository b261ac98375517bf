# SPDX-License-Identifier: GPL-3.0-or-later
"""The strongest attacks of rows 1 to 5, in the Alpine root file system, whose mounts differ."""

from __future__ import annotations

import ast
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.escape.attack import Listener, attempt, look, python, refusal, refusals
from support.person import Person
from support.rootfs import VERSION, Entry, mirror, prepare, system

from ollmsandbox.sandbox.rootfs.store import Installed


def refused(person: Person, alpine: Installed, attacks: Sequence[str]) -> dict[str, str]:
    return refusals(person, {attack: attack for attack in attacks}, rootfs=alpine)


# --- 1: writing outside ------------------------------------------------------------------------

ROUTES = (
    "{place}",
    "/proc/self/root{place}",
    "/proc/self/cwd/../..{place}",
    "/proc/1/root{place}",
    "/proc/$$/root{place}",
    "/workspace/link{place}",
    "/playground/../../..{place}",
    "/oldroot{place}",
    "/newroot{place}",
)


def test_writing_to_the_home_folder_or_the_system_by_any_route(
    person: Person, alpine: Installed
) -> None:
    target = person.home / "outside"
    target.mkdir()
    (target / "file").write_text("untouched")
    (person.project / "link").symlink_to("/")
    before = look(target)
    places = (f"{target}/file", f"{target}/new", f"{alpine.folder}/etc/passwd", "/etc/passwd")
    ways = [route.format(place=place) for route in ROUTES for place in places]
    attack = "; ".join(f'( echo evil >"{way}" ) && echo "succeeded: {way}"' for way in ways)
    result = person.run(attack, rootfs=alpine)
    assert result.stdout.text == ""
    assert result.stderr.text.count("\n") == len(ways)
    assert look(target) == before
    assert "evil" not in Path(f"{alpine.folder}/etc/passwd").read_text()


def test_only_the_project_the_playground_caches_and_scratch_are_on_writable_mounts(
    person: Person, alpine: Installed
) -> None:
    found = person.run("cat /proc/self/mountinfo", rootfs=alpine).stdout.text
    writable = set()
    for line in found.splitlines():
        fields = line.split()
        if "rw" in fields[5].split(","):
            writable.add(fields[4])
    devices = {path for path in writable if path.startswith("/dev/")}
    kernel = {path for path in writable if path.startswith("/proc")}
    expected = {"/workspace", "/playground", "/tmp", "/var/tmp", "/run", "/run/caches"}
    assert writable - devices - kernel == expected


def test_allowed_operations_succeed(person: Person, alpine: Installed) -> None:
    found = refused(person, alpine, ("open('/workspace/file', 'w')", "os.mkdir('/tmp/folder')"))
    assert set(found.values()) == {""}


MOUNTING = (
    "call('mount', b'none', b'/', None, 0x20 | 0x1000, None)",
    "call('mount', b'/workspace', b'/etc', None, 0x1000, None)",
    "call('umount2', b'/workspace', 2)",
    "call('open_tree', -100, b'/', 1)",
    "os.chroot('/workspace')",
    "os.mknod('/workspace/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))",
    "open('/proc/sys/kernel/core_pattern', 'w').write('|/workspace/evil')",
    "os.link('/etc/passwd', '/workspace/passwd')",
    "os.rename('/workspace', '/elsewhere')",
    "os.open('/dev/new', os.O_CREAT | os.O_WRONLY)",
)


def test_mounting_or_making_it_another_way(person: Person, alpine: Installed) -> None:
    assert all(refused(person, alpine, MOUNTING).values())


# --- 2: reading secrets ------------------------------------------------------------------------


def test_nothing_of_the_home_folder_and_nothing_of_ours_is_there(
    person: Person, alpine: Installed
) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh/id").write_text("the secret")
    person.environ |= {"API_TOKEN": "the secret", "AWS_SECRET_ACCESS_KEY": "the secret"}
    person.run("touch something", rootfs=alpine)
    assert person.paths.database.exists()
    paths = [person.home / ".ssh/id", person.paths.database, person.paths.cache, "/etc/shadow"]
    words = " ".join(str(path) for path in paths)
    search = (
        f"cat {words}; cat /proc/*/environ; ls -R /home /root /srv /mnt; "
        "grep -r 'the [s]ecret' /home /root /etc /run /tmp /proc/self/environ"
    )
    result = person.run(search, rootfs=alpine, network=True)
    assert "the secret" not in result.stdout.text
    assert "SQLite format" not in result.stdout.text
    assert str(person.home) not in result.stdout.text


def test_a_link_in_the_project_leads_nowhere(person: Person, alpine: Installed) -> None:
    secret = person.home / "secret"
    secret.write_text("the secret")
    (person.project / "way").symlink_to(secret)
    (person.playground).mkdir(parents=True)
    (person.playground / "way").symlink_to(secret)
    result = person.run("cat way /playground/way", rootfs=alpine)
    assert result.exit_code != 0
    assert "the secret" not in result.stdout.text


# --- 3: reaching out ---------------------------------------------------------------------------


def test_tcp_and_udp(person: Person, alpine: Installed) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with Listener(socket.AF_INET, kind, ("127.0.0.1", 0)) as listener:
            code = f"""
            s = socket.socket(socket.AF_INET, {int(kind)})
            s.connect({listener.address!r}); s.send(b'x')
            """
            refusal(person, attempt(code), rootfs=alpine)
            assert not listener.reached()
            assert not refusal(person, attempt(code), rootfs=alpine, network=True)
            assert listener.reached()


def test_an_abstract_unix_socket(person: Person, alpine: Installed) -> None:
    name = f"\0ollmsandbox-{os.urandom(6).hex()}"
    with Listener(socket.AF_UNIX, socket.SOCK_STREAM, name) as listener:
        code = attempt(f"socket.socket(socket.AF_UNIX).connect({name!r})")
        for network in (False, True):
            assert refusal(person, code, rootfs=alpine, network=network)
            assert not listener.reached()


@pytest.mark.parametrize("where", ["project", "playground"])
def test_a_unix_socket_in_what_can_be_written(
    person: Person, alpine: Installed, where: str
) -> None:
    shown = "/workspace" if where == "project" else "/playground"
    # A socket's path may have 107 characters, so it lies elsewhere.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as short:
        os.mkdir(f"{short}/deep")
        if where == "playground":
            person.paths.data.mkdir(parents=True)
            person.playground.symlink_to(short)
        project = Path(short) if where == "project" else person.project
        with Listener(socket.AF_UNIX, socket.SOCK_STREAM, f"{short}/deep/listens") as listener:
            code = f"socket.socket(socket.AF_UNIX).connect('{shown}/deep/listens')"
            assert refusal(person, attempt(code), rootfs=alpine, project=project)
            assert not listener.reached()


def test_sockets_of_the_machine_are_not_there(person: Person, alpine: Installed) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/bus"
        with Listener(socket.AF_UNIX, socket.SOCK_STREAM, path) as listener:
            person.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={path}"
            code = f"socket.socket(socket.AF_UNIX).connect({path!r})"
            assert refusal(person, attempt(code), rootfs=alpine) == "ENOENT"
            assert not listener.reached()
            assert person.run("echo $DBUS_SESSION_BUS_ADDRESS", rootfs=alpine).stdout.text == "\n"


# --- 4: touching other processes ---------------------------------------------------------------


@pytest.fixture
def bystander() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


TOUCHING = (
    "os.kill({pid}, 9)",
    "call('ptrace', 16, {pid}, 0, 0)",
    "open('/proc/{pid}/mem', 'r+b')",
    "call('pidfd_open', {pid}, 0)",
    "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "call('keyctl', 0, -3, 0)",
    "fcntl.ioctl(0, 0x5412, b'x')",
    "call('ioctl', 0, 0x5412 | 1 << 40, b'x')",
)


def test_touching_a_process_outside(person: Person, alpine: Installed, bystander: int) -> None:
    attacks = [attack.format(pid=bystander) for attack in TOUCHING]
    assert all(refused(person, alpine, attacks).values())


# --- 5: getting privileges ---------------------------------------------------------------------


def test_no_capability_can_be_gained(person: Person, alpine: Installed) -> None:
    found = person.run("cat /proc/self/status", rootfs=alpine).stdout.text
    status = dict(line.split(":\t", 1) for line in found.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "0000000000000000"
    }


CALLS = (
    "call(272 if os.uname().machine == 'x86_64' else 97, 0x10000000)",
    "call('io_uring_setup', 1, 0)",
    "call('add_key', b'user', b'a', b'b', 1, -3)",
    "os.setuid(1 if os.getuid() != 1 else 2)",
    "os.chown('/workspace', 1, 1)",
    "call('mount_setattr', -100, b'/', 0, 0, 0)",
    "call('move_mount', 3, b'', 4, b'', 0)",
)


def test_a_call_that_would_lead_further(person: Person, alpine: Installed) -> None:
    assert all(refused(person, alpine, CALLS).values())


def test_no_program_of_the_system_is_setuid(alpine: Installed) -> None:
    found = {
        name: os.lstat(f"{folder}/{name}").st_mode & (stat.S_ISUID | stat.S_ISGID)
        for folder, _folders, files in os.walk(alpine.folder)
        for name in files
    }
    # It is setuid in the archive.
    assert "bbsuid" in found
    assert not any(found.values())


# --- while packages are installed --------------------------------------------------------------

_APK = """#!/bin/sh
if [ "$2" = --help ]; then exit; fi
wget -q -O /tmp/python "$(head -n 1 /etc/apk/repositories)/python3.tar.gz"
tar -xzf /tmp/python -C / || exit
"""

_ATTACK = """
answers = {{}}
for name, attack in {attacks!r}.items():
    try:
        exec(attack)
        answers[name] = 'succeeded'
    except OSError as error:
        answers[name] = errno.errorcode.get(error.errno, 'refused')
seen = [n for n in os.listdir('/proc') if n.isdecimal()]
said = []
for number in seen:
    try: said.append(open(f'/proc/{{number}}/environ', 'rb').read())
    except OSError: pass
mounted = open('/proc/self/mountinfo').read().splitlines()
open('/answers', 'w').write(repr((answers, seen, said, mounted)))
"""


def test_the_script_of_a_package_reaches_the_network_and_nothing_else(
    person: Person, bystander: int
) -> None:
    """The script is hostile, and may write to the system being prepared."""
    (person.home / "secret").write_text("the secret")
    person.environ["API_TOKEN"] = "the secret"
    name = f"\0ollmsandbox-{os.urandom(6).hex()}"
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        Listener(socket.AF_UNIX, socket.SOCK_STREAM, name) as abstract,
        Listener(socket.AF_UNIX, socket.SOCK_DGRAM, f"{name}-datagrams") as datagrams,
        Listener(socket.AF_UNIX, socket.SOCK_STREAM, f"{folder}/listens") as listens,
        mirror() as served,
    ):
        attacks = {
            "control": "open('/etc/written', 'w')",
            "abstract": f"socket.socket(socket.AF_UNIX).connect({name!r})",
            "datagram": f"socket.socketpair(1, socket.SOCK_DGRAM)[0]"
            f".sendto(b'x', {name + '-datagrams'!r})",
            "pathname": f"socket.socket(socket.AF_UNIX).connect('{folder}/listens')",
            "home": f"open('{person.home}/secret')",
            "store": f"open('{person.paths.rootfs}/current')",
            "root": f"open('/proc/1/root{person.home}/secret')",
            "device": "os.mknod('/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))",
            "pattern": "open('/proc/sys/kernel/core_pattern', 'w').write('x')",
            **{f"touching {n}": a.format(pid=bystander) for n, a in enumerate(TOUCHING)},
            **{f"call {n}": a for n, a in enumerate(CALLS) if "/workspace" not in a},
            **{f"mounting {n}": a for n, a in enumerate(MOUNTING) if "'/workspace" not in a},
        }
        apk = _APK + python(_ATTACK.format(attacks=attacks))
        served.has(VERSION, system(VERSION, Entry("./sbin/apk", apk.encode(), 0o755)))
        served.has_packages(VERSION)
        made = prepare(person, served).installed
        text = Path(made.folder, "answers").read_text()
        answers, seen, said, mounted = ast.literal_eval(text)
        assert not any(one.reached() for one in (abstract, datagrams, listens))
    assert [name for name, answer in answers.items() if answer == "succeeded"] == ["control"]
    assert len(answers) > 20
    assert str(bystander) not in seen
    assert said
    assert b"the secret" not in b"".join(said)
    places = [line.split() for line in mounted]
    writable = {place[4] for place in places if "rw" in place[5].split(",")}
    assert {w for w in writable if not w.startswith(("/dev/", "/proc"))} == {
        *("/", "/tmp", "/var/tmp", "/run"),
    }
