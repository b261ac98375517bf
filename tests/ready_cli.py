# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line as a process of its own that need not load its modules first: a copy of one that
has them. Half of what a short command takes is that."""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NoReturn

_ROOT = Path(__file__).parent.parent
_MAIN = """
import sys
sys.path[:0] = sys.argv[1:3]
import ready_cli
ready_cli.serve(int(sys.argv[3]))
"""
# The window is no part of it.
_PARTS = ("chat", "chat.providers", "cli", "permission", "project", "sandbox", "tools")
_PATIENCE = 120.0
# The order, standard input, output and errors, and where to tell how it ended.
_GIVEN = 5


class Server:
    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            folders = (str(_ROOT), str(_ROOT / "tests"))
            subprocess.Popen(
                [sys.executable, "-I", "-c", _MAIN, *folders, str(number)], pass_fds=[number]
            )

    def run(
        self, arguments: Sequence[str], cwd: str, environ: Mapping[str, str], given: bytes
    ) -> tuple[int, bytes, bytes]:
        """As subprocess.run does it: the exit code, what it said, and of what it complained."""
        order = os.memfd_create("order")
        os.write(order, marshal.dumps([list(arguments), cwd, dict(environ)]))
        stdin = os.memfd_create("input")
        os.write(stdin, given)
        os.lseek(stdin, 0, os.SEEK_SET)
        if not given:
            os.close(stdin)
            stdin = os.open(os.devnull, os.O_RDONLY)
        (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe()
        ours, theirs = socket.socketpair()
        handed_over = [order, stdin, theirs_out, theirs_err, theirs.fileno()]
        rights = array.array("i", handed_over)
        self._line.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        theirs.detach()
        for number in handed_over:
            os.close(number)
        with ours, ThreadPoolExecutor(2) as both:
            said, complained = both.map(_read, (out, err))
            ours.settimeout(_PATIENCE)
            status = ours.recv(16)
        return int(status), said, complained


@cache
def server() -> Server:
    """One for all tests of this process; it ends with us."""
    return Server()


def _read(number: int) -> bytes:
    with open(number, "rb") as file:
        return file.read()


# --- the other side ------------------------------------------------------------------------------


def serve(number: int) -> None:
    for part in _PARTS:
        package = importlib.import_module(f"ollmsandbox.{part}")
        for module in pkgutil.iter_modules(package.__path__, f"ollmsandbox.{part}."):
            importlib.import_module(module.name)
    # What is loaded stays, and a copy need not look at it: that would copy all of its memory.
    gc.freeze()
    line = socket.socket(fileno=number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        room = socket.CMSG_LEN(_GIVEN * array.array("i").itemsize)
        data, ancillary, _flags, _address = line.recvmsg(16, room)
        if not data:
            return
        given = array.array("i")
        given.frombytes(ancillary[0][2])
        if os.fork() == 0:
            line.close()
            _attend(*given)
            return
        for one in given:
            os.close(one)


def _attend(order: int, stdin: int, stdout: int, stderr: int, told: int) -> None:
    """Be the command line, in a child of our own, whose end we tell."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(told)
        for place, number in enumerate((stdin, stdout, stderr)):
            os.dup2(number, place)
        arguments, cwd, environ = marshal.loads(os.pread(order, os.fstat(order).st_size, 0))
        for number in (order, stdin, stdout, stderr):
            os.close(number)
        _be(arguments, cwd, environ)
    for number in (order, stdin, stdout, stderr):
        os.close(number)
    _, status = os.waitpid(child, 0)
    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _be(arguments: list[str], cwd: str, environ: dict[str, str]) -> NoReturn:
    from ollmsandbox.__main__ import main

    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    sys.argv[:] = ["ollmsandbox", *arguments]
    # Python's own end, without taking all apart that was loaded: that takes longer than a command.
    code: object = 1
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    finally:
        if sys.exc_info()[1]:
            traceback.print_exc()
        vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
