# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to reach other programs through Unix sockets: the session bus, systemd, docker,
ssh-agent and X11 would run commands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.escape.attack import (
    IS_ROOT,
    KINDS,
    Listener,
    attempt,
    attempts,
    dedented,
    python,
    reasons,
    refusal,
    refusals,
    run_while,
    work_outside,
    works_outside,
)
from support.person import ROOT, Person, make_person


@pytest.fixture
def person() -> Iterator[Person]:
    # A socket's name holds 107 bytes, so the home folder's must be short.
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        yield make_person(Path(folder))


SEND: dict[str, dict[str, str]] = {
    "stream": {
        "connect": "s.connect({address})",
        "connect to the open name": """
            fd = os.open({address}, os.O_PATH)
            s.connect(f'/proc/self/fd/{{fd}}')
            """,
    },
    "datagram": {
        "sendto": "s.sendto(b'evil', {address})",
        "connect": "s.connect({address}); s.send(b'evil')",
        "sendmsg": "s.sendmsg([b'evil'], [], 0, {address})",
        "sendmsg with a descriptor": """
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 0))]
            s.sendmsg([b'evil'], rights, 0, {address})
            """,
    },
    "packet": {"connect": "s.connect({address})"},
}
WAYS = [(kind, way) for kind, ways in SEND.items() for way in ways]


def sending(address: object, kind: str, way: str) -> str:
    create = f"s = socket.socket(socket.AF_UNIX, {int(KINDS[kind])})"
    send = SEND[kind][way].format(address=repr(address)).strip()
    return f"{create}\n{dedented(send)}"


def send_to(address: object, kind: str, way: str) -> str:
    return attempt(sending(address, kind, way))


@dataclass
class Attacks:
    """Attacks on a server each, which are made together in one sandbox."""

    person: Person
    servers: dict[str, Listener] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, server: Listener, inside: str, outside: str = "") -> None:
        self.servers[name] = server
        self.inside[name] = inside
        self.outside[name] = outside or inside

    def reached(self) -> list[str]:
        return [name for name, server in self.servers.items() if server.reached()]

    def assert_refused(self, expected: str = "") -> None:
        """Assert that all are refused, for this reason or any, and that they work outside."""
        for name, why in refusals(self.person, self.inside).items():
            assert why == expected or (why and not expected), name
        assert self.reached() == []
        with_network = refusals(self.person, self.inside, network=True)
        assert with_network == dict.fromkeys(self.inside, "EAFNOSUPPORT")
        assert self.reached() == []
        assert work_outside(self.person, self.outside) == dict.fromkeys(self.outside, True)
        assert self.reached() == list(self.servers)


@pytest.fixture
def attacks(person: Person) -> Iterator[Attacks]:
    made = Attacks(person)
    yield made
    for server in made.servers.values():
        server.socket.close()


# The rest of the ways is tried where a socket is most likely.
SHORT = [("stream", "connect"), ("datagram", "sendmsg")]


def place_for(name: str, person: Person, number: int = 0) -> Path:
    folder = {
        "home folder": person.home,
        "folder in the home folder": person.home / "a" / "b",
        "hidden folder": person.home / ".gnupg",
        "project": person.project,
        "folder in the project": person.project / "a" / "b",
        "playground": person.playground,
    }.get(name)
    return folder / f"s{number}" if folder else Path(name, f"s{os.getpid()}-{number}")


PLACES = ["home folder", "folder in the home folder", "hidden folder", "project"]
PLACES += ["folder in the project", "playground"]
PLACES += [f for f in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(f)]
PLACES += ["/run", "/var/lib", "/opt"] if IS_ROOT else []
COMBINED = [(*way, place) for way in SHORT for place in PLACES]
COMBINED += [(*way, place) for way in WAYS for place in ("home folder", "project")]


@pytest.fixture(scope="session")
def removed_last() -> Iterator[list[Path]]:
    """Names to be removed after all tests: sandboxes that have seen a socket hide its name."""
    names: list[Path] = []
    yield names
    for name in names:
        name.unlink(missing_ok=True)


def test_a_unix_socket(attacks: Attacks, person: Person, removed_last: list[Path]) -> None:
    for number, (kind, way, place) in enumerate(dict.fromkeys(COMBINED)):
        path = place_for(place, person, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        removed_last.append(path)
        seen = person.home / "playground" / path.name if place == "playground" else path
        attacks.add(
            f"{kind} {way} {place}",
            Listener(socket.AF_UNIX, KINDS[kind], str(path)),
            sending(str(seen), kind, way),
            sending(str(path), kind, way),
        )
    attacks.assert_refused()


# A mount namespace of its own stands for the machine, so that nothing else sees the mount.
MACHINE = """
import ast, os, socket, subprocess, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from support.escape.attack import Listener, refusal, works_outside
from support.person import Person
from ollmsandbox.sandbox.probe import probe

# What it can do is found out anew, however busy it is.
probe._TIMEOUT = 60
home = Path(sys.argv[2])
person = Person(home, home / "project", {**os.environ, "HOME": str(home)}, knows_machine=False)
attacks = ast.literal_eval(sys.argv[3])
for folder in {os.path.dirname(path) for path, kind, attack in attacks}:
    subprocess.run(["mount", "-t", "tmpfs", "disk", folder], check=True)
for path, kind, attack in attacks:
    with Listener(socket.AF_UNIX, kind, path) as server:
        inside = bool(refusal(person, attack)), server.reached()
        print(*inside, works_outside(person, attack), server.reached())
"""


@pytest.mark.parametrize("place", ["home folder", "project"])
def test_a_unix_socket_on_what_is_mounted_there(person: Person, place: str) -> None:
    # What is mounted below an overlay is bound back, and a bind does not stop a connection.
    folder = place_for(place, person).parent / "mounted"
    folder.mkdir()
    attacks = []
    for number, (kind, way) in enumerate(SHORT):
        path = f"{folder}/s{number}"
        attacks.append((path, int(KINDS[kind]), send_to(path, kind, way)))
    given = [f"{ROOT}:{ROOT}/tests:{ROOT}/tests/escape", str(person.home), repr(attacks)]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", MACHINE, *given],
        env=person.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert done.stdout == "True False True True\n" * len(SHORT)


def _renamed(folder: Path, kind: str) -> Listener:
    made = Listener(socket.AF_UNIX, KINDS[kind], str(folder / "t"))
    (folder / "t").rename(folder / "s")
    return made


def _hard_linked(folder: Path, kind: str) -> Listener:
    made = Listener(socket.AF_UNIX, KINDS[kind], str(folder / "t"))
    os.link(folder / "t", folder / "s")
    (folder / "t").unlink()
    return made


def _relative(folder: Path, kind: str) -> Listener:
    before = os.getcwd()
    os.chdir(folder)
    try:
        return Listener(socket.AF_UNIX, KINDS[kind], "s")
    finally:
        os.chdir(before)


def _in_a_renamed_folder(folder: Path, kind: str) -> Listener:
    (folder / "t").mkdir()
    made = Listener(socket.AF_UNIX, KINDS[kind], str(folder / "t" / "s"))
    (folder / "t" / "s").rename(folder / "s")
    (folder / "t").rmdir()
    return made


BINDS: dict[str, Callable[[Path, str], Listener]] = {
    "renamed": _renamed,
    "hard-linked": _hard_linked,
    "bound by a relative name": _relative,
    "in a renamed folder": _in_a_renamed_folder,
}


def test_a_unix_socket_in_the_home_folder_that_the_kernel_does_not_list(
    attacks: Attacks, person: Person
) -> None:
    for name, bind in BINDS.items():
        for kind, way in SHORT:
            folder = person.home / f"{name} {kind}"
            folder.mkdir()
            attacks.add(folder.name, bind(folder, kind), sending(str(folder / "s"), kind, way))
    attacks.assert_refused("ECONNREFUSED")


def test_unix_sockets_that_appear_in_the_home_folder_while_a_command_runs(person: Person) -> None:
    paths = {f"{kind} {way}": (kind, person.home / f"s{n}") for n, (kind, way) in enumerate(WAYS)}
    codes = {
        f"{kind} {way}": sending(str(paths[f"{kind} {way}"][1]), kind, way) for kind, way in WAYS
    }
    attack = attempts(codes, first="meanwhile_outside()")
    servers: dict[str, Listener] = {}

    def listen() -> None:
        for name, (kind, path) in paths.items():
            servers[name] = Listener(socket.AF_UNIX, KINDS[kind], str(path))

    result = run_while(person, attack, listen)
    with ExitStack() as listening:
        for server in servers.values():
            listening.enter_context(server)
        why = reasons(codes, result.stdout.text.removeprefix("ready\n"))
        assert why == dict.fromkeys(codes, "ECONNREFUSED")
        assert [name for name, server in servers.items() if server.reached()] == []
        assert work_outside(person, codes) == dict.fromkeys(codes, True)
        assert [name for name, server in servers.items() if not server.reached()] == []


def test_an_abstract_unix_socket(attacks: Attacks) -> None:
    for number, (kind, way) in enumerate(WAYS):
        if way != "connect to the open name":
            address = f"\0evil-{os.getpid()}-{number}"
            server = Listener(socket.AF_UNIX, KINDS[kind], address)
            attacks.add(f"{kind} {way}", server, sending(address, kind, way))
    attacks.assert_refused()


def test_the_session_bus(person: Person) -> None:
    # Wherever it is said to be: the variable does not get inside, nor does the socket.
    runtime = person.home.parent / "run"
    runtime.mkdir(mode=0o700)
    person.environ["XDG_RUNTIME_DIR"] = str(runtime)
    person.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={runtime}/bus"
    # Whether systemd answers there is found out once, from outside.
    assert person.run("echo $DBUS_SESSION_BUS_ADDRESS$XDG_RUNTIME_DIR").stdout.text == "\n"
    for kind in KINDS:
        with Listener(socket.AF_UNIX, KINDS[kind], f"{runtime}/bus") as server:
            attack = send_to(f"{runtime}/bus", kind, "connect")
            assert refusal(person, attack) == "ENOENT"
            assert not server.reached()
            assert works_outside(person, attack)
        (runtime / "bus").unlink()


if IS_ROOT:

    def test_the_docker_socket_as_root(person: Person) -> None:
        path = Path("/run", f"docker{os.getpid()}.sock")
        with Listener(socket.AF_UNIX, socket.SOCK_STREAM, str(path)) as server:
            try:
                for name in (path, f"/var{path}"):
                    attack = send_to(str(name), "stream", "connect")
                    assert refusal(person, attack) == "ENOENT"
                    assert not server.reached()
                    assert works_outside(person, attack)
                    assert server.reached()
            finally:
                path.unlink()


def test_unix_sockets_between_the_commands_own_programs(person: Person) -> None:
    program = """
        from multiprocessing import Manager, Pool
        with Manager() as manager, Pool(2) as pool:
            print(sum(manager.list(pool.map(abs, [-1, -2]))))
        for address in ('\\\\0own', '/tmp/own', 'own'):
            server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            server.bind(address.encode().decode('unicode_escape'))
            server.listen()
            client.connect(server.getsockname())
            print('connected')
        """
    assert person.run(python(program)).stdout.text == "3\n" + "connected\n" * 3
