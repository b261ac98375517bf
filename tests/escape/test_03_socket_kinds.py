# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to make sockets of kinds that reach further, or around the filter."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable

import pytest
from support.escape.attack import KINDS, Listener, attempt, python, refusal, works_outside
from support.person import Person

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


@pytest.fixture(scope="module")
def sockets_of_other_families(shared_person: Person) -> list[str]:
    result = shared_person.run(make_sockets(FAMILIES.values()))
    assert (result.exit_code, result.stderr.text) == (0, "")
    return result.stdout.text.splitlines()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_socket_of_another_family(sockets_of_other_families: list[str], family: str) -> None:
    begin = f"{FAMILIES[family]} "
    assert [line for line in sockets_of_other_families if line.startswith(begin)] == []


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
