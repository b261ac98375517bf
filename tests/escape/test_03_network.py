# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to reach other machines, and programs that listen for them."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing

import pytest
from support.escape.attack import (
    IS_ROOT,
    Listener,
    attempt,
    dedented,
    python,
    refusal,
    refusals,
    work_outside,
)
from support.person import Person

# Addresses of the Internet; a server on the loopback stands for all others.


def _has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


LOOPBACK = ["127.0.0.1", *(["::1"] if _has_ipv6() else [])]


TCP = {
    "connect": "socket.create_connection(({host!r}, {port}), 2).sendall(b'evil')",
    "fast open": """
        s = socket.socket({family})
        s.sendto(b'evil', socket.MSG_FASTOPEN, ({host!r}, {port}))
        """,
    "from a chosen port": """
        s = socket.socket({family})
        s.bind(({host!r}, 0))
        s.connect(({host!r}, {port}))
        """,
}
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


class Servers:
    """A server for each way, to see which one was reached."""

    def __init__(self, stack: ExitStack, ways: Mapping[str, str], kind: int, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._servers, self.codes = {}, {}
        for way, code in ways.items():
            server = stack.enter_context(Listener(family, kind, (host, 0)))
            self._servers[way] = server
            given = {"family": int(family), "host": host, "port": server.address[1]}
            self.codes[way] = dedented(code.format(**given).strip())

    def reached(self) -> list[str]:
        return [way for way, server in self._servers.items() if server.reached()]


@pytest.mark.parametrize("host", LOOPBACK)
def test_tcp(person: Person, host: str) -> None:
    with ExitStack() as stack:
        servers = Servers(stack, TCP, socket.SOCK_STREAM, host)
        for profile in ("standard", "strict"):
            assert all(refusals(person, servers.codes, profile=profile).values())
        assert servers.reached() == []
        assert all(work_outside(person, servers.codes).values())
        assert servers.reached() == list(TCP)
        # With the network granted the same works.
        assert not any(refusals(person, servers.codes, network=True).values())
        assert servers.reached() == list(TCP)


@pytest.mark.parametrize("host", LOOPBACK)
def test_udp(person: Person, host: str) -> None:
    with ExitStack() as stack:
        servers = Servers(stack, UDP, socket.SOCK_DGRAM, host)
        new = "s = socket.socket({}, socket.SOCK_DGRAM)\n"
        family = int(socket.AF_INET6 if ":" in host else socket.AF_INET)
        codes = {way: new.format(family) + code for way, code in servers.codes.items()}
        # It may seem to work: the sandbox has a loopback of its own, without a listener.
        refusals(person, codes)
        assert servers.reached() == []
        assert all(work_outside(person, codes).values())
        assert servers.reached() == list(UDP)
        assert not any(refusals(person, codes, network=True).values())
        assert servers.reached() == list(UDP)


def test_addresses_beyond_the_loopback(person: Person) -> None:
    codes = {}
    for address in ("192.0.2.1", "2001:db8::1", "224.0.0.251", "169.254.169.254"):
        for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
            family = "AF_INET6" if ":" in address else "AF_INET"
            codes[f"{address} {kind}"] = f"""
                s = socket.socket(socket.{family}, socket.{kind})
                s.settimeout(2)
                s.connect(({address!r}, 80))
                """
    for name, why in refusals(person, codes).items():
        assert why in ("ENETUNREACH", "EADDRNOTAVAIL"), name


def test_asking_for_a_name(person: Person) -> None:
    for name in ("example.org", "localhost.localdomain.", "_gateway"):
        code = f"print(socket.getaddrinfo({name!r}, 80, proto=socket.IPPROTO_TCP))"
        result = person.run(attempt(code))
        addresses = result.stdout.text.replace("127.0.0.1", "").replace("::1", "")
        assert result.exit_code == 1 or "'', 80" in addresses, name


@pytest.mark.parametrize("network", [False, True], ids=["no network", "network"])
def test_raw_packets(person: Person, network: bool) -> None:
    codes = {
        "IPv4": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
        "IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)",
    }
    assert set(refusals(person, codes, network=network).values()) <= {"EPERM", "EACCES"}
    if IS_ROOT:
        assert all(work_outside(person, codes).values())


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
    if profile == "standard":
        asked = person.run(python("print(*(name for _, name in socket.if_nameindex()))"))
        assert asked.stdout.text == "lo\n"


def test_sockets_of_other_programs_are_not_listed(person: Person) -> None:
    with Listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)) as server:
        port = f":{server.address[1]:04X} "
        assert port in person.run_outside("cat /proc/net/tcp").stdout
        assert port not in person.run("cat /proc/net/tcp").stdout.text
