# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets one command log in with the user's ssh-agent, which signs for it. Key files stay hidden.

A folder of the run has the socket, the known keys of the allowed hosts, and the aliases of the
user's ssh configuration for them. Inside, it is /run/ssh.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ... import N_
from ...errors import SandboxError
from ..plan.resolver import SSH_FOLDER, agent_folder
from .hosts import USUAL_PORTS, HostRule, is_address
from .names import is_host_name

_TIMEOUT = 10.0
_SSH = 22
# Of the agent's protocol: the keys' names, and a signature. Others would add, remove or lock keys,
# or have the agent load a library.
_LIST, _SIGN = 11, 13
_EXTENSION, _BIND = 27, b"session-bind@openssh.com"
_FAILURE = b"\x00\x00\x00\x01\x05"
_LOGIN = 50
_LARGEST = 1 << 18
_MOST_CLIENTS = 32


class SshTarget(NamedTuple):
    """A host as the user's ssh configuration has it."""

    name: str
    host: str
    port: int
    user: str
    # Files with known keys, and the name of the keys in them.
    known: tuple[str, ...]
    key_name: str

    @classmethod
    def find(cls, name: str, port: int | None = None) -> SshTarget | None:
        """Ask ssh about a name; return None if there is no ssh."""
        given = ["-p", str(port)] if port not in (None, *USUAL_PORTS) else []
        text = _output(["ssh", "-G", *given, "--", name])
        if not text:
            return None
        lines = (line.partition(" ") for line in text.splitlines())
        found = {key: value for key, _space, value in lines}
        files = f"{found.get('userknownhostsfile', '')} {found.get('globalknownhostsfile', '')}"
        host, number = found.get("hostname", name).lower(), int(found.get("port") or _SSH)
        default = host if number == _SSH else f"[{host}]:{number}"
        return cls(
            name,
            host,
            number,
            found.get("user", ""),
            tuple(os.path.expanduser(file) for file in files.split()),
            found.get("hostkeyalias", "") or default,
        )

    def rules(self) -> list[HostRule]:
        """Return what else has to be allowed, because the name is an alias."""
        is_usable = is_host_name(self.host) or is_address(self.host)
        if not is_usable or (self.host == self.name and self.port in USUAL_PORTS):
            return []
        return [HostRule(self.host, None if self.port == _SSH else self.port)]

    def config(self) -> str:
        """Return the lines of an alias, for the configuration inside."""
        lines = [f"Host {self.name}"]
        lines += [f"  HostName {self.host}"] if self.host != self.name else []
        lines += [f"  Port {self.port}"] if self.port != _SSH else []
        # Otherwise it is the same inside.
        is_safe = self.user.replace("-", "").replace("_", "").replace(".", "").isalnum()
        is_own = self.user == pwd.getpwuid(os.getuid()).pw_name
        lines += [f"  User {self.user}"] if is_safe and not is_own else []
        return "\n".join(lines) + "\n" if len(lines) > 1 else ""

    def known_keys(self) -> str:
        """Return the lines of known_hosts for it, with its name only: a line of the user's may have
        others."""
        lines: dict[str, None] = {}
        name = self.host if self.port == _SSH else f"[{self.host}]:{self.port}"
        for file in self.known:
            if os.path.isfile(file):
                # It finds hashed names, too.
                text = _output(["ssh-keygen", "-F", self.key_name, "-f", file])
                for line in text.splitlines():
                    words = line.split()
                    marker = words[:1] if line.startswith("@") else []
                    if len(words) >= 3 and not line.startswith("#"):
                        lines[" ".join([*marker, name, *words[len(marker) + 1 :][:2]])] = None
        return "".join(f"{line}\n" for line in lines)


class SshAccess:
    """The user's ssh-agent, and what ssh needs to know, for one command."""

    def __init__(
        self, rules: Sequence[HostRule], environ: Mapping[str, str], runtime: Path
    ) -> None:
        self._agent = environ.get("SSH_AUTH_SOCK", "")
        if not self._agent or not os.path.exists(self._agent):
            raise SandboxError(
                N_("There is no ssh-agent."), N_("Start one, and add your key: ssh-add")
            )
        self._runtime = runtime
        self._folder = Path()
        named = (one for one in rules if not one.has_star and not one.is_local)
        found = (SshTarget.find(one.host, one.port) for one in named)
        self._targets = [target for target in found if target is not None]
        self._known: set[tuple[str, int]] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._clients: set[socket.socket] = set()

    def rules(self) -> list[HostRule]:
        """Return the hosts that aliases of the user's configuration stand for."""
        return [rule for target in self._targets for rule in target.rules()]

    def open(self, run_id: str) -> None:
        """Make the folder, and serve the socket in it."""
        _remove_old_folders(self._runtime)
        self._folder = agent_folder(self._runtime, run_id)
        # Under another name until it listens: otherwise it would be taken for an old one.
        new = self._folder.with_name(f"new-{self._folder.name}")
        new.mkdir(mode=0o700)
        with _short_path(new) as folder:
            self._listener.bind(f"{folder}/agent")
        self._listener.listen()
        new.rename(self._folder)
        (self._folder / "known_hosts").touch()
        (self._folder / "config").write_text(
            "".join(target.config() for target in self._targets)
            + f"Host *\n  UserKnownHostsFile {SSH_FOLDER}/known_hosts\n  UpdateHostKeys no\n"
        )
        for target in self._targets:
            self._add(target)
        threading.Thread(target=self._accept, name="ssh-agent", daemon=True).start()

    def close(self) -> None:
        # A thread that waits in accept() does not notice that it is closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        if self._folder.name:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add_host(self, host: str, port: int) -> None:
        """Give the command the known keys of a host that was allowed."""
        if (host, port) not in self._known:
            self._known.add((host, port))
            if (target := SshTarget.find(host, port)) is not None:
                self._add(target)

    def _add(self, target: SshTarget) -> None:
        self._known.add((target.host, target.port))
        with open(self._folder / "known_hosts", "a", encoding="utf-8") as file:
            file.write(target.known_keys())

    # --- the agent ---------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                if len(self._clients) >= _MOST_CLIENTS:
                    client.close()
                    continue
                self._clients.add(client)
                threading.Thread(
                    target=self._serve, args=(client,), name="ssh-agent", daemon=True
                ).start()

    def _serve(self, client: socket.socket) -> None:
        """Pass on what a client may ask the agent for, one request after the other."""
        try:
            with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
                agent.connect(self._agent)
                while request := _message(client):
                    if not may_pass(request):
                        client.sendall(_FAILURE)
                        continue
                    agent.sendall(len(request).to_bytes(4, "big") + request)
                    answer = _message(agent)
                    client.sendall(len(answer).to_bytes(4, "big") + answer)
        except OSError:
            return  # one of them has ended
        finally:
            self._clients.discard(client)


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Yield a path of a folder that is short enough for sockets in it."""
    number = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _remove_old_folders(runtime: Path) -> None:
    """Remove what programs have left that were killed."""
    for path in runtime.glob("ssh-*/agent"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(0)
            try:
                with _short_path(path.parent) as folder:
                    one.connect(f"{folder}/agent")
            except ConnectionRefusedError:
                shutil.rmtree(path.parent, ignore_errors=True)
            except OSError:
                continue  # it is in use, or has just gone


def may_pass(request: bytes) -> bool:
    """Return whether a request to an agent is for the names of keys, or for a login."""
    kind, rest = request[0], request[1:]
    if kind == _LIST:
        return len(request) == 1
    if kind == _EXTENSION:
        return _string(rest)[0] == _BIND
    if kind != _SIGN:
        return False
    _key, rest = _string(rest)
    data, _flags = _string(rest)
    # A login is signed together with the session's number. Anything else would be a signature of
    # the user's under a file or a commit.
    session, login = _string(data)
    return 0 < len(session) <= 64 and login[:1] == bytes([_LOGIN])


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of a message, and the rest."""
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]


def _message(source: socket.socket) -> bytes:
    """Return one message; nothing at the end, or if it is too large."""
    size = int.from_bytes(_exactly(source, 4), "big")
    return _exactly(source, size) if size <= _LARGEST else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _output(argv: Sequence[str]) -> str:
    """Return what a program of ssh prints; nothing if it fails, or is not there."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
            encoding="utf-8",
            errors="replace",
        ).stdout
    return ""
