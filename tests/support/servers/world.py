# SPDX-License-Identifier: GPL-3.0-or-later
"""A small internet of its own: a network namespace with public-looking addresses on its loopback
device, names for them, and servers. `in_world` runs Python code in it.

In the code, `run(command, hosts=..., answer=...)` runs a command in the sandbox with the network by
host and returns a `Ran`; `asked` lists the questions.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import ctypes
import fcntl
import os
import pty
import socket
import ssl
import struct
import subprocess
import sys  # noqa: F401  for the code in a world
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from support import cli_server
from support.timing import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PUBLIC, OTHER, PRIVATE, METADATA = "203.0.113.5", "203.0.113.6", "10.1.2.3", "169.254.169.254"
HOSTS = f"""
127.0.0.1 localhost evil.example.org
{PUBLIC} www.example.org files.example.org xn--bcher-kva.example
{OTHER} other.example.org
{PRIVATE} intra.example.org
{METADATA} meta.example.org
203.0.113.77 dead.example.org
"""
_NEWNS, _NEWUSER, _NEWNET = 0x20000, 0x10000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MS_BIND = 0x4000, 0x40000, 0x1000
_SIOCSIFADDR, _SIOCSIFFLAGS = 0x8916, 0x8914
_libc = ctypes.CDLL(None, use_errno=True)


def in_world(tmp_path: Path, code: str) -> str:
    """Run code in a world of its own, as the present user; return what it prints. It fails the test
    if it raises."""
    home = tmp_path / "home"
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", "HOME": str(home)}
    kept = _write_probe(home, environ)
    begin = f"from support.servers.world import *\nenter({str(tmp_path)!r}, is_forking=True)\n"
    text = begin + textwrap.dedent(code)
    status, *said = cli_server.server().run((), str(tmp_path), environ, code=text)
    out, errors = (part.decode() for part in said)
    assert status == 0, out + errors
    if not _found_out and kept.exists():
        for pattern in ("profile-*.json", "seccomp-*.bpf"):
            _found_out.update({file.name: file.read_bytes() for file in kept.parent.glob(pattern)})
        _found_out["probe"] = kept.read_bytes()
    return out


# What the first world found out of the machine, which is the same in all of them: the files of the
# cache. To probe takes as long as all else in a world in which one command runs.
_found_out: dict[str, bytes] = {}


def _write_probe(home: Path, environ: Mapping[str, str]) -> Path:
    """Write what another world found out, and return the file with the result of the probe."""
    from ollmsandbox.paths import Paths, make_folder
    from ollmsandbox.sandbox.probe.probe import cache_file

    home.mkdir(exist_ok=True)
    file = cache_file(Paths.from_environ(environ), environ)
    for name, content in _found_out.items():
        (make_folder(file.parent) / (file.name if name == "probe" else name)).write_bytes(content)
    return file


# --- inside --------------------------------------------------------------------------------------

_folder = Path()
_programs: cli_server.Server | None = None
asked: list[tuple[str, int, str]] = []
# The bytes that each server received, by address and port.
received: dict[tuple[str, int], int] = {}


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    # By name: whether it was allowed, and why not.
    uses: dict[str, tuple[bool | None, str]]
    refusals: tuple[str, ...]


def enter(folder: str, *, is_forking: bool = False) -> None:
    """Make the namespaces, the addresses, the names and the servers; and a process that `cli`
    forks, if this one has the modules for that."""
    global _folder, _programs
    _folder = Path(folder)
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEWNS | _NEWNET | (_NEWUSER if uid else 0)))
    if uid:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            Path(f"/proc/self/{name}").write_text(line)
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    names = _folder / "hosts"
    names.write_text(HOSTS)
    _check(_libc.mount(os.fsencode(names), b"/etc/hosts", None, _MS_BIND, None))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        up = struct.pack("16sH22x", b"lo", 1 | 8 | 64)
        fcntl.ioctl(control, _SIOCSIFFLAGS, up)
        for number, address in enumerate((PUBLIC, OTHER, PRIVATE, METADATA), 1):
            given = struct.pack(
                "16sHH4s8x", b"lo:%d" % number, socket.AF_INET, 0, socket.inet_aton(address)
            )
            fcntl.ioctl(control, _SIOCSIFADDR, given)
    (_folder / "home").mkdir(exist_ok=True)
    (_folder / "project").mkdir(exist_ok=True)
    # Now, because this process has no threads yet.
    _programs = cli_server.Server(is_loaded=True) if is_forking else None
    for address in (PUBLIC, OTHER, PRIVATE, METADATA, "127.0.0.1"):
        serve_http(address, 80)
    serve_http(PUBLIC, 8443)
    serve_http("127.0.0.1", 5432)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        here = self.connection.getsockname()[:2]
        received[here] = received.get(here, 0) + len(self.path)
        size = int(self.path[1:]) if self.path[1:].isdigit() else 0
        body = b"x" * size if size else f"hello from {here[0]} as {self.headers['Host']}".encode()
        file = _folder / "www" / self.path[1:].partition("?")[0]
        if file.is_file():
            body = file.read_bytes()
        elif file.name == "missing" or (_folder / "www" / "repository.git") in file.parents:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 2048
    daemon_threads = True

    def server_bind(self) -> None:
        # Not the one of HTTPServer, which looks the name of the host up.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]


def serve_http(address: str, port: int, context: ssl.SSLContext | None = None) -> None:
    server = _Server((address, port), _Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def serve_https(address: str, names: Sequence[str]) -> Path:
    """Serve pages with TLS, for these names; return the certificate of the test authority."""
    key, certificate = _folder / "key.pem", _folder / "certificate.pem"
    alternatives = ",".join(f"DNS:{name}" for name in names)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", certificate, "-days", "2"),
            *("-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    serve_http(address, 443, context)
    (_folder / "project" / "ca.pem").write_bytes(certificate.read_bytes())
    return certificate


def serve_ssh(address: str, *names: str) -> Path:
    """Serve ssh for the present user, who has a key in an agent and hashed known hosts; return a
    git repository for it."""
    home = _folder / "home"
    (home / ".ssh").mkdir(mode=0o700)
    users = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    others = [":".join(user) for user in users if user[2] != str(os.getuid())]
    own = f"tester:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh"
    passwd = _folder / "passwd"
    passwd.write_text("\n".join([own, *others, ""]))
    _check(_libc.mount(os.fsencode(passwd), b"/etc/passwd", None, _MS_BIND, None))
    # sshd wants an empty folder there.
    (_folder / "run" / "sshd").mkdir(parents=True)
    _check(_libc.mount(os.fsencode(_folder / "run"), b"/run", None, _MS_BIND, None))
    # What is in there is root's, who is nobody here, and ssh would refuse it.
    included = _folder / "included"
    included.mkdir()
    _check(_libc.mount(os.fsencode(included), b"/etc/ssh/ssh_config.d", None, _MS_BIND, None))
    for key in (_folder / "host_key", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = (_folder / "host_key.pub").read_text().rsplit(" ", 1)[0]
    known = home / ".ssh" / "known_hosts"
    known.write_text("".join(f"{name} {public}\n" for name in (*names, "unrelated.example.org")))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    agent = _folder / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    atexit.register(process.kill)
    while not agent.exists():
        assert process.poll() is None
    os.environ["SSH_AUTH_SOCK"] = str(agent)
    subprocess.run(["ssh-add", "-q", home / ".ssh" / "id_ed25519"], check=True, capture_output=True)
    settings = {
        "HostKey": _folder / "host_key",
        "AuthorizedKeysFile": home / ".ssh" / "id_ed25519.pub",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
    }
    config = _folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    for port in (22, 2222):
        listener = socket.create_server((address, port))
        threading.Thread(target=_serve_ssh, args=(listener, config), daemon=True).start()
    repository = _folder / "repository.git"
    subprocess.run(["git", "init", "-q", "--bare", repository], check=True)
    return repository


def _serve_ssh(listener: socket.socket, config: Path) -> None:
    while True:
        client, _address = listener.accept()
        with client:
            number = client.fileno()
            command = ["/usr/sbin/sshd", "-i", "-f", str(config)]
            subprocess.Popen(command, stdin=number, stdout=number, stderr=subprocess.DEVNULL)


def serve_proxy(
    port: int, names: Mapping[str, tuple[str, int]], login: str = ""
) -> list[tuple[str, int]]:
    """Serve a proxy on this computer, by HTTP and by SOCKS, that knows some hosts and may want a
    user and password; return the list of what it is asked for."""
    asked_for: list[tuple[str, int]] = []
    listener = socket.create_server(("127.0.0.1", port))

    def talk(client: socket.socket) -> None:
        with client, client.makefile("rwb", buffering=0) as stream:
            target = _socks_target if client.recv(1, socket.MSG_PEEK) == b"\5" else _http_target
            found = target(stream, login)
            if found is None:
                return
            (host, number), yes, no = found
            asked_for.append((host, number))
            if host not in names:
                stream.write(no)
                return
            with socket.create_connection(names[host]) as server:
                stream.write(yes)
                back = threading.Thread(target=_carry, args=(server, client), daemon=True)
                back.start()
                _carry(client, server)
                back.join()

    def accept() -> None:
        while True:
            threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return asked_for


_Target = tuple[tuple[str, int], bytes, bytes]


def _http_target(stream: socket.SocketIO, login: str) -> _Target | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.read(1) or b""
    method, where, _version = head.split(b"\r\n")[0].decode().split()
    host, number = where.rsplit(":", 1)
    wanted = base64.b64encode(login.encode())
    no = b"HTTP/1.1 502 Bad Gateway\r\n\r\n"
    if method != "CONNECT" or (login and b"Proxy-Authorization: Basic " + wanted not in head):
        stream.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        return None
    return (host, int(number)), b"HTTP/1.1 200 OK\r\nVia: test\r\n\r\n", no


def _socks_target(stream: socket.SocketIO, login: str) -> _Target | None:
    methods = (stream.read((stream.read(2) or b"")[1])) or b""
    wanted = 2 if login else 0
    if wanted not in methods:
        stream.write(b"\5\xff")
        return None
    stream.write(bytes([5, wanted]))
    if login:
        user = (stream.read((stream.read(2) or b"")[1]) or b"").decode()
        password = (stream.read((stream.read(1) or b"")[0]) or b"").decode()
        stream.write(b"\1\0" if f"{user}:{password}" == login else b"\1\1")
    size = (stream.read(5) or b"")[4]
    host, number = (stream.read(size) or b"").decode(), int.from_bytes(stream.read(2) or b"", "big")
    end = b"\0\1\0\0\0\0\0\0"
    return (host, number), b"\5\0" + end, b"\5\4" + end


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def write_script(text: str) -> None:
    """Write a Python program to the project, as `script.py`."""
    (_folder / "project" / "script.py").write_text(text)


def run(
    command: str,
    hosts: Sequence[str] = (),
    answer: Callable[[str, int, str], bool] | None = None,
    wait: float = 0.0,
    timeout: float = PATIENCE,
    ssh_agent: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Ran:
    """Run a command with the network by host. Without `answer`, nobody can be asked."""
    from ollmsandbox import loop
    from ollmsandbox.paths import Paths
    from ollmsandbox.sandbox.bubble import Bubble
    from ollmsandbox.sandbox.network.hosts import parse_hosts
    from ollmsandbox.sandbox.network.network import HostNetwork
    from ollmsandbox.sandbox.network.ssh import SshAccess
    from ollmsandbox.sandbox.spec import RunSpec

    def ask(
        host: str, port: int, address: str, answered: Callable[[bool], None]
    ) -> Callable[[], None]:
        asked.append((host, port, address))

        def late() -> None:
            assert answer is not None
            answered(answer(host, port, address))

        timer = threading.Timer(wait, late)
        timer.start()
        return timer.cancel

    async def once() -> Ran:
        rules = parse_hosts(hosts)
        runtime = Paths.from_environ(os.environ).runtime
        ssh = SshAccess(rules, os.environ, runtime) if ssh_agent else None
        asker = ask if answer is not None else None
        network = HostNetwork(rules, asker, ssh=ssh, environ=environ)
        bubble = Bubble(RunSpec(str(_folder / "project"), timeout=timeout), hosts=network)
        result = await bubble.exec(command)
        uses = {
            str(use): (use.allowed, use.trouble.name if use.trouble else "") for use in network.uses
        }
        out, errors = result.stdout.text, result.stderr.text
        return Ran(result.exit_code, out, errors, uses, result.refusals)

    return loop.run(once())


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `ollmsandbox` in the project."""
    assert _programs is not None
    status, *said = _programs.run(arguments, str(_folder / "project"), os.environ)
    return subprocess.CompletedProcess(arguments, status, *(part.decode() for part in said))


def at_terminal(arguments: Sequence[str], question: str, answer: str) -> str:
    """Run `ollmsandbox` at a terminal, answer the question, and return what it shows."""
    assert _programs is not None
    terminal, theirs = pty.openpty()
    place = str(_folder / "project")
    started = _programs.start(
        *(arguments, place, os.environ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            shown += part
            if question.encode() in shown and answer:
                os.write(terminal, answer.encode())
                answer = ""
    started.wait()
    os.close(terminal)
    return shown.decode()
