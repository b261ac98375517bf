# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses may be fetched, and which machines count as private."""

from __future__ import annotations

import ipaddress

import pytest

from ollmsandbox.errors import NetError
from ollmsandbox.net.addresses import (
    Address,
    Reach,
    is_public,
    proxy_for,
    public_addresses,
    reach_of,
    resolve,
)

pytestmark = pytest.mark.ordinary


@pytest.mark.parametrize(
    ("given", "text", "target"),
    [
        ("https://Example.COM", "https://example.com/", "example.com"),
        ("http://example.com:80/a?b=c#d", "http://example.com/a?b=c", "example.com"),
        ("https://example.com:8443/", "https://example.com:8443/", "example.com:8443"),
        ("example.com/a", "https://example.com/a", "example.com"),
        ("https://example.com./x", "https://example.com/x", "example.com"),
        ("http://[2606:4700::1]/x", "http://[2606:4700::1]/x", "[2606:4700::1]"),
        ("bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4", "xn--bcher-kva.example"),
        ("https://example.com/%41?a=%20", "https://example.com/%41?a=%20", "example.com"),
    ],
)
def test_an_address_is_taken_apart_once(given: str, text: str, target: str) -> None:
    address = Address.parse(given)
    assert address.text == text
    assert address.target == target
    assert Address.parse(address.text) == address


@pytest.mark.parametrize(
    "given",
    [
        *("", "   ", "file:///etc/passwd", "ftp://example.com/", "gopher://example.com/"),
        *("data:text/plain,x", "javascript:alert(1)", "http://", "http:///path"),
        *("http://user:password@example.com/", "http://user@example.com/"),
        *("http://example.com\\@127.0.0.1/", "http://example.com /", "http://exa\nmple.com/"),
        *("http://example.com:99999/", "http://example.com:x/", "http://[::1/"),
        *("http://exa%6dple.com/", "http://[fe80::1%25eth0]/", f"http://{'ü' * 70}.example/"),
    ],
)
def test_an_unusual_web_address_is_refused(given: str) -> None:
    with pytest.raises(NetError):
        Address.parse(given)


NEARBY = (
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.1"),
    *("198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("168.63.129.16", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254"),
    *("fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::"),
    *("2002:c0a8:101::1", "2001:db8::1", "100::1", "2001:0:0:0:0:0:80ff:fffe"),
)
FAR_AWAY = (
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "169.253.1.1"),
    *("2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
)


def test_only_machines_far_away_are_public() -> None:
    assert [number for number in NEARBY if is_public(ipaddress.ip_address(number))] == []
    assert [number for number in FAR_AWAY if not is_public(ipaddress.ip_address(number))] == []


def test_one_private_address_among_public_ones_is_enough() -> None:
    address = Address.parse("https://example.com/")
    with pytest.raises(NetError, match=r"127\.0\.0\.1"):
        public_addresses(address, lambda *_: ["8.8.8.8", "127.0.0.1"], allow_private=False)
    found = public_addresses(address, lambda *_: ["8.8.8.8", "1.1.1.1"], allow_private=False)
    assert found == ["8.8.8.8", "1.1.1.1"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"]
)
def test_the_own_machine_is_recognised_in_every_spelling(host: str) -> None:
    with pytest.raises(NetError):
        public_addresses(Address.parse(f"http://{host}/"), resolve, allow_private=False)


def test_an_unknown_host_name_is_reported() -> None:
    def unknown(_host: str, _port: int) -> list[str]:
        raise OSError("no such name")

    address = Address.parse("https://example.com/")
    with pytest.raises(NetError, match="was not found"):
        public_addresses(address, unknown, allow_private=False)
    assert public_addresses(address, unknown, allow_private=False, may_be_unknown=True) == []


PROXY = {"http_proxy": "http://p:1"}


@pytest.mark.parametrize(
    ("environ", "address", "proxy"),
    [
        ({}, "http://a.example/", ""),
        (PROXY, "http://a.example/", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "https://a.example/", "http://p:1"),
        (PROXY, "https://a.example/", ""),
        ({"ALL_PROXY": "http://p:1"}, "https://a.example/", "http://p:1"),
        *(
            (PROXY | {"no_proxy": others}, "http://a.example/", "http://p:1")
            for others in ("b.example", "ample", "a.example:81")
        ),
        (PROXY | {"no_proxy": "x, example"}, "http://a.example/", ""),
        (PROXY | {"NO_PROXY": ".a.example"}, "http://a.example/", ""),
        (PROXY | {"no_proxy": "*"}, "http://a.example/", ""),
    ],
)
def test_proxies_are_read_as_every_program_does(
    environ: dict[str, str], address: str, proxy: str
) -> None:
    assert proxy_for(Address.parse(address), environ) == proxy


def test_a_redirect_is_relative_to_its_address() -> None:
    address = Address.parse("https://example.com/a/b")
    assert address.redirect("../c").text == "https://example.com/c"
    assert address.redirect("//other.example/").target == "other.example"
    assert address.redirect("/gr\xc3\xb6\xc3\x9fe").path == "/gr%C3%B6%C3%9Fe"
    for bad in ("file:///etc/passwd", "http://u:p@x.example/", "http://[", "javascript:1"):
        with pytest.raises(NetError):
            address.redirect(bad)


def test_where_an_address_leads() -> None:
    expected = {
        Reach.SPECIAL: (
            *("::ffff:100.100.100.200", "2002:6464:64c8::", "fd00:ec2::23", "fd20:ce::254"),
            *("::ffff:127.0.0.1", "fe80::1%lo"),
        ),
        Reach.PRIVATE: ("::ffff:10.1.2.3", "fd00::1"),
        Reach.PUBLIC: ("::ffff:203.0.113.5",),
    }
    for reach, numbers in expected.items():
        assert {number: reach_of(number) for number in numbers} == dict.fromkeys(numbers, reach)
