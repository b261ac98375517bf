# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for attacks: programs that run inside and outside the sandbox, and things outside that
must not change."""

from __future__ import annotations

import ast
import os
import platform
import shlex
import shutil
import socket
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.person import Person

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Result, Sinks

IS_ROOT = os.getuid() == 0

_MACHINE = ("x86_64", "aarch64").index(platform.machine())
# By number on either: a program that wants in does not ask a library for the name.
_OLD = {
    "socket": (41, 198), "socketpair": (53, 199), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "shmat": (30, 196), "ioctl": (16, 29), "ptrace": (101, 117),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "mq_open": (240, 180),
    "ioprio_set": (251, 30), "ioprio_get": (252, 31), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "fcntl": (72, 25), "unshare": (272, 97), "clone": (56, 220),
    "personality": (135, 92), "seccomp": (317, 277), "io_setup": (206, 0), "exit": (60, 93),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
}  # fmt: skip
_OLD_REFUSED = {
    # other file systems and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "setns": (308, 268),
    "fanotify_init": (300, 262),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "syslog": (103, 116), "lookup_dcookie": (212, 18), "iopl": (172, -1), "ioperm": (173, -1),
    # the machine's clock and name
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    # what all processes of a user share
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
# Since 2019 a system call has the same number everywhere.
_NEW_REFUSED = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "open_tree_attr": 467,
}  # fmt: skip
# The system calls that no command can use.
REFUSED = [name for name, both in _OLD_REFUSED.items() if both[_MACHINE] >= 0] + [*_NEW_REFUSED]
NUMBERS = {name: both[_MACHINE] for name, both in (_OLD | _OLD_REFUSED).items()} | _NEW_REFUSED

_CALL = f"""
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
"""
_MEANWHILE = """
def meanwhile_outside():
    go = os.environ["HOME"] + "/playground/go"
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.005)
"""
# All of them take 20 ms, twice as long as Python itself.
_MODULES = (
    "ctypes", "errno", "fcntl", "os", "signal", "socket", "stat", "struct", "sys", "time",
)  # fmt: skip


KINDS = {
    "stream": socket.SOCK_STREAM,
    "datagram": socket.SOCK_DGRAM,
    "packet": socket.SOCK_SEQPACKET,
}


def python(code: str) -> str:
    """Return shell text that runs a Python program with those of the usual modules, and of
    the functions above, that it names."""
    program = textwrap.dedent(code)
    if any(name in program for name in ("call", "libc", "NUMBERS")):
        program = _CALL + program
    if "meanwhile_outside" in program:
        program = _MEANWHILE + program
    program = "".join(f"import {name}\n" for name in _MODULES if name in program) + program
    return shlex.join(["/usr/bin/python3", "-IS", "-c", program])


def attempt(code: str) -> str:
    """Return shell text that runs a program and prints `succeeded`, or `refused` and why."""
    body = textwrap.indent(textwrap.dedent(code).strip("\n"), "    ")
    return python(
        f"try:\n{body}\n"
        "except OSError as error:\n"
        "    print('refused', errno.errorcode.get(error.errno, type(error).__name__))\n"
        "    sys.exit(1)\n"
        "print('succeeded')"
    )


def dedented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())


def attempts(codes: Mapping[str, str], first: str = "") -> str:
    """Return shell text for many independent attempts, each in a process of its own: most of the
    time goes into the sandbox and the start of a program. `first` runs before all of them."""
    each = {name: textwrap.dedent(code).strip("\n") for name, code in codes.items()}
    return python(f"""
{first}
for name, code in {each!r}.items():
    child = os.fork()
    if child == 0:
        said = 'succeeded'
        try:
            exec(code, dict(globals()))
        except OSError as error:
            said = 'refused ' + errno.errorcode.get(error.errno, type(error).__name__)
        except BaseException as error:
            said = f'Traceback: {{error!r}}'
        os.write(1, f'{{(name, said)}}\\n'.encode())
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print((name, f'died {{status}}'), flush=True)
""")


def refusals(person: Person, codes: Mapping[str, str], **options: Any) -> dict[str, str]:
    """Make all attempts in one sandbox; return why each was refused, "" if it was not."""
    result = person.run(attempts(codes), **options)
    assert result.stderr.text == "", result.stderr.text
    return reasons(codes, result.stdout.text)


def reasons(codes: Mapping[str, str], output: str) -> dict[str, str]:
    said = _answers(codes, output)
    for name, answer in said.items():
        assert answer == "succeeded" or answer.startswith("refused "), f"{name}: {answer}"
    return {name: answer.partition(" ")[2] for name, answer in said.items()}


def work_outside(person: Person, codes: Mapping[str, str]) -> dict[str, bool]:
    """Make all attempts without the sandbox; return whether each succeeded."""
    done = person.run_outside(attempts(codes))
    assert done.stderr == "", done.stderr
    said = _answers(codes, done.stdout)
    for name, answer in said.items():
        assert "Traceback" not in answer, f"{name}: {answer}"
    return {name: answer == "succeeded" for name, answer in said.items()}


def _answers(codes: Mapping[str, str], output: str) -> dict[str, str]:
    pairs = [ast.literal_eval(line) for line in output.splitlines()]
    # Each once, so that none can speak for another.
    assert [name for name, _ in pairs] == list(codes), output
    return dict(pairs)


_NEXT = "\n=== next ===\n"


def one_by_one(commands: Iterable[str]) -> str:
    """Return shell text that runs each in a shell of its own, with a mark before the next one."""
    return "\n".join(f"(\n{command}\n)\nprintf %s {shlex.quote(_NEXT)}" for command in commands)


def said_by_each(commands: Iterable[str], output: str) -> dict[str, str]:
    """Return the output of each, in order."""
    names = list(commands)
    *pieces, rest = output.split(_NEXT)
    assert (len(pieces), rest) == (len(names), ""), output
    return dict(zip(names, pieces, strict=True))


def works_outside(person: Person, attack: str) -> bool:
    done = person.run_outside(attack)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode == 0 and done.stdout.endswith("succeeded\n")


def refusal(person: Person, attack: str, **options: Any) -> str:
    """Run an attempt in the sandbox; return why it was refused, "" if it was not."""
    result = person.run(attack, **options)
    assert result.stderr.text == "", result.stderr.text
    word, _, why = result.stdout.text.rstrip("\n").rpartition("\n")[2].partition(" ")
    assert word in ("refused", "succeeded"), result.stdout.text
    return why if word == "refused" else ""


def run_while(person: Person, command: str, act: Callable[[], object], **options: Any) -> Result:
    """Call `act` outside after the command's first output, then create a file `go` in the
    playground: a command sees the project as it was at its start."""
    acted = False

    def noticed(_data: bytes) -> None:
        nonlocal acted
        if not acted:
            acted = True
            act()
            (person.playground / "go").touch()

    person.share_playground()
    return loop.run(person.bubble(**options).exec(command, sinks=Sinks(noticed)))


@contextmanager
def folder_elsewhere(otherwise: Path) -> Iterator[Path]:
    """Yield a folder that is neither in the home folder nor in one for temporary files. Only root
    can make one; others get `otherwise`."""
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


def writable_caches(person: Person) -> set[str]:
    """Return the mount points of the caches of a user who has only the usual one: overlays, and a
    folder of the project's own."""
    moved = ("PYENV_ROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR", "GOPATH", "PIP_CACHE_DIR")
    places = [person.environ[name] for name in moved if name in person.environ]
    there = {os.path.realpath(place) for place in places if os.path.isdir(place)}
    return {os.path.realpath(person.home / ".cache"), "/run/caches"} | there


def papers(folder: Path) -> Path:
    """Create a folder with a file to be attacked."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "file").write_text("mine\n")
    (folder / "file").chmod(0o644)
    return folder


def look(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything about a folder that an attack may change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (seen.st_mode, seen.st_ino, seen.st_mtime_ns, seen.st_nlink, content)
    return found


class Listener:
    """A server outside that notices every connection."""

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
        """Return whether a connection came in since the last call."""
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
