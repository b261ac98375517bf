# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to reach other machines and other programs."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attack import (
    IS_ROOT,
    Listener,
    attempt,
    python,
    refusal,
    run_while,
    works_outside,
)
from conftest import ROOT, Person, make_person

KINDS = {
    "stream": socket.SOCK_STREAM,
    "datagram": socket.SOCK_DGRAM,
    "packet": socket.SOCK_SEQPACKET,
}


@pytest.fixture
def person() -> Iterator[Person]:
    # A socket's name holds 107 bytes, so the home folder's must be short.
    folder = tempfile.mkdtemp(prefix="p")
    yield make_person(Path(folder))
    shutil.rmtree(folder)


# Addresses of the Internet; a server on the loopback stands for all others.


def _has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


LOOPBACK = [(socket.AF_INET, "127.0.0.1")]
if _has_ipv6():
    LOOPBACK.append((socket.AF_INET6, "::1"))


@pytest.fixture(params=LOOPBACK, ids=[host for _, host in LOOPBACK])
def host(request: pytest.FixtureRequest) -> tuple[int, str]:
    return (int(request.param[0]), str(request.param[1]))


TCP = {
    "python": attempt("socket.create_connection(({host!r}, {port}), 2).sendall(b'evil')"),
    "bash": "exec bash -c 'exec 2>&1; : > /dev/tcp/{host}/{port} && echo succeeded'",
    "fast open": attempt("""
        s = socket.socket({family})
        s.sendto(b'evil', socket.MSG_FASTOPEN, ({host!r}, {port}))
        """),
    "from a chosen port": attempt("""
        s = socket.socket({family})
        s.bind(({host!r}, 0))
        s.connect(({host!r}, {port}))
        """),
}


@pytest.mark.parametrize("how", TCP)
def test_tcp(person: Person, host: tuple[int, str], how: str) -> None:
    family, name = host
    with Listener(family, socket.SOCK_STREAM, (name, 0)) as server:
        # Not by format(): these are programs, full of braces.
        attack = TCP[how].replace("{host!r}", _quoted(name)).replace("{host}", name)
        attack = attack.replace("{port}", str(server.address[1])).replace("{family}", str(family))
        for profile in ("standard", "strict"):
            result = person.run(attack, profile=profile)
            assert result.exit_code == 1
            assert "refused" in result.stdout.text
        assert not server.reached()
        assert works_outside(person, attack)
        assert server.reached()
        # With the network granted the same works.
        assert person.run(attack, network=True).exit_code == 0
        assert server.reached()


def _quoted(name: str) -> str:
    # Quotes as they are after passing through the shell's.
    return f"'\"'\"'{name}'\"'\"'"


UDP = {
    "sendto": "s.sendto(b'evil', ({host!r}, {port}))",
    "connect and send": "s.connect(({host!r}, {port})); s.send(b'evil')",
    "sendmsg": "s.sendmsg([b'evil'], [], 0, ({host!r}, {port}))",
    "sendfile": """
        s.connect(({host!r}, {port}))
        open('data', 'w').write('evil')
        os.sendfile(s.fileno(), os.open('data', 0), 0, 4)
        """,
}


@pytest.mark.parametrize("how", UDP)
def test_udp(person: Person, host: tuple[int, str], how: str) -> None:
    family, name = host
    with Listener(family, socket.SOCK_DGRAM, (name, 0)) as server:
        send = UDP[how].format(host=name, port=server.address[1]).strip()
        attack = attempt(f"s = socket.socket({family}, socket.SOCK_DGRAM)\n{_dedented(send)}")
        # It may seem to work: the sandbox has a loopback of its own, where nobody listens.
        person.run(attack)
        assert not server.reached()
        assert works_outside(person, attack)
        assert server.reached()
        assert refusal(person, attack, network=True) == ""
        assert server.reached()


def _dedented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "224.0.0.251", "169.254.169.254"])
def test_addresses_beyond_the_loopback(person: Person, address: str) -> None:
    for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
        family = "AF_INET6" if ":" in address else "AF_INET"
        code = f"""
            s = socket.socket(socket.{family}, socket.{kind})
            s.settimeout(2)
            s.connect(({address!r}, 80))
            """
        assert refusal(person, attempt(code)) in ("ENETUNREACH", "EADDRNOTAVAIL")


@pytest.mark.parametrize("name", ["example.org", "localhost.localdomain.", "_gateway"])
def test_asking_for_a_name(person: Person, name: str) -> None:
    code = f"print(socket.getaddrinfo({name!r}, 80, proto=socket.IPPROTO_TCP))"
    result = person.run(attempt(code))
    addresses = result.stdout.text.replace("127.0.0.1", "").replace("::1", "")
    assert result.exit_code == 1 or "'', 80" in addresses


def test_a_name_server_on_the_loopback(person: Person) -> None:
    with Listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)) as server:
        query = (
            "bytes([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b'\\x04evil\\x00\\x00\\x01\\x00\\x01'"
        )
        attack = attempt(f"""
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.sendto({query}, {server.address})
            """)
        person.run(attack)
        assert not server.reached()
        assert works_outside(person, attack)
        assert server.reached()


@pytest.mark.parametrize("network", [False, True], ids=["no network", "network"])
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_raw_packets(person: Person, family: str, network: bool) -> None:
    protocol = "IPPROTO_ICMP" if family == "AF_INET" else "IPPROTO_ICMPV6"
    attack = attempt(f"socket.socket(socket.{family}, socket.SOCK_RAW, socket.{protocol})")
    assert refusal(person, attack, network=network) in ("EPERM", "EACCES")
    if IS_ROOT:
        assert works_outside(person, attack)


def test_a_ping_without_the_network(person: Person) -> None:
    attack = attempt("""
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
        s.connect(('192.0.2.1', 0))
        s.send(bytes([8, 0, 0, 0, 0, 0, 0, 0]))
        """)
    assert refusal(person, attack) in ("EACCES", "ENETUNREACH")


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_other_interfaces_are_not_there(person: Person, profile: str) -> None:
    result = person.run("tail -n +3 /proc/net/dev | cut -d: -f1", profile=profile)
    assert result.stdout.text.split() == ["lo"]


def test_sockets_of_other_programs_are_not_listed(person: Person) -> None:
    with Listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)) as server:
        port = f":{server.address[1]:04X} "
        assert port in person.run_outside("cat /proc/net/tcp").stdout
        assert port not in person.run("cat /proc/net/tcp").stdout.text


# Unix sockets of other programs. What can be reached there runs commands: session bus, systemd,
# docker, ssh-agent, X11.

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


def send_to(address: object, kind: str, way: str) -> str:
    create = f"s = socket.socket(socket.AF_UNIX, {int(KINDS[kind])})"
    send = SEND[kind][way].format(address=repr(address)).strip()
    return attempt(f"{create}\n{_dedented(send)}")


# The rest of the ways is tried where a socket is most likely.
SHORT = [("stream", "connect"), ("datagram", "sendmsg")]


def place_for(name: str, person: Person) -> Path:
    return {
        "home folder": person.home / "s",
        "folder in the home folder": person.home / "a" / "b" / "s",
        "hidden folder": person.home / ".gnupg" / "S.gpg-agent",
        "project": person.project / "s",
        "folder in the project": person.project / "a" / "b" / "s",
        "playground": person.playground / "s",
    }.get(name) or Path(name, f"s{os.getpid()}")


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


@pytest.mark.parametrize(("kind", "way", "place"), dict.fromkeys(COMBINED))
def test_a_unix_socket(
    person: Person, unlinked: list[Path], kind: str, way: str, place: str
) -> None:
    path = place_for(place, person)
    path.parent.mkdir(parents=True, exist_ok=True)
    unlinked.append(path)
    with Listener(socket.AF_UNIX, KINDS[kind], str(path)) as server:
        seen = person.home / "playground" / "s" if place == "playground" else path
        assert refusal(person, send_to(str(seen), kind, way))
        assert not server.reached()
        assert works_outside(person, send_to(str(path), kind, way))
        assert server.reached()


@pytest.mark.parametrize(("kind", "way"), SHORT)
@pytest.mark.parametrize("place", ["home folder", "project", "playground", "/tmp"])
def test_a_unix_socket_with_the_network_granted(
    person: Person, unlinked: list[Path], kind: str, way: str, place: str
) -> None:
    path = place_for(place, person)
    path.parent.mkdir(parents=True, exist_ok=True)
    unlinked.append(path)
    with Listener(socket.AF_UNIX, KINDS[kind], str(path)) as server:
        seen = person.home / "playground" / "s" if place == "playground" else path
        why = refusal(person, send_to(str(seen), kind, way), network=True)
        assert why == "EAFNOSUPPORT"
        assert not server.reached()


# A mount namespace of its own stands for the machine, so that nothing else sees the mount.
MACHINE = """
import os, socket, subprocess, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from attack import Listener, refusal, works_outside
from conftest import Person

home, path, kind, attack = Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
person = Person(home, home / "project", {**os.environ, "HOME": str(home)}, knows_machine=False)
subprocess.run(["mount", "-t", "tmpfs", "disk", path.parent], check=True)
with Listener(socket.AF_UNIX, kind, str(path)) as server:
    print(bool(refusal(person, attack)), server.reached())
    print(works_outside(person, attack), server.reached())
"""


@pytest.mark.parametrize(("kind", "way"), SHORT)
@pytest.mark.parametrize("place", ["home folder", "project"])
def test_a_unix_socket_on_what_is_mounted_there(
    person: Person, kind: str, way: str, place: str
) -> None:
    # What is mounted below an overlay is bound back, and a bind does not stop a connection.
    path = place_for(place, person).parent / "mounted" / "s"
    path.parent.mkdir()
    modules = f"{ROOT}:{ROOT}/tests:{ROOT}/tests/escape"
    attack = send_to(str(path), kind, way)
    given = [modules, str(person.home), str(path), str(int(KINDS[kind])), attack]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", MACHINE, *given],
        env=person.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True False\nTrue True\n", "")


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


@pytest.mark.parametrize("bind", BINDS)
@pytest.mark.parametrize(("kind", "way"), SHORT)
def test_a_unix_socket_in_the_home_folder_whose_name_the_kernel_does_not_tell(
    person: Person, kind: str, way: str, bind: str
) -> None:
    attack = send_to(str(person.home / "s"), kind, way)
    with BINDS[bind](person.home, kind) as server:
        assert refusal(person, attack) == "ECONNREFUSED"
        assert not server.reached()
        assert works_outside(person, attack)
        assert server.reached()


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_unix_socket_that_appears_in_the_home_folder_while_a_command_runs(
    person: Person, kind: str, way: str
) -> None:
    path = str(person.home / "s")
    send = _dedented(SEND[kind][way].format(address=repr(path)).strip())
    attack = attempt(
        f"meanwhile_outside()\ns = socket.socket(socket.AF_UNIX, {int(KINDS[kind])})\n{send}"
    )
    servers: list[Listener] = []
    result = run_while(
        person, attack, lambda: servers.append(Listener(socket.AF_UNIX, KINDS[kind], path))
    )
    with servers[0] as server:
        assert result.stdout.text == "ready\nrefused ECONNREFUSED\n"
        assert not server.reached()
        (person.home / "playground").mkdir()
        (person.home / "playground" / "go").touch()
        assert works_outside(person, attack)
        assert server.reached()


@pytest.mark.parametrize("network", [False, True], ids=["no network", "network"])
@pytest.mark.parametrize(("kind", "way"), [w for w in WAYS if w[1] != "connect to the open name"])
def test_an_abstract_unix_socket(person: Person, kind: str, way: str, network: bool) -> None:
    address = f"\0evil-{os.getpid()}"
    with Listener(socket.AF_UNIX, KINDS[kind], address) as server:
        attack = send_to(address, kind, way)
        assert refusal(person, attack, network=network)
        assert not server.reached()
        assert works_outside(person, attack)
        assert server.reached()


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


# With the network the sandbox shares names of abstract sockets with the machine, so there are no
# Unix sockets at all, besides pairs that cannot be sent elsewhere.


NO_UNIX = pytest.mark.parametrize("options", [{"network": True}, {"profile": "strict"}], ids=str)
# The kernel takes 32 bits of what a filter sees 64 of.
HIGH = (0, 1 << 32, 1 << 63, 0xFFFFFFFF << 32)


@NO_UNIX
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET", "SOCK_RAW"])
def test_a_unix_socket_is_not_made_at_all(
    person: Person, options: dict[str, object], kind: str
) -> None:
    attack = python(f"""
        for high in {HIGH}:
            for flags in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC):
                for bits in ((high, 0, 0), (0, high, 0), (0, 0, high), (high, high, high)):
                    family, kind, protocol = bits
                    try:
                        call('socket', 1 | family, int(socket.{kind}) | flags | kind, protocol)
                        print('succeeded')
                    except OSError as error:
                        print(errno.errorcode[error.errno])
        """)
    assert set(person.run(attack, **options).stdout.text.split()) == {"EAFNOSUPPORT"}
    assert set(person.run_outside(attack).stdout.split()) == {"succeeded"}


@NO_UNIX
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW"])
def test_a_pair_of_sockets_that_can_be_sent_elsewhere(
    person: Person, options: dict[str, object], kind: str
) -> None:
    attack = python(f"""
        pair = (ctypes.c_int * 2)()
        for high in {HIGH}:
            for flags in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC):
                try:
                    call('socketpair', 1 | high, int(socket.{kind}) | flags | high, high, pair)
                    print('succeeded')
                except OSError as error:
                    print(errno.errorcode[error.errno])
        """)
    assert set(person.run(attack, **options).stdout.text.split()) == {"EAFNOSUPPORT"}
    assert set(person.run_outside(attack).stdout.split()) == {"succeeded"}


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_a_pair_of_sockets_is_turned_to_another_program(person: Person, kind: str) -> None:
    address = f"\0evil-{os.getpid()}"
    for listening in KINDS.values():
        with Listener(socket.AF_UNIX, listening, address) as server:
            result = person.run(
                python(f"""
                a, b = socket.socketpair(socket.AF_UNIX, socket.{kind})
                b.close()
                no_address = struct.pack('H', socket.AF_UNSPEC) + bytes(14)
                libc.connect(a.fileno(), no_address, len(no_address))
                for attack in (lambda: a.connect({address!r}), lambda: a.bind('\\0mine'),
                               lambda: a.sendto(b'evil', {address!r}),
                               lambda: a.sendmsg([b'evil'], [], 0, {address!r}),
                               lambda: a.listen()):
                    try:
                        attack()
                    except OSError:
                        pass
                print('done')
                """),
                network=True,
            )
            assert result.stdout.text == "done\n"
            assert not server.reached()


# Other kinds of sockets.

FAMILIES = {
    "AX25": 3, "IPX": 4, "APPLETALK": 5, "X25": 9, "KEY": 15, "PACKET": 17, "RDS": 21,
    "LLC": 26, "CAN": 29, "TIPC": 30, "BLUETOOTH": 31, "IUCV": 32, "RXRPC": 33, "PHONET": 35,
    "ALG": 38, "NFC": 39, "VSOCK": 40, "KCM": 41, "QIPCRTR": 42, "SMC": 43, "XDP": 44,
    "MCTP": 45, "of tomorrow": 60,
}  # fmt: skip


def make_sockets(families: Iterable[int]) -> str:
    """A program that tells of each that is made, or refused by anything but the filter."""
    return python(f"""
        pair = (ctypes.c_int * 2)()
        for family in {list(families)}:
            for name in ('socket', 'socketpair'):
                for kind in (1, 2, 3, 4, 5, 10):
                    for high in {HIGH}:
                        try:
                            call(name, family | high, kind, 0, pair)
                            print(family, name, kind, 'succeeded')
                        except OSError as error:
                            if error.errno != errno.EAFNOSUPPORT:
                                print(family, name, kind, error)
        """)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_socket_of_another_family(person: Person, family: str) -> None:
    result = person.run(make_sockets([FAMILIES[family]]))
    assert (result.stdout.text, result.stderr.text) == ("", "")


@NO_UNIX
def test_a_socket_of_another_family_in_other_profiles(
    person: Person, options: dict[str, object]
) -> None:
    result = person.run(make_sockets(FAMILIES.values()), **options)
    assert (result.stdout.text, result.stderr.text) == ("", "")


NETLINK = {
    "USERSOCK": 2, "SOCK_DIAG": 4, "NFLOG": 5, "XFRM": 6, "SELINUX": 7, "ISCSI": 8, "AUDIT": 9,
    "FIB_LOOKUP": 10, "CONNECTOR": 11, "NETFILTER": 12, "KOBJECT_UEVENT": 15, "GENERIC": 16,
    "CRYPTO": 21,
}  # fmt: skip


@pytest.mark.parametrize("protocol", NETLINK)
def test_a_netlink_socket(person: Person, protocol: str) -> None:
    attack = python(f"""
        for high in {HIGH}:
            try:
                call('socket', 16, 3, {NETLINK[protocol]} | high)
                print('succeeded')
            except OSError as error:
                print(errno.errorcode[error.errno])
        """)
    assert set(person.run(attack).stdout.text.split()) == {"EAFNOSUPPORT"}
    if protocol == "KOBJECT_UEVENT":
        assert set(person.run(attack, network=True).stdout.text.split()) == {"EAFNOSUPPORT"}
        assert set(person.run_outside(attack).stdout.split()) == {"succeeded"}


def test_routes_are_those_of_the_sandbox(person: Person) -> None:
    program = python("print(*(name for _, name in socket.if_nameindex()))")
    assert person.run(program).stdout.text == "lo\n"


def test_changing_routes(person: Person) -> None:
    # RTM_NEWADDR 192.0.2.7/32 at lo, which needs a capability.
    attack = attempt("""
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        body = struct.pack('=BBBBi', 2, 32, 0, 0, 1)
        body += struct.pack('=HH4B', 8, 2, 192, 0, 2, 7)
        s.send(struct.pack('=IHHII', 16 + len(body), 20, 0x605, 1, 0) + body)
        code = -struct.unpack_from('=i', s.recv(4096), 16)[0]
        if code:
            raise OSError(code, '')
        """)
    assert refusal(person, attack) == "EPERM"
    assert refusal(person, attack, network=True) == "EPERM"


def test_netlink_in_the_strict_profile(person: Person) -> None:
    attack = attempt("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)")
    assert refusal(person, attack, profile="strict") == "EAFNOSUPPORT"
    assert works_outside(person, attack)


# Around the filter.


def test_io_uring(person: Person) -> None:
    attack = attempt("call('io_uring_setup', 4, ctypes.create_string_buffer(120))")
    for options in ({}, {"network": True}, {"profile": "strict"}):
        assert refusal(person, attack, **options) == "ENOSYS"


if platform.machine() == "x86_64":

    @NO_UNIX
    def test_the_x32_way_of_calling(person: Person, options: dict[str, object]) -> None:
        result = person.run(attempt("call(0x40000000 | 41, 1, 1, 0)"), **options)
        assert "succeeded" not in result.stdout.text

    # mov eax, 359 (socket); mov ebx, 1; mov ecx, 1; xor edx, edx; int 0x80
    CODE_32 = "b867010000bb01000000b90100000031d2cd80"

    @NO_UNIX
    def test_the_32_bit_way_of_calling(person: Person, options: dict[str, object]) -> None:
        result = person.run(
            attempt(f"""
            import mmap
            code = bytes.fromhex('53' + '{CODE_32}' + '5bc3')
            memory = mmap.mmap(-1, 4096, prot=7)
            memory.write(code)
            place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            result = ctypes.CFUNCTYPE(ctypes.c_int)(place)()
            if result < 0:
                raise OSError(-result, '')
            """),
            **options,
        )
        assert "succeeded" not in result.stdout.text
