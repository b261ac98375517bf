# SPDX-License-Identifier: GPL-3.0-or-later
"""Load modules that the first frame does not need after it, before anything needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from importlib import import_module

from gi.repository import Gdk, GLib, Gtk

# Modules that a thread can import, and modules with widget classes, for the main thread. Not
# `requests` and `yaml`, which take 6 MB, and which a thread loads as well when they are needed.
_IN_THREAD = (
    "markdown_it",
    "ollmsandbox.project.records.folder",
    "ollmsandbox.tools.context",
    "ollmsandbox.chat.conversation",
)
_IN_MAIN_THREAD = (
    "sessions.open_session",
    "markdown.code_block",
    "chat.group",
    "chat.row",
    "chat.tool_card",
    "changes.page",
)
_PAUSE = 0.05


def after_first_frame(window: Gtk.Window, do: Callable[[], object]) -> None:
    """Call `do` once, after the window was drawn for the first time."""
    is_done = False

    def begin(*_args: object) -> bool:
        nonlocal is_done
        if not is_done:
            is_done = True
            do()
        return GLib.SOURCE_REMOVE

    def realized(shown: Gtk.Widget) -> None:
        clock = shown.get_frame_clock()
        if clock is not None and not is_done:
            handler = clock.connect("after-paint", lambda _clock: painted(_clock, handler))

    def painted(clock: Gdk.FrameClock, handler: int) -> None:
        clock.disconnect(handler)
        # The frame is shown only when this handler has returned.
        GLib.idle_add(begin)

    window.connect("realize", realized)
    # A hidden window is not drawn. On a slow computer, a frame that is due comes first.
    GLib.timeout_add(3000, begin, priority=GLib.PRIORITY_LOW)  # type: ignore[call-arg]


async def load_rest() -> None:
    for name in _IN_THREAD:
        await asyncio.to_thread(import_module, name)
    for name in _IN_MAIN_THREAD:
        import_module(f"ollmsandbox.ui.{name}")
        await asyncio.sleep(_PAUSE)
    from ..markdown.code_block import CodeBlock
    from ..terminal.view import TerminalView

    # The first widget of a class takes several times as long as others: GTK reads styles, fonts
    # and colours for it.
    for kind in (CodeBlock, TerminalView):
        kind().measure(Gtk.Orientation.HORIZONTAL, -1)
        await asyncio.sleep(_PAUSE)


@cache
def load_languages() -> None:
    """Load what highlights code, once a chat is shown: it takes 5 MB."""
    from ..markdown.code_block import warm_up

    warm_up()
