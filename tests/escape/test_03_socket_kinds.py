# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to make sockets of kinds that reach further, or around the filter."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack

import pytest
from support.escape.attack import KINDS, Listener, attempt, python, refusal, works_outside
from support.person import Person

# With the network the sandbox shares names of abstract sockets with the machine, so there are no
# Unix sockets at all, besides pairs that cannot be sent elsewhere.


NO_UNIX = pytest.mark.parametrize("options", [{"network": True}, {"profile": "strict"}], ids=str)
# The kernel takes 32 bits of what a filter sees 64 of.
HIGH = (0, 1 << 32, 1 << 63, 0xFFFFFFFF << 32)


KINDS_OF_SOCKETS = ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET", "SOCK_RAW")
MAKE_UNIX_SOCKETS = python(f"""
    pair = (ctypes.c_int * 2)()
    for high in {HIGH}:
        for flags in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC):
            for kind in {KINDS_OF_SOCKETS}:
                number = int(getattr(socket, kind)) | flags
                codes = [
                    ('socket', 1 | family, number | bits, protocol, None)
                    for family, bits, protocol in
                    ((high, 0, 0), (0, high, 0), (0, 0, high), (high, high, high))
                ]
                # Those that can be sent elsewhere.
                if kind in ('SOCK_DGRAM', 'SOCK_RAW'):
                    codes.append(('socketpair', 1 | high, number | high, high, pair))
                for code in codes:
                    try:
                        call(*code)
                        print('succeeded')
                    except OSError as error:
                        print(errno.errorcode[error.errno])
    """)


@NO_UNIX
def test_a_unix_socket_is_not_made_at_all(person: Person, options: dict[str, object]) -> None:
    found = person.run(MAKE_UNIX_SOCKETS, **options).stdout.text
    assert set(found.split()) == {"EAFNOSUPPORT"}
    assert set(person.run_outside(MAKE_UNIX_SOCKETS).stdout.split()) == {"succeeded"}


def test_a_pair_of_sockets_is_turned_to_another_program(person: Person) -> None:
    names = {kind: f"\0evil-{os.getpid()}-{kind}" for kind in KINDS}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Listener(socket.AF_UNIX, KINDS[kind], name))
            for kind, name in names.items()
        ]
        result = person.run(
            python(f"""
            for address in {list(names.values())}:
                for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                    a, b = socket.socketpair(socket.AF_UNIX, kind)
                    b.close()
                    no_address = struct.pack('H', socket.AF_UNSPEC) + bytes(14)
                    libc.connect(a.fileno(), no_address, len(no_address))
                    for attack in (lambda: a.connect(address), lambda: a.bind('\\0mine'),
                                   lambda: a.sendto(b'evil', address),
                                   lambda: a.sendmsg([b'evil'], [], 0, address),
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
        assert not any(server.reached() for server in servers)


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


@pytest.mark.parametrize("options", [{}, {"network": True}, {"profile": "strict"}], ids=str)
def test_a_socket_of_another_family(person: Person, options: dict[str, object]) -> None:
    result = person.run(make_sockets(FAMILIES.values()), **options)
    assert (result.stdout.text, result.stderr.text, result.exit_code) == ("", "", 0)


NETLINK = {
    "USERSOCK": 2, "SOCK_DIAG": 4, "NFLOG": 5, "XFRM": 6, "SELINUX": 7, "ISCSI": 8, "AUDIT": 9,
    "FIB_LOOKUP": 10, "CONNECTOR": 11, "NETFILTER": 12, "KOBJECT_UEVENT": 15, "GENERIC": 16,
    "CRYPTO": 21,
}  # fmt: skip


MAKE_NETLINK_SOCKETS = python(f"""
    for name, protocol in {NETLINK}.items():
        for high in {HIGH}:
            try:
                call('socket', 16, 3, protocol | high)
                print(name, 'succeeded')
            except OSError as error:
                print(name, errno.errorcode[error.errno])
    """)


def test_netlink_sockets(person: Person) -> None:
    refused = {f"{name} EAFNOSUPPORT" for name in NETLINK}
    assert set(person.run(MAKE_NETLINK_SOCKETS).stdout.text.splitlines()) == refused
    granted = person.run(MAKE_NETLINK_SOCKETS, network=True)
    assert set(granted.stdout.text.splitlines()) == refused
    outside = person.run_outside(MAKE_NETLINK_SOCKETS).stdout.splitlines()
    assert "KOBJECT_UEVENT succeeded" in outside
    assert "KOBJECT_UEVENT EAFNOSUPPORT" not in outside


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
