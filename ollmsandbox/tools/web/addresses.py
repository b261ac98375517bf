# SPDX-License-Identifier: GPL-3.0-or-later
"""Web addresses: what may be fetched, and which machines are nobody's business but the person's."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from ... import N_
from ..base import ToolError

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
# The addresses of a host, as numbers.
Resolver = Callable[[str, int], Sequence[str]]

_PORTS = {"http": 80, "https": 443}
# Not private by number, but only reached from inside a data centre.
_METADATA = (ipaddress.ip_address("168.63.129.16"),)
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")
_ODD = re.compile(r"[\x00-\x20\x7f-\x9f\\]")


@dataclass(frozen=True)
class Address:
    """Taken apart once: what was looked at is what is fetched."""

    scheme: str
    # In ASCII, lower case, without brackets.
    host: str
    port: int
    # With the query, without the fragment.
    path: str

    @classmethod
    def parse(cls, text: str) -> Address:
        given = text.strip()
        if _ODD.search(given):
            raise ToolError(N_("The address holds a space, a backslash or a control character."))
        if "://" not in given and re.match(r"[\w.-]+\.\w+(/|$)", given):
            given = f"https://{given}"
        try:
            parts = urlsplit(given)
            port = parts.port
            host = _ascii(parts.hostname or "")
        except (ValueError, UnicodeError) as error:
            raise ToolError(N_("This is no web address: {why}."), why=str(error)) from error
        if parts.scheme not in _PORTS:
            raise ToolError(
                N_("Only http and https addresses can be fetched, not {scheme}."),
                scheme=repr(parts.scheme or given[:40]),
            )
        if not host:
            raise ToolError(N_("The address names no host."), N_("Write it as https://host/path."))
        if "@" in parts.netloc:
            raise ToolError(N_("An address with a user name or a password is not fetched."))
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        if parts.query:
            path += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._?[]|")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], path)

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self._netloc}{self.path}"

    @property
    def target(self) -> str:
        """The host as rules know it: with the port, where that is an unusual one."""
        return self._netloc

    @property
    def _netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def leads_to(self, location: str) -> Address:
        """A header comes as bytes of any kind; most are UTF-8."""
        with contextlib.suppress(UnicodeError):
            location = location.encode("latin-1").decode("utf-8")
        try:
            return Address.parse(urljoin(self.text, location.strip()))
        except ValueError as error:
            raise ToolError(
                N_("ERROR: {host} leads to an address that is none."), host=self.host
            ) from error


def _ascii(host: str) -> str:
    host = host.lower().rstrip(".")
    if "%" in host:
        raise ValueError("the host holds a percent sign")
    if ":" in host or host.isascii():
        return host
    return host.encode("idna").decode("ascii")


def resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_name(address: Address) -> None:
    """Nobody is asked for what is refused anyway, as far as that is known without looking it up.
    Raises ToolError."""
    is_here = address.host == "localhost" or address.host.endswith(".localhost")
    if not is_here:
        try:
            is_here = not is_public(ipaddress.ip_address(address.host))
        except ValueError:
            return
    if is_here:
        raise ToolError(
            N_(
                "ERROR: {host} is an address of this machine or a private network. Such addresses "
                "are not fetched."
            ),
            host=address.host,
        )


def public_addresses(
    address: Address, resolver: Resolver, *, allow_private: bool, may_be_unknown: bool = False
) -> list[str]:
    """Looked up once; who connects uses these very numbers, so that a name cannot mean something
    else a moment later. Where a proxy looks the name up, it may be unknown here."""
    try:
        found = list(resolver(address.host, address.port))
    except (OSError, UnicodeError) as error:
        if may_be_unknown:
            return []
        raise ToolError(N_("ERROR: The host {host} was not found."), host=address.host) from error
    for number in found:
        if not allow_private and not is_public(ipaddress.ip_address(number)):
            raise ToolError(
                N_(
                    "ERROR: {host} is at {number}, an address of this machine or a private "
                    "network. Such addresses are not fetched."
                ),
                host=address.host,
                number=number,
            )
    if not found and not may_be_unknown:
        raise ToolError(N_("ERROR: The host {host} has no address."), host=address.host)
    return found


def is_public(number: IP) -> bool:
    """Also where one address is packed into another, as gateways do."""
    if isinstance(number, ipaddress.IPv6Address):
        inner = _packed(number)
        if inner is not None:
            return is_public(inner)
        if number.is_site_local:
            return False
    if number in _METADATA or number.is_multicast or number.is_unspecified or number.is_reserved:
        return False
    return number.is_global and not number.is_private and not number.is_link_local


def _packed(number: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if number.ipv4_mapped is not None:
        return number.ipv4_mapped
    if number.sixtofour is not None:
        return number.sixtofour
    if number.teredo is not None:
        return number.teredo[1]
    is_whole = number in _COMPATIBLE and int(number) > 1
    if is_whole or any(number in network for network in _NAT64):
        return ipaddress.IPv4Address(int(number) & 0xFFFF_FFFF)
    return None


def proxy_for(address: Address, environ: Mapping[str, str]) -> str:
    """As every program reads it; "" where the host is reached directly."""

    def value(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    proxy = value(f"{address.scheme}_proxy") or value("all_proxy")
    if not proxy:
        return ""
    for entry in value("no_proxy").lower().split(","):
        name, _, port = entry.strip().partition(":")
        name = name.lstrip("*").lstrip(".")
        if entry.strip() == "*":
            return ""
        is_here = bool(name) and (address.host == name or address.host.endswith(f".{name}"))
        if is_here and (not port or port == str(address.port)):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"
