# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that a command may reach, as users and models name them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ... import N_
from ...errors import SandboxError, Sentence
from ...net.addresses import Reach, is_local_name, reach_of
from .names import RANGE, is_host_name

WEB_PORTS = (80, 443)
# What a host is reached by if no port is named.
USUAL_PORTS = (22, *WEB_PORTS)
_MOST_NAMED = 30
_WITH_PORT = re.compile(r"(.+):(\d{1,5})")


class HostRule(NamedTuple):
    """A host, or all hosts below a name, and a port or the usual ones."""

    # In ASCII and lower case, or an IPv4 address.
    host: str
    port: int | None = None
    # Whether it stands for the names below it, as in "*.example.org".
    has_star: bool = False

    @classmethod
    def parse(cls, text: str) -> HostRule:
        """Read a rule as users write it; raise SandboxError if it is none."""
        given, port = text.strip(), None
        if found := _WITH_PORT.fullmatch(given):
            given, port = found[1], int(found[2])
        has_star = given.startswith("*.")
        host = to_ascii(given[2:] if has_star else given)
        is_local = is_local_name(host)
        is_special = is_address(host) and reach_of(host) is Reach.SPECIAL
        is_usable = is_host_name(host) or is_address(host)
        if not is_usable or (port is not None and not 0 < port < 1 << 16):
            raise SandboxError(
                N_("{text} is not a host."),
                N_("Enter a name such as example.org, *.example.org or example.org:8443."),
                text=repr(text[:80]),
            )
        if has_star and "." not in host:
            raise SandboxError(
                N_("{text} stands for too many hosts."),
                N_("Name the hosts, or a domain such as *.example.org."),
                text=text,
            )
        if is_special or (is_local and (host != "localhost" or port is None or has_star)):
            raise SandboxError(
                N_("{text} is this computer, or a service of the network itself."),
                N_("Name one service of this computer by its port, as in localhost:5432."),
                text=text,
            )
        return cls(host, port, has_star)

    def matches(self, host: str, port: int) -> bool:
        if port != self.port if self.port is not None else port not in USUAL_PORTS:
            return False
        return host.endswith(f".{self.host}") if self.has_star else host == self.host

    @property
    def is_local(self) -> bool:
        """Return whether it is a service of this computer."""
        return self.host == "localhost"

    def __str__(self) -> str:
        name = f"*.{self.host}" if self.has_star else self.host
        return name if self.port is None else f"{name}:{self.port}"


def to_ascii(host: str) -> str:
    """Return a host's name as DNS has it: in lower case, and others than ASCII letters encoded, so
    that no name looks like another."""
    host = host.lower().rstrip(".")
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return ""


def is_address(host: str) -> bool:
    """Return whether it is an IPv4 address in the usual form, and not one of those that stand for
    names inside."""
    try:
        return ipaddress.IPv4Address(host) not in RANGE
    except ValueError:
        return False


def parse_hosts(texts: Iterable[str]) -> tuple[HostRule, ...]:
    return tuple(dict.fromkeys(map(HostRule.parse, texts)))


class Trouble(Enum):
    """Why a command did not reach a host, other than by the user's answer."""

    SPECIAL = N_("{host} was refused: it is this computer, or a service of the network itself.")
    PRIVATE = N_("{host} was refused: it is in a private network.")
    OTHER_NAME = N_("A connection to {host} was closed, because it was meant for {name}.")
    NOT_FOUND = N_("The host {host} was not found.")
    UNREACHABLE = N_("The host {host} did not answer.")
    PROXY = N_("The proxy of your environment did not connect to {host}.")


@dataclass
class HostUse:
    """A host that a command tried to reach, and what became of it."""

    host: str
    port: int
    # None while the user is being asked.
    allowed: bool | None = None
    trouble: Trouble | None = None
    # The name that a connection was meant for.
    other_name: str = ""
    sent: int = 0
    received: int = 0
    # Whether a program was connected with it, or had given up when the user allowed it.
    was_reached: bool = False
    was_late: bool = False

    def __str__(self) -> str:
        return str(self.rule)

    @property
    def is_local(self) -> bool:
        return self.host == "localhost"

    @property
    def rule(self) -> HostRule:
        """Return what a user would name to allow it."""
        is_web = self.port in WEB_PORTS and not self.is_local
        return HostRule(self.host, None if is_web else self.port)

    @property
    def refusal(self) -> Sentence | None:
        """Return why the command did not reach it, for the user and the model."""
        if self.trouble is not None:
            return Sentence(self.trouble.value, host=str(self), name=self.other_name)
        if not self.allowed:
            text = N_("The host {host} was not allowed.")
        elif self.was_late and not self.was_reached:
            text = N_("{host} was allowed too late, the program had given up. Run it again.")
        else:
            return None
        return Sentence(text, host=str(self))

    def document(self) -> dict[str, object]:
        """Return what is recorded, and shown as JSON."""
        return {
            "host": self.host,
            "port": self.port,
            "allowed": bool(self.allowed),
            "trouble": self.trouble.name.lower() if self.trouble else None,
            "sent": self.sent,
            "received": self.received,
        }

    @classmethod
    def from_document(cls, kept: Mapping[str, Any]) -> HostUse:
        """Return what `document` recorded; raise KeyError, TypeError or ValueError if it cannot be
        read."""
        trouble = Trouble[kept["trouble"].upper()] if kept["trouble"] else None
        sent, received = int(kept["sent"]), int(kept["received"])
        allowed = bool(kept["allowed"])
        return cls(str(kept["host"]), int(kept["port"]), allowed, trouble, "", sent, received)


def hosts_text(uses: Sequence[HostUse]) -> str:
    """Return the hosts in one line, with what became of each; "" if there are none."""
    if not uses:
        return ""
    shown = [
        f"{use} ({use.sent:,} bytes sent, {use.received:,} received)"
        if use.allowed
        else f"{use} (refused)"
        for use in uses[:_MOST_NAMED]
    ]
    more = len(uses) - len(shown)
    return f"Hosts: {', '.join(shown)}{f', and {more:,} more' if more else ''}"
