# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to reach other programs through Unix sockets: the session bus, systemd, docker,
ssh-agent and X11 would run commands."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
    with _with_a_short_name() as made:
        yield made


@pytest.fixture(scope="module")
def shared_person() -> Iterator[Person]:
    with _with_a_short_name() as made:
        yield made


@contextmanager
def _with_a_short_name() -> Iterator[Person]:
    # A socket's name holds 107 bytes, so the home folder's must be short.
    folder = tempfile.mkdtemp(prefix="p")
    yield make_person(Path(folder))
    shutil.rmtree(folder)


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


@dataclass(frozen=True)
class Reached:
    """The result of each attack on a server of its own, all made in one sandbox."""

    refusals: dict[str, str]
    reached: set[str]
    with_network: dict[str, str]
    reached_with_network: set[str]
    work_outside: dict[str, bool]
    reached_from_outside: set[str]


def reach_each(
    person: Person,
    servers: Mapping[str, Listener],
    inside: Mapping[str, str],
    outside: Mapping[str, str] | None = None,
) -> Reached:
    def reached() -> set[str]:
        return {name for name, server in servers.items() if server.reached()}

    why, first = refusals(person, inside), reached()
    with_network, second = refusals(person, inside, network=True), reached()
    work = work_outside(person, outside or inside)
    return Reached(why, first, with_network, second, work, reached())


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


@pytest.fixture
def unlinked() -> Iterator[list[Path]]:
    """Names to be removed afterwards."""
    names: list[Path] = []
    yield names
    for name in names:
        name.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def removed_last() -> Iterator[list[Path]]:
    """Names to be removed after all tests: sandboxes that have seen a socket hide its name."""
    names: list[Path] = []
    yield names
    for name in names:
        name.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def in_places(shared_person: Person, removed_last: list[Path]) -> Iterator[Reached]:
    with ExitStack() as servers:
        listening, inside, outside = {}, {}, {}
        for number, (kind, way, place) in enumerate(dict.fromkeys(COMBINED)):
            name = f"{kind} {way} {place}"
            path = place_for(place, shared_person, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            removed_last.append(path)
            server = Listener(socket.AF_UNIX, KINDS[kind], str(path))
            listening[name] = servers.enter_context(server)
            in_playground = shared_person.home / "playground" / path.name
            seen = in_playground if place == "playground" else path
            inside[name] = sending(str(seen), kind, way)
            outside[name] = sending(str(path), kind, way)
        yield reach_each(shared_person, listening, inside, outside)


@pytest.mark.parametrize(("kind", "way", "place"), dict.fromkeys(COMBINED))
def test_a_unix_socket(in_places: Reached, kind: str, way: str, place: str) -> None:
    name = f"{kind} {way} {place}"
    assert in_places.refusals[name]
    assert name not in in_places.reached
    assert in_places.work_outside[name]
    assert name in in_places.reached_from_outside


@pytest.mark.parametrize(("kind", "way", "place"), dict.fromkeys(COMBINED))
def test_a_unix_socket_with_the_network_granted(
    in_places: Reached, kind: str, way: str, place: str
) -> None:
    name = f"{kind} {way} {place}"
    assert in_places.with_network[name] == "EAFNOSUPPORT"
    assert name not in in_places.reached_with_network


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


@pytest.fixture(scope="module")
def without_a_name(shared_person: Person) -> Iterator[Reached]:
    with ExitStack() as servers:
        listening, attacks = {}, {}
        for name, bind in BINDS.items():
            for kind, way in SHORT:
                folder = shared_person.home / f"{name} {kind}"
                folder.mkdir()
                listening[folder.name] = servers.enter_context(bind(folder, kind))
                attacks[folder.name] = sending(str(folder / "s"), kind, way)
        yield reach_each(shared_person, listening, attacks)


@pytest.mark.parametrize("bind", BINDS)
@pytest.mark.parametrize(("kind", "way"), SHORT)
def test_a_unix_socket_in_the_home_folder_that_the_kernel_does_not_list(
    without_a_name: Reached, kind: str, way: str, bind: str
) -> None:
    name = f"{bind} {kind}"
    assert without_a_name.refusals[name] == "ECONNREFUSED"
    assert name not in without_a_name.reached
    assert without_a_name.work_outside[name]
    assert name in without_a_name.reached_from_outside


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


ABSTRACT = [way for way in WAYS if way[1] != "connect to the open name"]


@pytest.fixture(scope="module")
def abstract(shared_person: Person) -> Iterator[Reached]:
    with ExitStack() as servers:
        listening, attacks = {}, {}
        for number, (kind, way) in enumerate(ABSTRACT):
            address, name = f"\0evil-{os.getpid()}-{number}", f"{kind} {way}"
            server = Listener(socket.AF_UNIX, KINDS[kind], address)
            listening[name] = servers.enter_context(server)
            attacks[name] = sending(address, kind, way)
        yield reach_each(shared_person, listening, attacks)


@pytest.mark.parametrize("network", [False, True], ids=["no network", "network"])
@pytest.mark.parametrize(("kind", "way"), ABSTRACT)
def test_an_abstract_unix_socket(abstract: Reached, kind: str, way: str, network: bool) -> None:
    name = f"{kind} {way}"
    assert (abstract.with_network if network else abstract.refusals)[name]
    assert name not in (abstract.reached_with_network if network else abstract.reached)
    assert abstract.work_outside[name]
    assert name in abstract.reached_from_outside


@pytest.mark.parametrize("kind", KINDS)
def test_the_session_bus(person: Person, kind: str) -> None:
    # Wherever it is said to be: the variable does not get inside, nor does the socket.
    runtime = person.home.parent / "run"
    runtime.mkdir(mode=0o700)
    person.environ["XDG_RUNTIME_DIR"] = str(runtime)
    person.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={runtime}/bus"
    # Whether systemd answers there is found out once, from outside.
    assert person.run("true").exit_code == 0
    with Listener(socket.AF_UNIX, KINDS[kind], f"{runtime}/bus") as server:
        attack = send_to(f"{runtime}/bus", kind, "connect")
        assert refusal(person, attack) == "ENOENT"
        assert not server.reached()
        assert works_outside(person, attack)
    assert person.run("echo $DBUS_SESSION_BUS_ADDRESS$XDG_RUNTIME_DIR").stdout.text == "\n"


if IS_ROOT:

    @pytest.mark.parametrize("folder", ["/run", "/var/run"])
    def test_the_docker_socket_as_root(person: Person, unlinked: list[Path], folder: str) -> None:
        path = Path(folder, f"docker{os.getpid()}.sock")
        unlinked.append(path)
        with Listener(socket.AF_UNIX, socket.SOCK_STREAM, str(path)) as server:
            attack = send_to(str(path), "stream", "connect")
            assert refusal(person, attack) == "ENOENT"
            assert not server.reached()
            assert works_outside(person, attack)


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
