# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the command line, or Python code of a test, as a forked copy of a process that has the
modules of the command line loaded, which takes half the time."""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

from support.timing import PATIENCE, leave_the_disk_to_the_kernel

_ROOT = Path(__file__).parents[2]
_MAIN = """
import sys
sys.path[:0] = sys.argv[1:3]
from support.timing import PATIENCE
from support import cli_server
cli_server.serve(int(sys.argv[3]))
"""
# The order, standard input, output and errors, and where to tell of it.
_GIVEN = 5
_PIPE, _NOWHERE = subprocess.PIPE, subprocess.DEVNULL


@dataclass
class Started:
    """A started command line, with the part of subprocess.Popen that tests need."""

    pid: int
    _told: socket.socket
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                self.returncode = int(self._told.recv(16))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("ollmsandbox", timeout or 0) from None
            self._told.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        if self.stdin is not None:
            self.stdin.close()
        with ThreadPoolExecutor(2) as both:
            said, complained = both.map(_read, (self.stdout, self.stderr))
            self.wait(timeout)
        return said, complained

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill it, whatever it still has to print."""
        self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                # What was not written before it ended is not wanted any more.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.wait()


class Server:
    def __init__(self, *, is_loaded: bool = False) -> None:
        """Start it; as a copy of this process, if this is one of a server's."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            if is_loaded:
                if os.fork() == 0:
                    self._line.close()
                    _serve(theirs)
                    os._exit(0)
                return
            folders = (str(_ROOT), str(_ROOT / "tests"))
            subprocess.Popen(
                [sys.executable, "-I", "-c", _MAIN, *folders, str(number)], pass_fds=[number]
            )

    def run(
        self,
        arguments: Sequence[str],
        cwd: str,
        environ: Mapping[str, str],
        given: bytes = b"",
        code: str = "",
    ) -> tuple[int, bytes, bytes]:
        """Run it like subprocess.run: return the exit code, standard output and standard error."""
        stdin = _NOWHERE
        if given:
            stdin = os.memfd_create("input")
            os.write(stdin, given)
            os.lseek(stdin, 0, os.SEEK_SET)
        try:
            started = self.start(arguments, cwd, environ, code, stdin=stdin)
        finally:
            if given:
                os.close(stdin)
        said, complained = started.communicate(PATIENCE)
        return started.wait(), said, complained

    def start(
        self,
        arguments: Sequence[str],
        cwd: str,
        environ: Mapping[str, str],
        code: str = "",
        *,
        stdin: int | IO[bytes] = _NOWHERE,
        stdout: int | IO[bytes] = _PIPE,
        stderr: int | IO[bytes] = _PIPE,
        start_new_session: bool = False,
    ) -> Started:
        """Start it like subprocess.Popen, or the code instead of the command line."""
        with contextlib.ExitStack() as handed_over:
            order = os.memfd_create("order")
            handed_over.callback(os.close, order)
            words = [list(arguments), cwd, dict(environ), start_new_session, code]
            os.write(order, marshal.dumps(words))
            numbers, ours = [order], []
            for stream, is_read in ((stdin, True), (stdout, False), (stderr, False)):
                number, mine = _theirs(stream, handed_over, is_read=is_read)
                numbers.append(number)
                ours.append(mine)
            told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            numbers.append(handed_over.enter_context(theirs).fileno())
            rights = array.array("i", numbers)
            self._line.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        told.settimeout(PATIENCE)
        in_, out, err = ours
        return Started(int(told.recv(16)), told, in_, out, err)


def _theirs(
    stream: int | IO[bytes], handed_over: contextlib.ExitStack, *, is_read: bool
) -> tuple[int, IO[bytes] | None]:
    """Return the child's end of a stream, and ours if it has one."""
    if stream == _NOWHERE:
        number = os.open(os.devnull, os.O_RDWR)
    elif stream == _PIPE:
        number, mine = os.pipe() if is_read else reversed(os.pipe())
        handed_over.callback(os.close, number)
        return number, open(mine, "wb" if is_read else "rb", buffering=0 if is_read else -1)
    else:
        return stream if isinstance(stream, int) else stream.fileno(), None
    handed_over.callback(os.close, number)
    return number, None


@cache
def server() -> Server:
    """Return the server of this process, which ends with it."""
    return Server()


def _read(stream: IO[bytes] | None) -> bytes:
    if stream is None:
        return b""
    with stream:
        return stream.read()


# --- the other side ------------------------------------------------------------------------------


def serve(number: int) -> None:
    for module in pkgutil.walk_packages([str(_ROOT / "ollmsandbox")], "ollmsandbox."):
        # The window is not part of the command line.
        if not module.name.startswith(("ollmsandbox.ui", "ollmsandbox.__main__")):
            importlib.import_module(module.name)
    importlib.import_module("support.servers.world")
    # Nobody reads along, and no finger is on its way.
    from ollmsandbox.chat.providers.tour.model import TourServer
    from ollmsandbox.cli.agent import asker

    TourServer.delay = asker._PAUSE = 0
    leave_the_disk_to_the_kernel()
    # What is loaded stays, and a copy need not look at it: that would copy all of its memory.
    gc.freeze()
    _serve(socket.socket(fileno=number))


def _serve(line: socket.socket) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ)
        while True:
            for key, _events in waiting.select():
                if key.data is None:
                    if not _attend(line, waiting):
                        return
                    continue
                pid, told = key.data
                waiting.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                with told, contextlib.suppress(BrokenPipeError):  # who does not ask any more
                    told.send(b"%d" % os.waitstatus_to_exitcode(status))


def _attend(line: socket.socket, waiting: selectors.BaseSelector) -> bool:
    """Fork a child that becomes the command line. Return False when no more requests can come."""
    room = socket.CMSG_LEN(_GIVEN * array.array("i").itemsize)
    data, ancillary, _flags, _address = line.recvmsg(16, room)
    if not data:
        return False
    given = array.array("i")
    given.frombytes(ancillary[0][2])
    order, *streams, told = given
    words = marshal.loads(os.pread(order, os.fstat(order).st_size, 0))
    child = os.fork()
    if child == 0:
        for place, number in enumerate(streams):
            os.dup2(number, place)
        os.closerange(3, 1 << 16)
        _be(*words)
    for number in (order, *streams):
        os.close(number)
    teller = socket.socket(fileno=told)
    teller.send(b"%d" % child)
    waiting.register(os.pidfd_open(child), selectors.EVENT_READ, (child, teller))
    return True


def _be(
    arguments: list[str], cwd: str, environ: dict[str, str], alone: bool, text: str
) -> NoReturn:
    from ollmsandbox.__main__ import main

    if alone:
        os.setsid()
        if os.isatty(0):
            # The leader of a session makes the terminal its own: Ctrl+C reaches it.
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    # The ones that are there belong to other files, and still know what could be done with those.
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = open(number, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
    # What starts the program once more starts that one.
    sys.argv[:] = [str(_ROOT / "build" / "ollmsandbox"), *arguments]
    # Python's own end, without taking all apart that was loaded: that takes longer than a command.
    code: object = 1
    try:
        try:
            if text:
                exec(text, {"__name__": "__main__"})
            code = None if text else main()
        except SystemExit as end:
            code = end.code
        vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - it must not go on as the server
        code = 1
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
