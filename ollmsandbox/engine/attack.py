# SPDX-License-Identifier: GPL-3.0-or-later
"""Attack the sandbox from inside, on this machine, to show that it holds.

Each attempt is harmless if it succeeds, and is undone. What counts is what can be seen from outside
afterwards, where that is possible, and what the attempt itself reports elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..loop import run
from ..paths import Paths
from ..sandbox.bubble import Bubble
from ..sandbox.caches import remove_caches
from ..sandbox.spec import RunSpec
from .run import prepare_run

_TIMEOUT = 60
# Not the one of a virtual environment, which may lie in a folder that is empty inside.
_PYTHON = os.path.realpath(sys.executable)


class Attempt(NamedTuple):
    area: str
    title: str
    # Python code that raises OSError where the sandbox refuses it, or sets `result` to something
    # false where there is nothing to be had.
    code: str
    # What it is after, in the home folder.
    wanted: str = ""


class AttackResult(NamedTuple):
    area: str
    title: str
    held: bool
    # How it was refused, such as EROFS.
    detail: str


_WRITE, _READ, _NETWORK = "Writing outside the project", "Reading secrets", "Network and sockets"
_PROCESSES, _RIGHTS = "Other processes", "Privileges"
_STAY, _LIMITS, _BACK = "Staying alive", "Resources", "Changes to the project"

_ATTEMPTS = (
    Attempt(_WRITE, "Create a file in your home folder", "make(HOME)"),
    Attempt(_WRITE, "Create a file in /usr", "make('/usr')"),
    Attempt(_WRITE, "Create a file in /etc", "make('/etc')"),
    Attempt(_WRITE, "The same through /proc/self/root", "make('/proc/self/root' + HOME)"),
    Attempt(_WRITE, "The same through /proc/1/root", "make('/proc/1/root' + HOME)"),
    Attempt(_WRITE, "The same through a link", "os.symlink(HOME, 'link'); make('link')"),
    Attempt(
        _WRITE,
        "Give a file of your home folder a second name in the project",
        "os.link(first_file(HOME), 'stolen')",
    ),
    Attempt(_WRITE, "Write a kernel setting", "open('/proc/sys/kernel/core_pattern', 'w')"),
    Attempt(
        _READ,
        "Find a secret variable of yours",
        "result = os.environ.get('OLLMSANDBOX_ATTACK_TOKEN') or found_in('environ', TOKEN)",
    ),
    *(
        Attempt(_READ, f"Read ~/{name}", f"result = readable(f'{{HOME}}/{name}')", name)
        for name in (".ssh", ".gnupg", ".aws", ".kube", ".netrc", ".bash_history")
    ),
    Attempt(_READ, "Read this program's database", "result = readable(DATABASE)"),
    Attempt(_NETWORK, "Connect to a server on this machine", "connect('AF_INET', PORT)"),
    Attempt(
        _NETWORK,
        "Send a datagram",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    ),
    Attempt(_NETWORK, "Reach another computer", "connect('AF_INET', ('192.0.2.1', 80))"),
    Attempt(_NETWORK, "Connect to an abstract socket", "connect('AF_UNIX', ABSTRACT)"),
    Attempt(_NETWORK, "Connect to the session bus", "connect('AF_UNIX', BUS)"),
    Attempt(_NETWORK, "Connect to Docker", "connect('AF_UNIX', '/run/docker.sock')"),
    Attempt(_PROCESSES, "See your other programs", "result = found_in('cmdline', b'--attack')"),
    Attempt(_PROCESSES, "Trace the first process", "call('ptrace', 16, 1, 0, 0)"),
    Attempt(_PROCESSES, "Type into a terminal", "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"),
    Attempt(_RIGHTS, "Become root in a new user namespace", "call('unshare', 0x10000000)"),
    Attempt(_RIGHTS, "Mount a file system", "call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)"),
    Attempt(_RIGHTS, "Change the root folder", "os.chroot('/tmp')"),
    Attempt(_RIGHTS, "Become another user", "os.setuid(12345)"),
    Attempt(_RIGHTS, "Make all memory executable", "call('personality', 0x400000)"),
    Attempt(
        _RIGHTS,
        "Get new privileges from a setuid program",
        "result = 'NoNewPrivs:\\t1' not in open('/proc/self/status').read()",
    ),
    Attempt(
        _LIMITS,
        "Fill the disk with one call",
        # A file without content takes no space; where there is no limit, one byte gets through.
        "import resource; most = max(resource.getrlimit(resource.RLIMIT_FSIZE)[0], 0);"
        "os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), most + 1)",
    ),
)
# Told from outside alone.
_DAEMON = "Leave a process behind that has detached itself"
_HOOK = "Plant a git hook"
_LINK = "Replace a folder with a link and write through it"

_PROGRAM = """
import ctypes, errno, glob, os, socket, sys
HOME, TOKEN, DATABASE, PORT, ABSTRACT, BUS, MARK = {facts}
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def make(folder):
    os.close(os.open(f"{{folder}}/{{MARK}}", os.O_CREAT | os.O_EXCL))

def first_file(folder):
    for name in os.listdir(folder):
        if os.path.isfile(f"{{folder}}/{{name}}"):
            return f"{{folder}}/{{name}}"
    return "/etc/passwd"

def readable(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
    except OSError:
        return False

def found_in(name, text):
    for file in glob.glob(f"/proc/[0-9]*/{{name}}"):
        try:
            if file.split("/")[2] != str(os.getpid()) and text in open(file, "rb").read():
                return True
        except OSError:
            pass
    return False

def connect(family, address):
    made = socket.socket(getattr(socket, family))
    made.settimeout(3)
    made.connect(address)

for number, code in enumerate({codes}):
    names = {{**globals(), "result": True}}
    try:
        exec(code, names)
        told = "through" if names["result"] else "held"
    except OSError as error:
        told = "held " + errno.errorcode.get(error.errno or 0, type(error).__name__)
    print(number, told, flush=True)

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(30)", MARK])
    os._exit(0)
os.wait()
"""

_COPY_BACK = """
cd .git/hooks && printf '#!/bin/sh\\n' >pre-commit && chmod +x pre-commit && cd ../..
rm -r folder && ln -s "$OUTSIDE" folder && : >folder/written
"""


def attack(environ: Mapping[str, str]) -> list[AttackResult]:
    """Try everything, in temporary projects that nothing is recorded of."""
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-attack-") as folder:
        project, repository, outside = _make_folders(Path(folder))
        try:
            return run(_attack(project, repository, outside, environ))
        finally:
            # After the loop, which still uses them when a command has ended.
            for made in (project, repository):
                remove_caches(Paths.from_environ(environ), str(made))


async def _attack(
    project: Path, repository: Path, outside: Path, environ: Mapping[str, str]
) -> list[AttackResult]:
    mark = f".ollmsandbox-attack-{secrets.token_hex(8)}"
    found = await _attack_around(project, environ, mark)
    return found + await _attack_back(repository, outside, environ)


def _make_folders(folder: Path) -> tuple[Path, Path, Path]:
    project, repository, outside = folder / "project", folder / "repository", folder / "outside"
    for made in (project, repository / ".git/hooks", repository / "folder", outside):
        made.mkdir(parents=True)
    (repository / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (repository / "folder/file").touch()
    return project, repository, outside


async def _attack_around(
    project: Path, environ: Mapping[str, str], mark: str
) -> list[AttackResult]:
    paths = Paths.from_environ(environ)
    token = secrets.token_hex(16)
    bus = environ.get("DBUS_SESSION_BUS_ADDRESS", "").removeprefix("unix:path=").partition(",")[0]
    with contextlib.ExitStack() as closing:
        server = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = closing.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{mark}")
        abstract.listen()
        facts = (
            str(paths.home),
            token.encode(),
            str(paths.database),
            server.getsockname(),
            f"\0{mark}",
            bus or "/run/user/0/bus",
            mark,
        )
        program = _PROGRAM.format(facts=repr(facts), codes=repr([a.code for a in _ATTEMPTS]))
        given = {**environ, "OLLMSANDBOX_ATTACK_TOKEN": token}
        bubble = Bubble(RunSpec(str(project), timeout=_TIMEOUT), environ=given)
        result = await bubble.exec([_PYTHON, "-I", "-S", "-c", program])
    told = dict(line.split(" ", 1) for line in result.stdout.text.splitlines() if " " in line)
    at_home = os.listdir(paths.home)
    planted = _planted((paths.home, Path("/usr"), Path("/etc")), mark)
    found = []
    for number, attempt in enumerate(_ATTEMPTS):
        # What was not tried has not held.
        verdict, _, detail = told.get(str(number), "was not tried").partition(" ")
        held = verdict == "held" and not (planted and attempt.code.startswith("make("))
        if attempt.wanted:
            detail = "hidden" if attempt.wanted in at_home else "you have none"
        found.append(AttackResult(attempt.area, attempt.title, held, detail))
    is_left = _is_running(mark)
    return [*found, AttackResult(_STAY, _DAEMON, not is_left, "" if is_left else "ended")]


async def _attack_back(
    repository: Path, outside: Path, environ: Mapping[str, str]
) -> list[AttackResult]:
    """Attack the copy back into the project: this needs all that a run has, in other folders than
    the user's own."""
    folder = repository.parent
    own = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache")}
    paths = Paths.from_environ({**environ, **own})
    environ = {**environ, "OUTSIDE": str(outside)}
    prepared = prepare_run(RunSpec(str(repository), timeout=_TIMEOUT), paths, environ)
    await prepared.exec(["/bin/sh", "-c", _COPY_BACK])
    # What was not tried has not held.
    tried = {item.change.path for item in prepared.report.changes} if prepared.report else set()
    is_planted = bool(os.listdir(repository / ".git/hooks"))
    is_written = bool(os.listdir(outside))
    return [
        AttackResult(
            _BACK, _HOOK, ".git/hooks/pre-commit" in tried and not is_planted, "needs your approval"
        ),
        AttackResult(
            _BACK, _LINK, "folder" in tried and not is_written, "nothing outside was written"
        ),
    ]


def _planted(folders: tuple[Path, ...], mark: str) -> bool:
    """Return whether the attack's file is in one of the folders, and remove it."""
    found = [folder / mark for folder in folders if (folder / mark).exists()]
    for file in found:
        file.unlink()
    return bool(found)


def _is_running(mark: str) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "cmdline").read_bytes():
                return True
    return False
