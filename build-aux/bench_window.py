# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long the window's main loop is blocked under load, and what opening it costs.

An empty window runs at the same time: if it is blocked as well, the machine is too busy.

`build-aux/bench window opening` measures only what opening costs, `latency` only the main loop, and
`build-aux/bench window files tokens` only these parts of it: tokens, output, files, messages.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "build-aux")]

import figures  # noqa: E402  where the path says it is
from bench_latency import BareWindow, MainLoopProbe, open_bare  # noqa: E402
from figures import Took  # noqa: E402

if TYPE_CHECKING:
    from ollmsandbox.chat.conversation import Conversation
    from ollmsandbox.chat.sessions import SessionFactory
    from ollmsandbox.ui.application import Application
    from ollmsandbox.ui.window.window import Window

WORDS = (
    "A paragraph of some length, with **strong** words, `code` and [a link](https://example.org).",
    "## A heading\n\n- one\n- two\n- three",
    "```python\ndef total(basket, prices):\n    return sum(prices[item] for item in basket)\n```",
    "| name | price |\n|---|---|\n| apple | 3 |\n| pear | 4 |",
)
TOKENS, MEGABYTES, FILES, MESSAGES = 20_000, 200, 20_000, 2_000
PATIENCE = 300.0


def memory(kind: str = "Pss") -> float:
    """Megabytes that are this process's own, after all that can be given back was; by default with
    its share of what several have, which is more when one of the others ends."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    text = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(rf"^{kind}: +(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


async def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not {what}")
        await asyncio.sleep(0.02)


def numbers(count: int) -> str:
    """Messages of every kind of text."""
    return "\n\n".join(WORDS[i % len(WORDS)] for i in range(count))


# --- the pieces ----------------------------------------------------------------------------------


def talking(count: int) -> object:
    from ollmsandbox.chat.messages import Message
    from ollmsandbox.chat.providers.base import FinishPiece, Piece, TextPiece

    tokens = re.findall(r"\s*\S+|\s+$", numbers(count // 12 + 1))
    while len(tokens) < count:
        tokens += tokens

    class Talker:
        """As a quick server does: some words at a time."""

        name = "talker"
        longest_answer = None
        sees_pictures = False

        def sent(self, messages: Sequence[Message]) -> list[Message]:
            return list(messages)

        async def context_length(self) -> int | None:
            return None

        async def reply(self, messages: Sequence[object], tools: object) -> AsyncIterator[Piece]:
            for start in range(0, count, 10):
                for token in tokens[start : start + 10]:
                    yield TextPiece(token)
                await asyncio.sleep(0.005)
            yield FinishPiece()

    return Talker()


def long_session(factory: SessionFactory, project: str) -> str:
    from ollmsandbox.chat.messages import Message, Role
    from ollmsandbox.chat.storage.history import new_session_id
    from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage

    id_, now = new_session_id(), time.time()
    factory.history.create(SessionInfo(id_, "A long one", project, "m", "c", now, now))
    with factory.manager.store.transaction():
        for number in range(MESSAGES):
            role = Role.ASSISTANT if number % 2 else Role.USER
            message = Message(role, numbers(4) if number % 2 else f"Question {number}", at=now)
            factory.history.write(id_, StoredMessage(number, message))
    return id_


async def play(application: Application, parts: Sequence[str]) -> None:
    window = application.window
    assert window is not None
    await until(lambda: window.is_ready, "ready")
    project = Path(os.environ["HOME"]) / "project"
    project.mkdir()
    application.controller.open_project(str(project))
    await until(lambda: window.chat.session is not None, "a session")
    bare_window = BareWindow()
    await asyncio.sleep(4)
    with MainLoopProbe(bare_window) as probe:
        await asyncio.sleep(3)
    probe.print_result("nothing happens")
    for name in parts or PARTS:
        await PARTS[name](application, window, bare_window)
    bare_window.end()
    application.controller.close_at_once()


async def listen(_application: Application, window: Window, bare_window: BareWindow) -> None:
    conversation = _conversation(window)
    conversation.use_model(talking(TOKENS), "bench")  # type: ignore[arg-type]
    with MainLoopProbe(bare_window) as probe:
        await conversation.say("Talk to me.")
        await asyncio.sleep(1)
    probe.print_result(f"{TOKENS} tokens stream in")


async def print_much(_application: Application, window: Window, bare_window: BareWindow) -> None:
    with MainLoopProbe(bare_window) as probe:
        await _conversation(window).run(
            f"yes 'a line of output as long as lines of output often are' | head -c {MEGABYTES}M"
        )
        await asyncio.sleep(1)
    probe.print_result(f"a command prints {MEGABYTES} MB")


async def change_files(_application: Application, window: Window, bare_window: BareWindow) -> None:
    with MainLoopProbe(bare_window) as probe:
        await _conversation(window).run(
            f"mkdir d; i=0; while [ $i -lt {FILES} ]; do echo $i > d/$i; i=$((i+1)); done"
        )
        await asyncio.sleep(1)
    probe.print_result(f"a command changes {FILES} files")
    with MainLoopProbe(bare_window) as probe:
        window.flap.set_reveal_flap(True)
        window.changes.refresh()
        await until(lambda: window.changes.count > FILES, "shown")
        await asyncio.sleep(3)
    probe.print_result(f"{FILES} changed files are shown")
    with MainLoopProbe(bare_window) as probe:
        window.changes.act_on_runs("undo", (window.changes._found.runs[0].id,))
        await until(lambda: not window.changes.progress.is_working, "undone")
        await asyncio.sleep(3)
    assert not (Path(os.environ["HOME"]) / "project" / "d").exists()
    probe.print_result(f"{FILES} changed files are undone")
    window.flap.set_reveal_flap(False)


async def open_long(application: Application, window: Window, bare_window: BareWindow) -> None:
    id_ = await asyncio.to_thread(long_session, application.factory, "")
    # Once before: what is loaded for the first session stays, and is not what is asked about.
    for measured in (False, True):
        await asyncio.sleep(1)
        before = memory("Anonymous")
        with MainLoopProbe(bare_window) as probe:
            await application.controller.side.open_session(id_)
            await until(lambda: window.chat.session and window.chat.session.id == id_, "open")
            await asyncio.sleep(2)
        if measured:
            probe.print_result(f"a session of {MESSAGES} messages opens")
        opened = memory("Anonymous")
        application.controller.show(None)
        await application.sessions.close(id_)
        await asyncio.sleep(2)
        after = memory("Anonymous")
    print(f"memory with that session: {opened:.0f} MB", file=sys.stderr)
    figures.row("window, after a long session", "MB", after, "before it", before, 1.1)


def _conversation(window: Window) -> Conversation:
    assert window.chat.session is not None
    return window.chat.session.conversation


PARTS: dict[str, Callable[[Application, Window, BareWindow], Awaitable[None]]] = {
    "tokens": listen,
    "output": print_much,
    "files": change_files,
    "messages": open_long,
}


# --- what it costs to open ------------------------------------------------------------------------


def report_first_frame(window: object, is_ready: Callable[[], bool]) -> None:
    """Prints when it was drawn, and what it takes when it has come to rest."""
    from gi.repository import GLib, Gtk

    assert isinstance(window, Gtk.Window)
    began = float(os.environ["BENCH_BEGAN"])

    def drawn(clock: object) -> None:
        if times:
            return
        times.append((time.time() - began, time.process_time()))

    def rest() -> bool:
        if not is_ready():
            return True
        print(*times[0], memory(), flush=True)
        os._exit(0)

    times: list[tuple[float, float]] = []

    def realized(_window: object) -> None:
        clock = window.get_frame_clock()
        assert clock is not None
        clock.connect("after-paint", drawn)
        GLib.timeout_add(3000, rest)

    if window.get_realized():
        realized(window)
    else:
        window.connect("realize", realized)


def open_program() -> None:
    # As it does itself, before it loads anything.
    gc.disable()
    from ollmsandbox.i18n import set_language
    from ollmsandbox.loop import run_application
    from ollmsandbox.ui.application import Application
    from ollmsandbox.ui.window.garbage import keep_smooth

    set_language()
    application = Application(dict(os.environ))
    keep_smooth(application.count_frames)

    def activated(_application: object) -> None:
        window = application.window
        assert window is not None
        report_first_frame(window, lambda: window.is_ready)

    application.connect_after("activate", activated)
    run_application(application, sys.argv[:1])


def compare_opening(rounds: int) -> None:
    found: dict[str, list[list[float]]] = {"bare": [], "program": []}
    for _round in range(rounds + 1):
        for which, results in found.items():
            done = subprocess.run(
                [sys.executable, "-I", __file__, which],
                env={**os.environ, "BENCH_BEGAN": str(time.time())},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            results.append([float(word) for word in done.stdout.split()])
    # The first time of each, all is read from the disk.
    medians = {
        which: [statistics.median(one[i] for one in results[1:]) for i in range(3)]
        for which, results in found.items()
    }
    (wall, cpu, size), (bare_wall, bare_cpu, bare_size) = medians["program"], medians["bare"]
    drawn, bare_drawn = Took(wall, cpu), Took(bare_wall, bare_cpu)
    figures.rows("window, first frame", drawn, "a bare window", bare_drawn, wall=1.7, cpu=1.7)
    figures.row("window, idle memory", "MB", size, "a bare window", bare_size, 1.5)


def run_loop(parts: Sequence[str]) -> None:
    from ollmsandbox.i18n import set_language
    from ollmsandbox.loop import run_application
    from ollmsandbox.ui.application import Application
    from ollmsandbox.ui.window.garbage import keep_smooth

    set_language()
    application = Application(dict(os.environ))
    keep_smooth(application.count_frames)

    async def guarded() -> None:
        try:
            await play(application, parts)
        finally:
            # Closed in order it is gone by now.
            application.quit()

    kept: list[asyncio.Task[None]] = []
    application.connect_after(
        "activate", lambda _app: kept.append(asyncio.ensure_future(guarded()))
    )
    run_application(application, sys.argv[:1])
    # Tells what went wrong.
    kept[0].result()


def main() -> int:
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    if which == "bare":
        open_bare(lambda window: report_first_frame(window, lambda: True))
    elif which == "program":
        open_program()
    elif which == "loop":
        run_loop(sys.argv[2:])
    elif "BENCH_DISPLAY" not in os.environ:
        # Everything once more, with a display and a home folder that nobody else has.
        with tempfile.TemporaryDirectory(prefix="bench") as home:
            environ = {**os.environ, "HOME": home, "BENCH_DISPLAY": "yes"}
            command = [str(ROOT / "build-aux" / "with-display"), sys.executable, "-I", __file__]
            return subprocess.run([*command, *sys.argv[1:]], env=environ, check=False).returncode
    else:
        parts = sys.argv[1:]
        if unknown := set(parts) - {"opening", "latency", *PARTS}:
            print(f"Unknown: {' '.join(unknown)}. See {__file__}.", file=sys.stderr)
            return 2
        if not parts or "opening" in parts:
            compare_opening(3)
        if parts != ["opening"]:
            loop = ["loop", *(part for part in parts if part in PARTS)]
            return subprocess.run([sys.executable, "-I", __file__, *loop], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
