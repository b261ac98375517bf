# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command in a tighter sandbox that the Flatpak portal starts, in a Flatpak.

It contains the Flatpak's programs, the project and the playground, and the network only on request.
Changes are written directly, so every command asks here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

from ... import N_
from ...errors import SandboxError, Sentence, WorkingDirError
from ...loop import readable
from ...paths import is_inside, make_folder
from ...text.ansi import harmless
from ..process import read_status
from ..profile.profile import Profile
from ..spec import RunSpec
from ..unsandboxed.runner import Confinement, UnsandboxedRunner
from .child import CHANNEL, STDERR, STDOUT, InnerCheck, pack_expected, pack_order
from .portal import Flags, Portal, PortalError

# As in starter/client.py: our package is last on the path, and imported from there.
_MAIN = """\
import os.path, sys
sys.path.append(os.path.abspath(sys.argv[1] + "/../../../.."))
from ollmsandbox.sandbox.flatpak.child import main
sys.exit(main())
"""
# Seconds for the sandbox to start, and for its processes to end.
_TIMEOUT = 30.0
_CHILD = f"{os.path.dirname(__file__)}/child.py"
_CREDENTIALS = struct.Struct("3i")


class InnerProcess:
    """An inner sandbox: `begin` starts it, `send` starts the command, `ended` waits for it."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self.pid = 0
        self.stdout = self.stderr = -1
        self._channel = socket.socket()
        # A pidfd of the sandbox's first process: all others end with it.
        self._first = -1
        self._status: int | None = None
        self._is_over = False
        self._files = contextlib.ExitStack()

    async def begin(self, flags: Flags, folders: Sequence[bytes], expected: bytes) -> InnerCheck:
        """Start the sandbox, and return what its first program finds in it."""
        with contextlib.ExitStack() as theirs:
            self._channel, channel = socket.socketpair()
            theirs.enter_context(channel)
            self.stdout, stdout = self._pipe(theirs)
            self.stderr, stderr = self._pipe(theirs)
            # What is printed before the command starts is not the command's output.
            log, their_log = self._pipe(theirs)
            nothing = _opened(theirs, os.devnull, os.O_RDONLY)
            shown = [_opened(theirs, path, os.O_PATH | os.O_NOFOLLOW) for path in folders]
            await self._portal.spawn(
                [os.fsencode(word) for word in (sys.executable, "-I", "-S", "-c", _MAIN, _CHILD)],
                {
                    0: nothing,
                    1: their_log,
                    2: their_log,
                    CHANNEL: channel.fileno(),
                    STDOUT: stdout,
                    STDERR: stderr,
                },
                shown,
                flags,
            )
        try:
            async with asyncio.timeout(_TIMEOUT):
                answer, self.pid = await self._greet(expected)
        except TimeoutError as error:
            raise PortalError(N_("The inner sandbox did not start in time.")) from error
        except ConnectionError:
            answer = b""
        if not answer:
            raise PortalError(N_("The inner sandbox did not start: {why}"), why=_last_line(log))
        with contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(_first_of(self.pid))
            self._files.callback(os.close, self._first)
            return InnerCheck(answer)
        raise PortalError(N_("The processes of the inner sandbox are not visible."))

    async def send(self, order: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            # Without the portal the command could not be killed.
            if not self._portal.is_lost:
                await asyncio.get_running_loop().sock_sendall(self._channel, order)
                return
        raise SandboxError(N_("The inner sandbox ended, so the command did not run."))

    async def ended(self) -> None:
        self._status = await self._portal.exit_status()
        self._is_over = True
        # The command may have killed the program that ends its leftovers.
        self._kill_first()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await readable(self._first)

    def kill(self) -> None:
        self._portal.kill()
        # The portal may be lost.
        self._kill_first()

    def exit_code(self) -> int:
        if self._status is None:
            raise SandboxError(
                N_("The connection to the Flatpak portal was lost, and the command was ended.")
            )
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Kill the command if it still runs, and close everything."""
        self._channel.close()
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
        self._channel.settimeout(0)
        # The kernel reports the sender's process id, as it is in our namespace.
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        await asyncio.get_running_loop().sock_sendall(self._channel, expected)
        await readable(self._channel.fileno())
        answer, told, _flags, _from = self._channel.recvmsg(
            200, socket.CMSG_SPACE(_CREDENTIALS.size)
        )
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


def _last_line(log: int) -> str:
    os.set_blocking(log, False)
    with contextlib.suppress(BlockingIOError):
        lines = harmless(os.read(log, 1 << 16).decode("utf-8", "replace")).split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no message")
    return "no message"


def _first_of(pid: int) -> int:
    """Return the first process of the pid namespace of `pid`, as an id of our namespace."""
    while pid:
        found = read_status(pid, "NSpid", "PPid")
        if len(numbers := found.get("NSpid", [])) > 1 and numbers[-1] == 1:
            return pid
        pid = found.get("PPid", [0])[0]
    raise ProcessLookupError


# Folders that a file chooser opened for the Flatpak. They have another path outside, and the portal
# silently leaves out folders that do not have the same path there.
_CHOSEN = "/run/flatpak/doc"
# Why the sandbox cannot be used, by what was found inside.
PROBLEMS = {
    InnerCheck.PROJECT_READ_ONLY: N_("The project is read-only in it."),
    InnerCheck.OWN_FILES_VISIBLE: N_("The program's own files are visible in it."),
    InnerCheck.NETWORK_ON: N_("The network is on in it."),
}


class ProjectNotSharedError(PortalError):
    """A tight sandbox does not contain the project. A loose one does."""


class InnerRunner(UnsandboxedRunner):
    """Starts the sandbox and checks it from inside before the user is asked, so that the question
    describes what the command runs in. `prepare` raises PortalError if there is none.

    One that only cuts off the network is otherwise like the Flatpak's own sandbox.
    """

    def __init__(
        self,
        spec: RunSpec,
        confinement: Confinement = Confinement.INNER,
        *,
        profile: Profile | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(spec, profile=profile, environ=environ)
        self.confinement = confinement
        self._tight = confinement is Confinement.INNER
        self._sandbox: InnerProcess | None = None

    async def prepare(self) -> None:
        await super().prepare()
        try:
            await self._open()
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        writable, expected = await asyncio.to_thread(self._expect)
        flags = Flags.WATCH_BUS | Flags.EXPOSE_PROCESSES
        if self._tight:
            flags |= Flags.SANDBOX
        if not self._spec.network:
            flags |= Flags.NO_NETWORK
        self._sandbox = InnerProcess(await Portal.connect(self._environ))
        found = await self._sandbox.begin(flags, writable if self._tight else [], expected)
        if found is InnerCheck.NO_WORKING_DIR:
            raise WorkingDirError(self._spec.working_dir or self._folder)
        if found is not InnerCheck.READY:
            why = PROBLEMS[found]
            if found is InnerCheck.PROJECT_READ_ONLY and is_inside(self.project, _CHOSEN):
                why = N_("Folders from the file chooser cannot be shared with it.")
            # Translators: {why} is a sentence, such as "The project is read-only in it."
            text = N_("The Flatpak's inner sandbox cannot be used. {why}")
            kind = ProjectNotSharedError if found is InnerCheck.PROJECT_READ_ONLY else PortalError
            raise kind(text, why=Sentence(why))

    def _expect(self) -> tuple[list[bytes], bytes]:
        playground = os.path.realpath(make_folder(self._paths.playground))
        writable = [os.fsencode(self.project), os.fsencode(playground)]
        foreign = 0 if self._spec.network else os.stat("/proc/self/ns/net").st_ino
        hidden = [os.fsencode(self._paths.data)] if self._tight else []
        return writable, pack_expected(writable, hidden, os.fsencode(self._folder), foreign)

    async def _start(self, argv: Sequence[str]) -> InnerProcess:
        assert self._sandbox is not None
        environment = self._profile.environment(self._environ, network=self._spec.network)
        await self._sandbox.send(pack_order(argv, self._folder, environment))
        return self._sandbox

    def close(self) -> None:
        super().close()
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
