# SPDX-License-Identifier: GPL-3.0-or-later
"""What the attacks have in common: programs to run on both sides of the wall, and things outside
that must not notice."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import socket
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import Person

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.result import Result

IS_ROOT = os.getuid() == 0

NUMBERS: dict[str, int] = {
    "x86_64": {
        "socket": 41, "socketpair": 53, "shmget": 29, "semget": 64, "msgget": 68, "shmat": 30,
        "ioctl": 16, "ptrace": 101, "tgkill": 234, "rt_sigqueueinfo": 129, "mq_open": 240,
        "ioprio_set": 251, "ioprio_get": 252, "add_key": 248, "request_key": 249, "keyctl": 250,
        "process_vm_readv": 310, "process_vm_writev": 311, "mount": 165, "umount2": 166,
    },
    "aarch64": {
        "socket": 198, "socketpair": 199, "shmget": 194, "semget": 190, "msgget": 186,
        "shmat": 196, "ioctl": 29, "ptrace": 117, "tgkill": 131, "rt_sigqueueinfo": 138,
        "mq_open": 180, "ioprio_set": 30, "ioprio_get": 31, "add_key": 217, "request_key": 218,
        "keyctl": 219, "process_vm_readv": 270, "process_vm_writev": 271, "mount": 40,
        "umount2": 39,
    },
}[platform.machine()] | {
    # The same everywhere.
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "pidfd_open": 434,
    "pidfd_getfd": 438, "mount_setattr": 442,
}  # fmt: skip

_PRELUDE = f"""
import ctypes, errno, fcntl, os, signal, socket, stat, struct, sys, time
NUMBERS = {NUMBERS!r}
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    number = NUMBERS.get(name, name)
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)]
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(*passed)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def meanwhile_outside():
    go = os.environ["HOME"] + "/playground/go"
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.005)
"""


def python(code: str) -> str:
    """Shell text that runs a program; it finds the usual modules imported, and call()."""
    return shlex.join(["/usr/bin/python3", "-IS", "-c", _PRELUDE + textwrap.dedent(code)])


def attempt(code: str) -> str:
    """The same; says `succeeded`, or `refused` and why."""
    body = textwrap.indent(textwrap.dedent(code).strip("\n"), "    ")
    return python(
        f"try:\n{body}\n"
        "except OSError as error:\n"
        "    print('refused', errno.errorcode.get(error.errno, type(error).__name__))\n"
        "    sys.exit(1)\n"
        "print('succeeded')"
    )


def works_outside(person: Person, attack: str) -> bool:
    done = person.run_outside(attack)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode == 0 and done.stdout.endswith("succeeded\n")


def refusal(person: Person, attack: str, **options: Any) -> str:
    """Run an attempt in the sandbox; why it was refused, "" if it was not."""
    result = person.run(attack, **options)
    assert result.stderr.text == "", result.stderr.text
    word, _, why = result.stdout.text.rstrip("\n").rpartition("\n")[2].partition(" ")
    assert word in ("refused", "succeeded"), result.stdout.text
    return why if word == "refused" else ""


def run_while(person: Person, command: str, act: Callable[[], object], **options: Any) -> Result:
    """`act` happens outside while the command runs: after its first output. Then there is a file
    `go` in the playground: of the project a command sees what was there when it began."""
    acted = False

    async def noticed(_data: bytes) -> None:
        nonlocal acted
        if not acted:
            acted = True
            act()
            (person.playground / "go").touch()

    return loop.run(person.bubble(**options).exec(command, sinks=Sinks(noticed)))


@contextmanager
def folder_elsewhere(otherwise: Path) -> Iterator[Path]:
    """A folder that is neither in the home folder nor in one for temporary files. Only root can
    make one; for others it is `otherwise`."""
    if not IS_ROOT:
        otherwise.mkdir()
        yield otherwise
        return
    made = Path(tempfile.mkdtemp(dir="/srv" if os.path.isdir("/srv") else "/opt"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def look(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a folder that an attack may change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (seen.st_mode, seen.st_ino, seen.st_mtime_ns, seen.st_nlink, content)
    return found


class Listener:
    """A server outside. Whoever gets through to it is noticed."""

    def __init__(self, family: int, kind: int, address: Any) -> None:
        self.socket = socket.socket(family, kind)
        self._kind = kind
        self.socket.bind(address)
        if kind != socket.SOCK_DGRAM:
            self.socket.listen()
        self.socket.setblocking(False)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    @property
    def address(self) -> Any:
        return self.socket.getsockname()

    def reached(self) -> bool:
        """Whether anybody came since it was asked last."""
        # Loopback delivers at once; a moment is for a busy machine.
        for _ in range(3):
            try:
                if self._kind == socket.SOCK_DGRAM:
                    self.socket.recv(100)
                else:
                    self.socket.accept()[0].close()
            except BlockingIOError:
                time.sleep(0.002)
            else:
                return True
        return False
