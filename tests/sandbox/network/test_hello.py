# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's name in the first bytes of a TLS connection."""

from __future__ import annotations

import ssl

import pytest

from ollmsandbox.sandbox.network.hello import NotYet, server_name

pytestmark = pytest.mark.ordinary


def _hello(name: str) -> bytes:
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_the_name_is_found_and_a_part_is_not_enough() -> None:
    hello = _hello("www.example.org")
    assert server_name(hello) == "www.example.org"
    with pytest.raises(NotYet):
        server_name(hello[:-1])
    assert server_name(b"GET / HTTP/1.1\r\n") is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\x04\x01\x01\x00\x00",  # larger than any hello
        b"\x16\x03\x01\x00\x00" * 3,  # empty records
        b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",  # too short to have a name
        _hello("www.example.org").replace(b"www.example", b"www.\xffxample"),
        # An alert before it, and in it.
        b"\x15\x03\x01\x00\x02\x01\x5a" + _hello("www.example.org"),
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x40" + b"\x15\x03\x01\x00\x02\x01\x5a",
        # A name of another type before the host's.
        _hello("a.www.example.org").replace(b"\x00\x00\x11a.w", b"\x01\x00\x01a\x00\x00\x0d"),
    ],
)
def test_a_hello_in_which_a_server_might_find_another_name(data: bytes) -> None:
    with pytest.raises(ConnectionAbortedError):
        server_name(data)
