# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of servers and web pages: which are valid, and which belong to this machine or a
private network."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from .. import N_
from ..errors import NetError

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
# Returns the IP addresses of a host.
Resolver = Callable[[str, int], Sequence[str]]

_PORTS = {"http": 80, "https": 443}
# Not private by number, but only reached from inside a data centre.
_METADATA = tuple(
    ipaddress.ip_address(number)
    for number in (
        *("168.63.129.16", "100.100.100.200", "192.0.0.192"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Address:
    """The address of a web page, parsed once: what was checked is what is fetched."""

    scheme: str
    # ASCII, lower case, without brackets.
    host: str
    port: int
    # With the query, without the fragment.
    path: str

    @classmethod
    def parse(cls, text: str) -> Address:
        given = text.strip()
        if _FORBIDDEN.search(given):
            raise NetError(N_("The address contains a space, a backslash or a control character."))
        if "://" not in given and re.match(r"[\w.-]+\.\w+(/|$)", given):
            given = f"https://{given}"
        try:
            parts = urlsplit(given)
            port = parts.port
            host = _ascii(parts.hostname or "")
        except (ValueError, UnicodeError) as error:
            raise NetError(N_("This is not a web address: {why}."), why=str(error)) from error
        if parts.scheme not in _PORTS:
            raise NetError(
                N_("Only http and https addresses can be fetched, not {scheme}."),
                scheme=repr(parts.scheme or given[:40]),
            )
        if not host:
            raise NetError(N_("The address has no host."), N_("Write it as https://host/path."))
        if "@" in parts.netloc:
            raise NetError(N_("An address must not contain a user name or password."))
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        if parts.query:
            path += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._?[]|")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], path)

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.target}{self.path}"

    @property
    def target(self) -> str:
        """The host as permission rules name it: with the port, unless it is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def redirect(self, location: str, *, stay_secure: bool = False) -> Address:
        """Return the address that a Location header names. Raise NetError if it is not valid, or if
        it leads from https to http and must not."""
        # requests decodes headers as Latin-1, but most are UTF-8.
        with contextlib.suppress(UnicodeError):
            location = location.encode("latin-1").decode("utf-8")
        try:
            found = Address.parse(urljoin(self.text, location.strip()))
        except ValueError as error:
            raise NetError(N_("{host} redirects to an invalid address."), host=self.host) from error
        if stay_secure and (self.scheme, found.scheme) == ("https", "http"):
            raise NetError(
                N_("{address} redirects to an address that is not secure."), address=self.text
            )
        return found


def _ascii(host: str) -> str:
    host = host.lower().rstrip(".")
    if "%" in host:
        raise ValueError("the host contains a percent sign")
    if ":" in host or host.isascii():
        return host
    return host.encode("idna").decode("ascii")


def resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def refuse_private_name(address: Address) -> None:
    """Raise NetError if the name alone shows that the host is private, without a lookup."""
    is_private = is_local_name(address.host)
    if not is_private:
        try:
            is_private = not is_public(ipaddress.ip_address(address.host))
        except ValueError:
            return
    if is_private:
        raise NetError(
            N_("{host} is this computer or on a private network. Such addresses are not fetched."),
            host=address.host,
        )


def public_addresses(
    address: Address, resolver: Resolver, *, allow_private: bool, may_be_unknown: bool = False
) -> list[str]:
    """Look up the host once. Connect to exactly the returned addresses, so that the name cannot
    mean another machine a moment later. Where a proxy does the lookup, it may fail here."""
    try:
        found = list(resolver(address.host, address.port))
    except (OSError, UnicodeError) as error:
        if may_be_unknown:
            return []
        raise NetError(N_("The host {host} was not found."), host=repr(address.host)) from error
    for number in found:
        if not allow_private and not is_public(ipaddress.ip_address(number)):
            raise NetError(
                N_(
                    "{host} is at {number}, which is this computer or on a private network. "
                    "Such addresses are not fetched."
                ),
                host=address.host,
                number=number,
            )
    if not found and not may_be_unknown:
        raise NetError(N_("The host {host} has no address."), host=address.host)
    return found


def is_public(number: IP) -> bool:
    """Tell whether an address is on the public internet, also if a gateway's IPv6 address embeds
    it."""
    if isinstance(number, ipaddress.IPv6Address):
        inner = _embedded(number)
        if inner is not None:
            return is_public(inner)
        if number.is_site_local:
            return False
    if number in _METADATA or number.is_multicast or number.is_unspecified or number.is_reserved:
        return False
    return number.is_global and not number.is_private and not number.is_link_local


class Reach(Enum):
    """The kinds of addresses, by where they lead."""

    PUBLIC = auto()
    # A computer of the user's own network.
    PRIVATE = auto()
    # This computer, the network card itself, a data centre's own service, or nobody.
    SPECIAL = auto()


_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


# Of nobody, so that examples and tests can use them as if they were public.
_EXAMPLES = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)


def reach_of(address: str) -> Reach:
    number: IP = ipaddress.ip_address(address.partition("%")[0])
    if is_public(number) or any(number in network for network in _EXAMPLES):
        return Reach.PUBLIC
    inner = _embedded(number) if isinstance(number, ipaddress.IPv6Address) else None
    if inner is not None:
        return reach_of(str(inner))
    is_private = any(number in network for network in _PRIVATE)
    return Reach.PRIVATE if is_private and number not in _METADATA else Reach.SPECIAL


def _embedded(number: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if number.ipv4_mapped is not None:
        return number.ipv4_mapped
    if number.sixtofour is not None:
        return number.sixtofour
    if number.teredo is not None:
        return number.teredo[1]
    is_compatible = number in _IPV4_COMPATIBLE and int(number) > 1
    if is_compatible or any(number in network for network in _NAT64):
        return ipaddress.IPv4Address(int(number) & 0xFFFF_FFFF)
    return None


def proxy_for(address: Address, environ: Mapping[str, str]) -> str:
    """Return the proxy that the environment names for the address, or "" to connect directly."""

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
        matches = bool(name) and (address.host == name or address.host.endswith(f".{name}"))
        if matches and (not port or port == str(address.port)):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_local_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def is_loopback(url: str) -> bool:
    """Tell whether a URL names this machine, whatever the proxy settings say."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if is_local_name(host):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback or ip.is_unspecified)


def server_of(url: str) -> str:
    """Return the scheme, host and port of a URL, without any password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def normal_server(text: str, default_port: int | None = None, *, with_query: bool = False) -> str:
    """Return the URL of a server as typed by a user, with a scheme and without a slash at the end.
    The port is added where the user typed neither a scheme nor a port. `with_query` keeps what
    follows a question mark; without it, nothing may."""
    text = text.strip()
    if not text.isprintable():
        # urlsplit would silently drop tabs and line ends.
        raise _not_a_server(text)
    has_scheme = _SCHEME.match(text) is not None
    try:
        parts = urlsplit(text if has_scheme else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise _not_a_server(text) from error
    if parts.username is not None or parts.password is not None:
        # It would be visible wherever the address is shown.
        raise NetError(
            N_("An address must not contain a user name or password."),
            N_("Enter the API key separately."),
        )
    if parts.scheme not in _PORTS or not _has_host(parts) or (parts.query and not with_query):
        raise _not_a_server(text)
    if port is None and not has_scheme:
        port = default_port
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    where = f"{host}:{port}" if port is not None else f"{host}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{where}{parts.path}".rstrip("/") + query


def _has_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    return bool(host) and host.isprintable() and not set(host) & set(" \\\"'<>`{}|^%")


def _not_a_server(text: str) -> NetError:
    return NetError(
        N_("{text} is not the address of a server."),
        N_("Enter an address such as http://localhost:11434."),
        text=repr(text[:200]),
    )
