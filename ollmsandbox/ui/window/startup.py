# SPDX-License-Identifier: GPL-3.0-or-later
"""What the first picture can do without is loaded after it, so that nothing waits for it later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module

from gi.repository import Gdk, GLib, Gtk

# Plain Python; and what makes classes of widgets, which the main thread has to do.
_BESIDE = (
    "markdown_it",
    "requests",
    "yaml",
    "ollmsandbox.tools.context",
    "ollmsandbox.chat.conversation",
)
_HERE = (
    "sessions.open_session",
    "markdown.code_block",
    "chat.row",
    "chat.tool_card",
    "changes.page",
)
# Milliseconds. A window that nobody sees is not drawn.
_AT_THE_LATEST = 1000
_PAUSE = 0.05


def after_first_frame(window: Gtk.Window, do: Callable[[], object]) -> None:
    """Once."""
    handlers: list[tuple[Gdk.FrameClock, int]] = []
    done: list[bool] = []

    def begin(*_args: object) -> bool:
        for clock, handler in handlers:
            clock.disconnect(handler)
        handlers.clear()
        if not done:
            done.append(True)
            do()
        return GLib.SOURCE_REMOVE

    def realized(shown: Gtk.Widget) -> None:
        clock = shown.get_frame_clock()
        if clock is not None and not done:
            handlers.append((clock, clock.connect("after-paint", begin)))

    window.connect("realize", realized)
    GLib.timeout_add(_AT_THE_LATEST, begin)


async def load_rest() -> None:
    for name in _BESIDE:
        await asyncio.to_thread(import_module, name)
    for name in _HERE:
        import_module(f"ollmsandbox.ui.{name}")
        await asyncio.sleep(_PAUSE)
    from ..markdown.code_block import CodeBlock, warm_up
    from ..terminal.view import TerminalView

    # The first of a kind takes several times as long as any other: styles, fonts and colours are
    # read for it.
    for kind in (CodeBlock, TerminalView):
        kind().measure(Gtk.Orientation.HORIZONTAL, -1)
        await asyncio.sleep(_PAUSE)
    warm_up()
