# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes one file with a small script in the sandbox.

So the sandbox's limits, pending changes and records apply to files just as they do to commands,
and there is no second set of rules to get wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ... import N_
from ...engine.executor import Executor, SandboxExecutor
from ...engine.run import PreparedRun
from ...errors import OllmSandboxError, Sentence, in_lines
from ...paths import is_inside, make_folder
from ...project.change import Report
from ...project.recorder import linked_roots
from ...sandbox.launch import SHELL
from ...sandbox.process import Result, Sinks
from ...sandbox.rootfs.paths import PLAYGROUND, PathMap
from ...sandbox.spec import Mode, RunSpec
from ...text.ansi import harmless
from ..base import ToolError
from ..context import ToolContext

# Use the system's programs: the project may have put its own `cat` on the PATH.
_START = "PATH=/usr/bin:/bin:/run/current-system/sw/bin:$PATH\nLC_ALL=C\nexport PATH LC_ALL"
# Seconds. A disk that takes longer does not answer at all.
_TIMEOUT = 30.0
SPECIAL_FILE = N_("{name} is a pipe, a socket or a device, not a file.")


@dataclass
class ScriptReply:
    """The script's output, up to a limit: a line of words, then bytes."""

    limit: int
    data: bytearray = field(default_factory=bytearray)

    def __call__(self, data: bytes) -> None:
        self.data += data[: max(0, self.limit - len(self.data))]

    @property
    def words(self) -> list[str]:
        return self.data[: max(0, self._end)].decode("ascii", "replace").split()

    @property
    def rest(self) -> bytes:
        return bytes(self.data[self._end + 1 :])

    @property
    def rest_size(self) -> int:
        return len(self.data) - self._end - 1

    @property
    def _end(self) -> int:
        return self.data.find(b"\n", 0, 200)


class SandboxedFile:
    """The file that a call names. Without a sandbox, an unsandboxed script reads and writes it."""

    def __init__(
        self,
        context: ToolContext,
        executor: Executor,
        spec: RunSpec,
        given: str,
    ) -> None:
        """`given` is the path as the model wrote it."""
        self._context = context
        self._executor = executor
        self._spec = spec._replace(timeout=_TIMEOUT, capture=1 << 12)
        self._project = spec.project
        self._sandboxed = executor.is_recorded
        self._rootfs = context.rootfs() if executor.is_recorded else None
        self._linked = linked_roots(context.paths, spec.project)
        self._places = PathMap.of(context.paths, spec.project, self._linked)
        self._run: PreparedRun | None = None
        # Of a change without a sandbox.
        self._report: Report | None = None
        self.path = self._find(given)

    @property
    def report(self) -> Report | None:
        """What became of the change; None as long as nothing is settled."""
        return self._report if self._run is None else self._run.report

    def _find(self, given: str) -> str:
        """Return the absolute path, as the host knows it."""
        home = self._context.paths.real_home
        # Only the sandbox shows the playground in the home folder.
        playground = f"{home}/playground"
        if not self._sandboxed:
            playground = os.path.realpath(self._context.paths.playground)
        path = given
        if self._rootfs is not None:
            path = self._from_rootfs(path)
        shown = ("playground", "~/playground", f"{home}/playground")
        for name, place in (*((name, playground) for name in shown), ("~", home)):
            if is_inside(path, name):
                path = place + path[len(name) :]
                break
        path = os.path.join(self._project, path)
        # Without a sandbox nothing stops a link that leads out: the question shows its target.
        return path if self._sandboxed else os.path.realpath(path)

    def _from_rootfs(self, path: str) -> str:
        """Return the host's name of a path in Alpine, where the project is the home folder."""
        if path == "~" or path.startswith("~/"):
            return self._project + path[1:]
        whole = os.path.normpath(path)
        if is_inside(whole, PLAYGROUND):
            return f"{self._context.paths.real_home}/playground{whole[len(PLAYGROUND) :]}"
        return self._places.to_host(whole) or path

    @property
    def is_in_playground(self) -> bool:
        return is_inside(os.path.normpath(self.path), f"{self._context.paths.real_home}/playground")

    def may_be_written(self) -> bool:
        """Return whether the name allows it. The sandbox checks where links really lead."""
        paths = self._context.paths
        playgrounds = (f"{paths.real_home}/playground", os.path.realpath(paths.playground))
        roots = (self._project, *self._linked, *playgrounds)
        real = os.path.realpath(os.path.dirname(self.path))
        return any(is_inside(path, *roots) for path in (os.path.normpath(self.path), real))

    def _check_place(self) -> None:
        """Raise ToolError if the path leads elsewhere than when the user approved it."""
        if os.path.realpath(self.path) != self.path:
            raise ToolError(
                N_("The path has become a link since the question was asked. Try again.")
            )

    async def read(self, script: str, arguments: Sequence[str], limit: int) -> ScriptReply:
        reply = ScriptReply(limit)
        if not self._sandboxed:
            await asyncio.to_thread(self._check_place)
        spec, argv = self._spec._replace(mode=Mode.NEVER), self._argv(script, arguments)
        _check(await self._executor.run_script(spec, argv, Sinks(reply)), reply)
        return reply

    async def change(
        self,
        script: str,
        arguments: Sequence[str],
        limit: int,
        new_content: Callable[[ScriptReply], bytes],
    ) -> ScriptReply:
        """Let the script print the file, then give it the new content to write; b"" for none.

        All of this is one run, so that what others write in the meantime is a conflict.
        """
        if not isinstance(self._executor, SandboxExecutor):
            return await self._change_directly(script, arguments, limit, new_content)
        reply = _AwaitedReply(limit)
        run = self._run = self._executor.prepare_recorded(self._spec)
        reader, writer = os.pipe()
        with contextlib.ExitStack() as closing:
            closing.callback(os.close, writer)
            our_reader = contextlib.ExitStack()
            our_reader.callback(os.close, reader)
            closing.enter_context(our_reader)
            # Close ours as soon as the script has its own: writing has to fail if the script ends.
            sinks = Sinks(reply, None, lambda _pid: our_reader.close())
            running = asyncio.ensure_future(
                run.exec(self._argv(script, arguments), sinks=sinks, stdin=reader)
            )
            ready = asyncio.ensure_future(reply.ready.wait())
            try:
                await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
                new = await asyncio.to_thread(new_content, reply) if reply.words else b""
            except BaseException:
                running.cancel()
                await asyncio.wait({running})
                raise
            finally:
                ready.cancel()
            # Stopping waits for the end from here on: half a file is worse than a late end.
            finishing = asyncio.ensure_future(_finish(running, writer, new, closing.pop_all()))
            try:
                result = await asyncio.shield(finishing)
            except asyncio.CancelledError:
                await asyncio.wait({finishing})
                raise
        _check(result, reply)
        return reply

    async def _change_directly(
        self,
        script: str,
        arguments: Sequence[str],
        limit: int,
        new_content: Callable[[ScriptReply], bytes],
    ) -> ScriptReply:
        reply = await self.read(script, arguments, limit)
        new = await asyncio.to_thread(new_content, reply)
        if not new:
            return reply
        old = reply.rest if reply.words[0] == "file" else None
        data = new.partition(b"\n")[2]
        self._report = await asyncio.to_thread(self._write_recorded, data, old)
        if self._report is None:
            # This runner passes no input on, so the script opens a file with it.
            folder = make_folder(self._context.paths.cache)
            with tempfile.NamedTemporaryFile(prefix="edit-", dir=folder) as file:
                await asyncio.to_thread(_write, file.fileno(), new)
                await self.read(f'exec <"$4"\n{script}', [*arguments, file.name], limit)
        return reply

    def _write_recorded(self, data: bytes, old: bytes | None) -> Report | None:
        """Write and record the file without a sandbox; return None if it is outside the project."""
        from ...project.write_file import write_file

        real = os.path.realpath(self.path)
        if not is_inside(real, self._project, *self._linked):
            return None
        # The user has approved the change, so it is applied even if others are reviewed.
        spec = self._spec._replace(mode=Mode.AUTO)
        return write_file(self._context.paths, spec, real, data, based_on=old)

    def _argv(self, script: str, arguments: Sequence[str]) -> list[str]:
        path = self.path
        if self._rootfs is not None:
            path = self._places.to_inside(path) or path
        return [SHELL, "-c", f"{_START}\n{script}", "sh", path, *arguments]


class _AwaitedReply(ScriptReply):
    """Sets `ready` when the script has printed everything and waits for the new content."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, data: bytes) -> None:
        super().__call__(data)
        words = self.words
        if words and self.rest_size >= (int(words[1]) if words[0] == "file" else 0):
            self._loop.call_soon_threadsafe(self.ready.set)


async def _finish(
    running: asyncio.Future[Result], writer: int, new: bytes, closing: contextlib.ExitStack
) -> Result:
    with closing:
        if new:
            await asyncio.to_thread(_write, writer, new)
    return await running


def _check(result: Result, reply: ScriptReply) -> None:
    if result.stop is not None:
        raise OllmSandboxError(result.stop.sentence)
    if result.exit_code != 0 or not reply.words:
        ended = Sentence(N_("the exit status is {status}"), status=result.exit_code)
        why = harmless(result.stderr.text).strip() or ended
        raise OllmSandboxError(in_lines(why))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    # If the script ends early, its exit status and errors say why.
    with contextlib.suppress(BrokenPipeError):
        while view:
            view = view[os.write(descriptor, view) :]
