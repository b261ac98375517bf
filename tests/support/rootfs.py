# SPDX-License-Identifier: GPL-3.0-or-later
"""A small system that is like Alpine where it matters, and a mirror that serves it.

The system is made of a static busybox, with an `apk` of a few lines that fetches real packages from
the mirror: among them the machine's own bash and Python.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.person import Person, make_person

from ollmsandbox import loop
from ollmsandbox.sandbox.rootfs.extract import extract_rootfs
from ollmsandbox.sandbox.rootfs.install import InstallResult
from ollmsandbox.sandbox.rootfs.packages import TIERS
from ollmsandbox.sandbox.rootfs.release import detect_arch
from ollmsandbox.sandbox.rootfs.rootfs import Rootfs
from ollmsandbox.sandbox.rootfs.sandbox import RootfsSandbox
from ollmsandbox.sandbox.rootfs.settings import RootfsSettings
from ollmsandbox.sandbox.rootfs.store import Installed, RootfsStore, find_rootfs

VERSION = "3.99.1"
ARCH = detect_arch()

_APK = """\
#!/bin/sh
[ "$1" = add ] || exit 2
shift
if [ "$1" = --help ]; then echo "--force-no-chroot and --no-chown are known"; exit; fi
for name; do
    case $name in --*) continue ;; esac
    found=
    for place in $(cat /etc/apk/repositories); do
        if wget -q -O "/tmp/$name" "$place/$name.tar.gz"; then found=yes; break; fi
    done
    if [ -z "$found" ]; then echo "ERROR: $name (no such package)" >&2; exit 1; fi
    echo "Installing $name"
    tar -xzf "/tmp/$name" -C / || exit 1
    mkdir -p /lib/apk/db
    printf 'P:%s\\nV:9.8.7-r0\\nF:usr/bin\\nR:%s\\n\\n' "$name" "$name" >>/lib/apk/db/installed
done
"""
# What the attacks import, and what a plain start imports.
_LIST = """\
import sys
import ctypes, errno, fcntl, os, signal, socket, stat, struct, time, encodings.idna
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print(module.__file__)
"""


@dataclass(frozen=True)
class Entry:
    name: str
    content: bytes = b""
    mode: int = 0o644
    type: bytes = tarfile.REGTYPE
    link: str = ""


# Python, as far as it is looked for.
PYTHON = Entry("./usr/bin/python3", b"#!/bin/sh\necho Python 3.0.1\n", 0o755)


def folder(name: str, mode: int = 0o755) -> Entry:
    return Entry(name, mode=mode, type=tarfile.DIRTYPE)


def link(name: str, target: str) -> Entry:
    return Entry(name, type=tarfile.SYMTYPE, link=target)


def tarball(entries: list[Entry]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.size, member.mode = len(entry.content), entry.mode
            member.type, member.linkname = entry.type, entry.link
            member.mtime, member.uid, member.gid = 1_700_000_000, 12345, 54321
            archive.addfile(member, io.BytesIO(entry.content))
    return gzip.compress(made.getvalue(), 0)


def raw(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, content: bytes = b"") -> bytes:
    """Return an entry of an archive, whose header need not be true."""
    header = tarfile.TarInfo(name)
    header.type, header.size = kind, size
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def pax(kind: bytes, **attributes: str) -> bytes:
    """Return an entry with attributes of the next entry, or of all that follow."""
    text = b""
    for name, value in attributes.items():
        pair = f" {name}={value}\n".encode()
        length = len(pair) + 1
        while len(str(length)) + len(pair) != length:
            length += 1
        text += str(length).encode() + pair
    return raw("attributes", kind, len(text), text)


def unpack(sandbox: RootfsSandbox, data: bytes, **limits: int) -> None:
    file = sandbox.folder.parent / "given.tar.gz"
    file.write_bytes(data)
    loop.run(extract_rootfs(sandbox, file, None, **limits))


@cache
def base() -> tuple[Entry, ...]:
    """Return the entries of the real system, without its programs."""
    busybox = shutil.which("busybox")
    assert busybox, "Debian's busybox-static is needed"
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    folders = "bin dev etc etc/apk home lib media mnt opt proc root run sbin srv sys tmp usr "
    folders += "usr/bin usr/sbin usr/local usr/local/bin var var/tmp"
    return (
        folder("./"),
        *(folder(f"./{name}/") for name in folders.split()),
        Entry("./bin/busybox", Path(busybox).read_bytes(), 0o755),
        # As Alpine has it: to the busybox of the system, wherever that is.
        *(link(f"./bin/{n}", "/bin/busybox") for n in names.stdout.split() if n != "busybox"),
        # For what needs root, such as su.
        Entry("./bin/bbsuid", b"#!/bin/sh\n", 0o4755),
        Entry("./sbin/apk", _APK.encode(), 0o755),
        Entry("./etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        Entry("./etc/group", b"root:x:0:\n"),
        Entry("./etc/apk/repositories", b"https://nowhere.invalid/main\n"),
    )


@cache
def system(version: str = VERSION, *more: Entry) -> bytes:
    release = Entry("./etc/alpine-release", f"{version}\n".encode())
    return tarball([*base(), release, *more])


def _program(path: str) -> list[Entry]:
    """Return a program with its libraries."""
    found = {path}
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        found |= {word for word in line.split() if word.startswith("/")}
    return [Entry(f".{one}", Path(one).read_bytes(), 0o755) for one in sorted(found)]


@cache
def packages() -> Mapping[str, bytes]:
    """Return each package as the archive that `apk` fetches."""
    made = {
        name: tarball(
            [
                Entry(f"./usr/share/{name}", b"of the package\n"),
                Entry(f"./usr/bin/{name}", f"#!/bin/sh\necho {name} 9.8.7\n".encode(), 0o755),
            ]
        )
        for name in TIERS[2].packages
        if name not in ("coreutils", "grep", "sed", "findutils", "tar", "wget", "unzip", "gawk")
    }
    empty = [n for n in TIERS[2].packages if n not in made]
    made |= {name: tarball([Entry(f"./usr/share/{name}", b"of the package\n")]) for name in empty}
    bash = os.path.realpath("/bin/bash")
    links = [] if bash == "/bin/bash" else [link("./bin/bash", bash)]
    made["bash"] = tarball([*_program(bash), *links])
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    files: set[str] = set()
    for options in (["-IS"], ["-I"]):
        done = subprocess.run(
            [python, *options, "-c", _LIST], capture_output=True, text=True, check=True
        )
        files |= {line for line in done.stdout.splitlines() if "/dist-packages/" not in line}
    entries = {e.name: e for e in _program(python)}
    for file in files:
        found = _program(file) if file.endswith(".so") else [Entry(f".{file}", _bytes(file))]
        entries |= {e.name: e for e in found}
    made["python3"] = tarball([*entries.values(), link("./usr/bin/python3", python)])
    return made


def _bytes(file: str) -> bytes:
    return Path(file).read_bytes()


@dataclass
class Mirror:
    """A real server. Its files and faults can be changed while it runs."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    # By path: after this number of bytes the connection breaks, once per number.
    breaks: dict[str, list[int]] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    # By path: where it leads instead.
    redirects: dict[str, str] = field(default_factory=dict)
    # What was sent along to say who asks.
    credentials: list[str] = field(default_factory=list)
    # Whether it can begin in the middle of a file.
    ranges: bool = True
    # What was asked for: the path, and from which byte on.
    asked: list[tuple[str, str]] = field(default_factory=list)
    # Called when a path is asked for.
    when: Callable[[str], object] = lambda _path: None

    @property
    def settings(self) -> RootfsSettings:
        return RootfsSettings(mirror=self.address, tier=1)

    def has(self, version: str, content: bytes, branch: str = "latest-stable") -> str:
        """Make this the newest release; return the path of its tarball."""
        name = f"alpine-minirootfs-{version}-{ARCH}.tar.gz"
        where = f"/{branch}/releases/{ARCH}"
        listed = (
            f"- flavor: alpine-virt\n  version: {version}\n  file: other.iso\n  sha256: '00'\n"
            f"- flavor: alpine-minirootfs\n  version: {version}\n  file: {name}\n"
            f"  size: {len(content)}\n  sha256: {hashlib.sha256(content).hexdigest()}\n"
        )
        self.files[f"{where}/latest-releases.yaml"] = listed.encode()
        self.files[f"{where}/{name}"] = content
        return f"{where}/{name}"

    def has_packages(self, version: str) -> None:
        short = ".".join(version.split(".")[:2])
        for package, archive in packages().items():
            self.files[f"/v{short}/main/{package}.tar.gz"] = archive

    def fetched(self, path: str) -> list[str]:
        return [begin for asked, begin in self.asked if asked == path]


@contextmanager
def mirror() -> Iterator[Mirror]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path
            begin = self.headers.get("Range", "")
            served.asked.append((path, begin))
            served.credentials += self.headers.get_all("Authorization", [])
            served.when(path)
            content = served.files.get(path)
            status = served.status.get(path, 404 if content is None else 200)
            content = content or b""
            whole = len(content)
            if status == 200 and begin and served.ranges:
                start = int(begin.removeprefix("bytes=").rstrip("-"))
                status, content = (206, content[start:]) if start < whole else (416, b"")
            leads = served.redirects.get(path)
            if leads is not None:
                status, content = 302, b""
            self.send_response(status)
            if leads is not None:
                self.send_header("Location", leads)
            if status == 206:
                self.send_header(
                    "Content-Range", f"bytes {whole - len(content)}-{whole - 1}/{whole}"
                )
            if status >= 400:
                content = b""
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if served.breaks.get(path):
                content = content[: served.breaks[path].pop(0)]
                self.close_connection = True
            self.wfile.write(content)

        def log_message(self, *_words: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_about: object) -> None:
            return  # whoever asked went away

    with Server(("127.0.0.1", 0), Handler) as server:
        served = Mirror(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()


@contextmanager
def quick_mirror(tier: int, repository: str) -> Iterator[Mirror]:
    """Yield a mirror whose packages are quick to install."""
    with mirror() as served:
        served.has(VERSION, system())
        for name in TIERS[tier].packages:
            small = [PYTHON] if name == "python3" else [Entry(f"./usr/share/{name}", b"x")]
            served.files[f"/v3.99/{repository}/{name}.tar.gz"] = tarball(small)
        yield served


def prepare(person: Person, served: Mirror, **options: Any) -> InstallResult:
    settings = options.pop("settings", served.settings)
    person._copy_probe()
    rootfs = Rootfs(person.paths, person.environ, settings)
    return loop.run(rootfs.prepare(**options))


def built(factory: pytest.TempPathFactory) -> Installed:
    person = make_person(factory.mktemp("alpine"))
    with mirror() as served:
        served.has(VERSION, system())
        served.has_packages(VERSION)
        return prepare(person, served).installed


def install(person: Person, made: Installed) -> Installed:
    """Install it by hard links, as if this user had installed it."""
    store = RootfsStore(person.paths.rootfs)
    store.folder.mkdir(parents=True, mode=0o700)
    name = os.path.basename(made.folder)
    shutil.copytree(made.folder, store.folder / name, symlinks=True, copy_function=os.link)
    store.use(name)
    found = find_rootfs(person.paths, person.environ)
    assert found is not None
    return found
