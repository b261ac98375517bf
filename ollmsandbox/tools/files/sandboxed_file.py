# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are read and written by a small script in a sandbox like every command's: so its wall, its
pending layer and its records hold for them too, and there is no second set of rules to get wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ... import N_
from ...errors import OllmSandboxError, Sentence
from ...paths import is_inside
from ...project.apply.recorder import Recorder, linked_roots
from ...project.changes.change import Mode, Report
from ...sandbox.bubble import Bubble
from ...sandbox.launch import SHELL
from ...sandbox.plain.runner import PlainRunner
from ...sandbox.process import Result, Sinks
from ...sandbox.rootfs.paths import PLAYGROUND, Places
from ...text.ansi import harmless
from ..base import ToolError
from ..context import Workbench

# The system's own programs: a project may have a `cat` of its own on the PATH.
_START = "PATH=/usr/bin:/bin:/run/current-system/sw/bin:$PATH\nLC_ALL=C\nexport PATH LC_ALL"
# A file that cannot be read by then lies on a disk that does not answer.
_PATIENCE = 30.0


@dataclass
class Said:
    """What the script printed, up to a limit: a line of words, then bytes."""

    limit: int
    data: bytearray = field(default_factory=bytearray)

    async def __call__(self, data: bytes) -> None:
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


class Inside:
    """The file that a call names, and the sandbox it is reached in."""

    def __init__(self, bench: Workbench, project: str, given: str, *, sandboxed: bool) -> None:
        self._bench = bench
        self._project = project
        self._sandboxed = sandboxed
        self._rootfs = bench.rootfs() if sandboxed else None
        self._places = Places.of(bench.paths, project, linked_roots(bench.paths, project))
        self.path = self._find(given)

    def _find(self, given: str) -> str:
        """As a full path, named as it is on this machine."""
        if not given.strip():
            raise ToolError(N_("`path` is empty."), N_("Name a file."))
        home = self._bench.paths.real_home
        # Without a sandbox the playground is where it really is.
        playground = f"{home}/playground"
        if not self._sandboxed:
            playground = os.path.realpath(self._bench.paths.playground)
        path = given
        if self._rootfs is not None:
            path = self._from_rootfs(path)
        shown = ("playground", "~/playground", f"{home}/playground")
        for name, place in (*((name, playground) for name in shown), ("~", home)):
            if is_inside(path, name):
                path = place + path[len(name) :]
                break
        path = os.path.join(self._project, path)
        # No wall stops a link that leads out of the project: who is asked sees where it leads.
        return path if self._sandboxed else os.path.realpath(path)

    def _from_rootfs(self, path: str) -> str:
        """There the project is the home folder, and both have names of their own."""
        if path == "~" or path.startswith("~/"):
            return self._project + path[1:]
        whole = os.path.normpath(path)
        if is_inside(whole, PLAYGROUND):
            return f"{self._bench.paths.real_home}/playground{whole[len(PLAYGROUND) :]}"
        return self._places.to_host(whole) or path

    @property
    def is_in_playground(self) -> bool:
        return is_inside(os.path.normpath(self.path), f"{self._bench.paths.real_home}/playground")

    def may_be_written(self) -> bool:
        """By its name; where it really leads, the sandbox decides."""
        bench = self._bench
        roots = [self._project, *linked_roots(bench.paths, self._project)]
        roots += [f"{bench.paths.real_home}/playground", os.path.realpath(bench.paths.playground)]
        real = os.path.realpath(os.path.dirname(self.path))
        return any(is_inside(path, *roots) for path in (os.path.normpath(self.path), real))

    def _check_place(self) -> None:
        """What was approved is what is read and written."""
        if os.path.realpath(self.path) != self.path:
            raise ToolError(N_("ERROR: A link was put there while the question waited. Try again."))

    async def read(self, script: str, arguments: Sequence[str], limit: int) -> Said:
        said = Said(limit)
        if self._sandboxed:
            keeper = Recorder(self._project, self._bench.paths, mode=Mode.NEVER)
            running = self._bubble(keeper).exec(self._argv(script, arguments), sinks=Sinks(said))
        else:
            await asyncio.to_thread(self._check_place)
            running = self._plain().exec(self._argv(script, arguments), sinks=Sinks(said))
        _check(await running, said)
        return said

    async def change(
        self,
        script: str,
        arguments: Sequence[str],
        limit: int,
        answer: Callable[[Said], Awaitable[bytes]],
        keeper: Recorder,
    ) -> Said:
        """The script tells what is there, and is then told what shall be. It all happens in one
        run: what somebody else writes meanwhile is a conflict."""
        if not self._sandboxed:
            return await self._change_plainly(script, arguments, limit, answer, keeper)
        said = _Awaited(limit)
        bubble = self._bubble(keeper)
        reader, writer = os.pipe()
        with contextlib.ExitStack() as closing:
            closing.callback(os.close, writer)
            with_us = contextlib.ExitStack()
            with_us.callback(os.close, reader)
            closing.enter_context(with_us)
            # Ours is closed as soon as the script has its own, else its end would go unnoticed.
            sinks = Sinks(said, None, lambda _pid: with_us.close())
            running = asyncio.ensure_future(
                bubble.exec(self._argv(script, arguments), sinks=sinks, stdin=reader)
            )
            ready = asyncio.ensure_future(said.ready.wait())
            try:
                await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
                new = await answer(said) if said.words else b""
            except BaseException:
                running.cancel()
                await asyncio.wait({running})
                raise
            finally:
                ready.cancel()
            # From here on it is finished, whoever wants to stop: half a file is worse than a late
            # end.
            finishing = asyncio.ensure_future(_finish(running, writer, new, closing.pop_all()))
            try:
                result = await asyncio.shield(finishing)
            except asyncio.CancelledError:
                await asyncio.wait({finishing})
                raise
        _check(result, said)
        return said

    async def _change_plainly(
        self,
        script: str,
        arguments: Sequence[str],
        limit: int,
        answer: Callable[[Said], Awaitable[bytes]],
        keeper: Recorder,
    ) -> Said:
        said = await self.read(script, arguments, limit)
        new = await answer(said)
        if not new:
            return said
        old = said.rest if said.words[0] == "file" else None
        data = new.partition(b"\n")[2]
        keeper.report = await asyncio.to_thread(self._write_by_hand, data, old, keeper)
        if keeper.report is None:
            # This runner gives nothing to read, so the script opens it itself.
            folder = self._bench.paths.cache
            staged = await asyncio.to_thread(_stage, str(folder), new)
            try:
                await self.read(f'exec <"$4"\n{script}', [*arguments, staged], limit)
            finally:
                os.unlink(staged)
        return said

    def _write_by_hand(self, data: bytes, old: bytes | None, keeper: Recorder) -> Report | None:
        """Recorded as ever, though nothing is mounted; None outside the project. The person has
        seen it and said yes."""
        from ...project.review.write_file import write_file

        real = os.path.realpath(self.path)
        if not is_inside(real, self._project, *linked_roots(self._bench.paths, self._project)):
            return None
        return write_file(
            self._bench.paths,
            self._project,
            real,
            data,
            command=keeper.about["command"],
            session_id=keeper.about["session_id"],
            call_id=keeper.about["call_id"],
            based_on=old,
            agreed=True,
        )

    def _argv(self, script: str, arguments: Sequence[str]) -> list[str]:
        path = self.path
        if self._rootfs is not None:
            path = self._places.to_inside(path) or path
        return [SHELL, "-c", f"{_START}\n{script}", "sh", path, *arguments]

    def _bubble(self, keeper: Recorder) -> Bubble:
        bench = self._bench
        return Bubble(
            self._project,
            profile=bench.profile(),
            timeout=_PATIENCE,
            environ=bench.environ,
            keeper=keeper,
            capture=1 << 12,
            rootfs=self._rootfs,
        )

    def _plain(self) -> PlainRunner:
        bench = self._bench

        async def was_asked(_question: str) -> bool:
            return True

        return PlainRunner(
            self._project,
            ask=was_asked,
            profile=bench.profile(),
            timeout=_PATIENCE,
            environ=bench.environ,
            capture=1 << 12,
        )


class _Awaited(Said):
    """Sets `ready` when the script has said all before it waits for an answer."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.ready = asyncio.Event()

    async def __call__(self, data: bytes) -> None:
        await super().__call__(data)
        words = self.words
        if words and self.rest_size >= (int(words[1]) if words[0] == "file" else 0):
            self.ready.set()


async def _finish(
    running: asyncio.Future[Result], writer: int, new: bytes, closing: contextlib.ExitStack
) -> Result:
    with closing:
        if new:
            await asyncio.to_thread(_write, writer, new)
    return await running


def _check(result: Result, said: Said) -> None:
    if result.stop is not None:
        raise OllmSandboxError(N_("It was ended: {why}"), why=Sentence(result.stop.value))
    if result.exit_code != 0 or not said.words:
        ended = Sentence(N_("it ended with {status}"), status=result.exit_code)
        why = harmless(result.stderr.text).strip() or ended
        raise OllmSandboxError(N_("ERROR: {what}"), what=why)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    # A script that ends early says why itself.
    with contextlib.suppress(BrokenPipeError):
        while view:
            view = view[os.write(descriptor, view) :]


def _stage(folder: str, data: bytes) -> str:
    import tempfile

    os.makedirs(folder, 0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="edit-", dir=folder)
    with open(descriptor, "wb") as file:
        file.write(data)
    return name
