# SPDX-License-Identifier: GPL-3.0-or-later
"""InnerRunner: in a Flatpak, a command in a tighter sandbox that the Flatpak portal starts.

There it has the programs of the Flatpak, the project, the playground, and the network only if that
was asked for. What it changes is changed at once, so every command asks here too.

A sandbox that the Flatpak portal started, with inner_supervisor.py as its first program.

InnerRunner: in a Flatpak, a command in a tighter sandbox that the Flatpak portal starts.

There it has the programs of the Flatpak, the project, the playground, and the network only if that
was asked for. What it changes is changed at once, so every command asks here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

from ... import N_
from ...errors import SandboxError, Sentence, WorkingDirError
from ...paths import is_inside, make_folder
from ...text.ansi import harmless
from ..output import readable
from ..plain.runner import Ask, PlainRunner
from ..profile.profile import Profile
from . import child as far
from .child import InnerCheck
from .portal import Flags, Portal, PortalError

# As starter_client.py has it: imported, and last on the path.
_MAIN = """\
import os.path, sys
sys.path.append(os.path.abspath(sys.argv[1] + "/../../../.."))
from ollmsandbox.sandbox.flatpak.child import main
sys.exit(main())
"""
# A sandbox that has not begun by then never will.
_PATIENCE = 30.0
_CREDENTIALS = struct.Struct("3i")


class InnerProcess:
    """Begun, then told what to run, then waited for."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self.pid = 0
        self.stdout = self.stderr = -1
        self._line = socket.socket()
        # The sandbox's first process: all the others go with it.
        self._first = -1
        self._status: int | None = None
        self._is_over = False
        self._files = contextlib.ExitStack()

    async def begin(self, flags: Flags, folders: Sequence[bytes], expected: bytes) -> InnerCheck:
        """Start the sandbox, and return what the far end finds in it."""
        with contextlib.ExitStack() as theirs:
            self._line, line = socket.socketpair()
            theirs.enter_context(line)
            self.stdout, stdout = self._pipe(theirs)
            self.stderr, stderr = self._pipe(theirs)
            # What is said before the command has its turn is not the command's output.
            log, far_log = self._pipe(theirs)
            nothing = _opened(theirs, os.devnull, os.O_RDONLY)
            shown = [_opened(theirs, path, os.O_PATH | os.O_NOFOLLOW) for path in folders]
            await self._portal.spawn(
                [
                    os.fsencode(word)
                    for word in (sys.executable, "-I", "-S", "-c", _MAIN, far.__file__)
                ],
                {
                    0: nothing,
                    1: far_log,
                    2: far_log,
                    far.LINE: line.fileno(),
                    far.STDOUT: stdout,
                    far.STDERR: stderr,
                },
                shown,
                flags,
            )
        try:
            async with asyncio.timeout(_PATIENCE):
                answer, self.pid = await self._greet(expected)
        except TimeoutError as error:
            raise PortalError(N_("The inner sandbox did not begin in time.")) from error
        except ConnectionError:
            answer = b""
        if not answer:
            raise PortalError(N_("The inner sandbox did not begin: {why}"), why=_said(log))
        with contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(_first_of(self.pid))
            self._files.callback(os.close, self._first)
            return InnerCheck(answer)
        raise PortalError(N_("The processes of the inner sandbox cannot be seen."))

    async def send(self, order: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            # Who cannot be told of its end must not begin.
            if not self._portal.is_lost:
                await asyncio.get_running_loop().sock_sendall(self._line, order)
                return
        raise SandboxError(N_("The inner sandbox was gone, and the command did not run."))

    async def ended(self) -> None:
        self._status = await self._portal.exit_status()
        self._is_over = True
        # A command may have ended the program that would have seen to what it leaves behind.
        self._kill_first()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await readable(self._first)

    def kill(self) -> None:
        self._portal.kill()
        # The portal may be gone.
        self._kill_first()

    def exit_code(self) -> int:
        if self._status is None:
            raise SandboxError(N_("The Flatpak portal was lost, and the command was ended."))
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Of what was not waited for, nothing goes on."""
        self._line.close()
        if not self._is_over:
            self.kill()
        self._portal.close()
        self._files.close()

    def _kill_first(self) -> None:
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def _pipe(self, theirs: contextlib.ExitStack) -> tuple[int, int]:
        reader, writer = os.pipe()
        self._files.callback(os.close, reader)
        theirs.callback(os.close, writer)
        return reader, writer

    async def _greet(self, expected: bytes) -> tuple[bytes, int]:
        self._line.settimeout(0)
        # The kernel tells who sends, by the number that the process has here.
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        await asyncio.get_running_loop().sock_sendall(self._line, expected)
        await readable(self._line.fileno())
        answer, told, _flags, _from = self._line.recvmsg(200, socket.CMSG_SPACE(_CREDENTIALS.size))
        pids = [
            _CREDENTIALS.unpack(data)[0]
            for level, kind, data in told
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        ]
        return answer, pids[0] if pids else 0


def _opened(files: contextlib.ExitStack, path: str | bytes, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    files.callback(os.close, descriptor)
    return descriptor


def _said(log: int) -> str:
    os.set_blocking(log, False)
    with contextlib.suppress(BlockingIOError):
        lines = harmless(os.read(log, 1 << 16).decode("utf-8", "replace")).split("\n")
        return next((line for line in reversed(lines) if line.strip()), "nothing was said")
    return "nothing was said"


def _first_of(pid: int) -> int:
    """The first process of the namespace that `pid` is in, as it is called in ours."""
    for one in _line_of(pid):
        numbers = _numbers(one, "NSpid")
        if len(numbers) > 1 and numbers[-1] == 1:
            return one
    raise ProcessLookupError


def _line_of(pid: int) -> Iterator[int]:
    """Itself, its parent, and so on."""
    while pid:
        yield pid
        pid = (_numbers(pid, "PPid") or [0])[0]


def _numbers(pid: int, name: str) -> list[int]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            key, _colon, value = line.partition(":")
            if key == name:
                return [int(number) for number in value.split()]
    return []


# Folders that a file chooser opened for the Flatpak. They have another name outside, and the portal
# leaves out, without a word, what it does not find under the same one.
_CHOSEN = "/run/flatpak/doc"
# Why the sandbox cannot be used, by what was found inside.
PROBLEMS = {
    InnerCheck.NO_PROJECT: N_("The project cannot be written in it."),
    InnerCheck.OWN_FILES_OPEN: N_("The program's own files would be open in it."),
    InnerCheck.NETWORK_OPEN: N_("The network would be open in it."),
}


class NotHandedOnError(PortalError):
    """The project is not in a tight sandbox. It is in one that is not."""


class InnerRunner(PlainRunner):
    """Before the person is asked, the sandbox is there and was looked at from inside: what they
    are told of is what the command runs in. Where it cannot be had, PortalError says why, and
    nobody was asked.

    One that is not `tight` is as the Flatpak's own, but for the network."""

    question = "Run command in the Flatpak's inner sandbox"

    def __init__(
        self,
        project: str | os.PathLike[str],
        *,
        ask: Ask,
        network: bool = False,
        tight: bool = True,
        working_dir: str | None = None,
        profile: Profile | None = None,
        timeout: float | None = None,
        environ: Mapping[str, str] | None = None,
        capture: int = 1 << 20,
    ) -> None:
        super().__init__(
            project,
            ask=ask,
            working_dir=working_dir,
            profile=profile,
            timeout=timeout,
            environ=environ,
            capture=capture,
        )
        self._network = network
        self._tight = tight
        self._sandbox: InnerProcess | None = None

    async def try_out(self) -> None:
        """Whether it can be had, as before a command. Nobody is asked, and nothing runs."""
        try:
            await self._prepare(self._folder())
        finally:
            self._put_away()

    async def _prepare(self, folder: str) -> None:
        written, expected = await asyncio.to_thread(self._expect, folder)
        flags = Flags.WATCH_BUS | Flags.EXPOSE_PROCESSES
        if self._tight:
            flags |= Flags.SANDBOX
        if not self._network:
            flags |= Flags.NO_NETWORK
        self._sandbox = InnerProcess(await Portal.connect(self._environ))
        found = await self._sandbox.begin(flags, written if self._tight else [], expected)
        if found is InnerCheck.NO_WORKING_DIR:
            raise WorkingDirError(self._working_dir or folder)
        if found is not InnerCheck.READY:
            why = PROBLEMS[found]
            if found is InnerCheck.NO_PROJECT and is_inside(self.project, _CHOSEN):
                why = N_("A folder from the file chooser cannot be handed on to it.")
            # Translators: {why} is a sentence, such as "The project cannot be written in it."
            text = N_("The Flatpak's inner sandbox cannot be used. {why}")
            kind = NotHandedOnError if found is InnerCheck.NO_PROJECT else PortalError
            raise kind(text, why=Sentence(why))

    def _expect(self, folder: str) -> tuple[list[bytes], bytes]:
        playground = os.path.realpath(make_folder(self._paths.playground))
        written = [os.fsencode(self.project), os.fsencode(playground)]
        foreign = 0 if self._network else os.stat("/proc/self/ns/net").st_ino
        hidden = [os.fsencode(self._paths.data)] if self._tight else []
        return written, far.pack_expected(written, hidden, os.fsencode(folder), foreign)

    async def _start(self, argv: Sequence[str], folder: str) -> InnerProcess:
        assert self._sandbox is not None
        environment = self._profile.environment(self._environ)
        await self._sandbox.send(far.pack_order(argv, folder, environment))
        return self._sandbox

    def _put_away(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
