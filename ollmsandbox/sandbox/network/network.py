# SPDX-License-Identifier: GPL-3.0-or-later
"""Network access of one run to single hosts: makes the sockets inside, and asks about hosts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ... import N_
from ...errors import SandboxError
from ...net.addresses import resolve
from ..plan.resolver import SERVER
from .hosts import USUAL_PORTS, WEB_PORTS, HostRule, HostUse, is_address
from .inside import NetworkNamespace
from .names import MASK, Names
from .relay import Relay, Service, sorted_uses
from .ssh import SshAccess

# The mask of a single address.
_ONE = "255.255.255.255"


# Begins to ask the user about a host and a port that the command tries to reach; returns a function
# that withdraws the question. If there is an address as well, the host was allowed, and it is
# private. The last argument receives the answer, in any thread.
AskHost = Callable[[str, int, str, Callable[[bool], None]], Callable[[], object]]


class HostNetwork:
    """Decides which hosts a command reaches. Without `ask`, it reaches only those of the rules.
    `services` are names that exist only in this sandbox."""

    def __init__(
        self,
        rules: Sequence[HostRule],
        ask: AskHost | None = None,
        services: Mapping[str, Service] | None = None,
        ssh: SshAccess | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.rules = (*rules, *(ssh.rules() if ssh is not None else ()))
        self._services = services or {}
        # Set if the command may use the user's ssh-agent.
        self.ssh = ssh
        self._ask = ask
        self._environ = environ or {}
        self._names = Names()
        self._relay: Relay | None = None
        # None while the user is being asked.
        self._answers: dict[tuple[str, int, str], bool | None] = {}
        # What withdraws each question.
        self._questions: list[Callable[[], object]] = []
        self._sockets: list[socket.socket] = []
        self._uses: tuple[HostUse, ...] = ()

    @property
    def uses(self) -> tuple[HostUse, ...]:
        return sorted_uses(self._relay.uses) if self._relay is not None else self._uses

    # --- sockets -----------------------------------------------------------------------------

    def make_sockets(self, namespace: NetworkNamespace) -> None:
        """Make the sockets in a network namespace. Blocks."""
        addresses = [(rule.host, _ONE) for rule in self.rules if is_address(rule.host)]
        places = [("udp", SERVER, 53), *(("tcp", *place) for place in self.places())]
        made = namespace.make_sockets(places, [(SERVER, MASK), *addresses])
        for one, place in zip(made, places, strict=True):
            # A computer may do without IPv6.
            if one is None and place[1] != "::1":
                raise SandboxError(N_("The network of the sandbox could not be prepared."))
        self._sockets = [one for one in made if one is not None]

    def places(self) -> list[tuple[str, int]]:
        """Return the addresses and ports inside on which we wait for connections."""
        found = [("0.0.0.0", port) for port in USUAL_PORTS]
        for rule in self.rules:
            for address in self._addresses_inside(rule):
                found += [(address, rule.port)] if rule.port is not None else []
        everywhere = {port for address, port in found if address == "0.0.0.0"}
        return [
            (SERVER, 53),
            *(
                (address, port)
                for address, port in dict.fromkeys(found)
                if address in ("0.0.0.0", "::1") or port not in everywhere
            ),
        ]

    def _addresses_inside(self, rule: HostRule) -> Sequence[str]:
        if rule.has_star:
            return ["0.0.0.0"]
        if not rule.is_local and not is_address(rule.host):
            return [self._names.address_of(rule.host) or "0.0.0.0"]
        addresses = ["127.0.0.1", "::1"] if rule.is_local else [rule.host]
        for address in addresses:
            self._names.add(address, rule.host)
        return addresses

    def serve(self) -> None:
        """Serve the sockets, in a thread."""
        udp, tcp, *listeners = self._sockets
        self._relay = Relay(
            self._names, (udp, tcp), listeners, self._decide, resolve, self._environ, self._services
        )

    def close(self) -> None:
        """End all connections and questions."""
        if self._relay is not None:
            relay, self._relay = self._relay, None
            self._uses = sorted_uses(relay.uses)
            relay.close()
        # Afterwards, since only the relay asks more of them.
        for withdraw in self._questions:
            withdraw()

    # --- answers -----------------------------------------------------------------------------

    def _decide(self, host: str, port: int, address: str) -> bool | None:
        """Return whether a host may be reached; None if the user is being asked. Called by the
        relay's thread."""
        allowed = self._answer_for(host, port, address)
        if allowed and self.ssh is not None and host != "localhost" and port not in WEB_PORTS:
            self.ssh.add_host(host, port)
        return allowed

    def _answer_for(self, host: str, port: int, address: str) -> bool | None:
        key = (host, port, address)
        if not address and self._is_named(host, port):
            return True
        if host == "localhost":
            return False
        if key not in self._answers:
            # A private address of a host that the user named is asked about, too, if possible.
            self._answers[key] = None if self._ask is not None else False
            if self._ask is not None:
                self._questions.append(self._ask(*key, partial(self._take_answer, key)))
        return self._answers[key]

    def _is_named(self, host: str, port: int) -> bool:
        return any(rule.matches(host, port) for rule in self.rules)

    def _take_answer(self, key: tuple[str, int, str], allowed: bool) -> None:
        self._answers[key] = allowed
        if (relay := self._relay) is not None:
            relay.wake()
