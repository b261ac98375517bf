# SPDX-License-Identifier: GPL-3.0-or-later
"""Show real widgets on a screen. The fixture `screen` in conftest.py provides one."""

from __future__ import annotations

import gc
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TypeVar

from gi.repository import Adw, Gdk, Gio, GLib, Gtk
from support.timing import PATIENCE

from ollmsandbox.ui.resources import stylesheet
from ollmsandbox.ui.settings import find_schema
from ollmsandbox.ui.widgets.weak import weak_reference

W = TypeVar("W", bound=Gtk.Widget)


class Screen:
    """Shows widgets in windows, and collects errors and warnings meanwhile."""

    def __init__(self) -> None:
        if Gdk.Display.get_default() is None:
            raise RuntimeError("There is no display: run this with build-aux/with-display.")
        Adw.init()
        self._troubles: list[str] = []
        self._log = _Collector(self._troubles)

    def __enter__(self) -> Screen:
        _listeners.append(self._troubles)
        self._hooks = sys.excepthook, sys.unraisablehook
        sys.excepthook = self._exception
        sys.unraisablehook = self._unraisable
        logging.getLogger("asyncio").addHandler(self._log)
        _load_style()
        return self

    def __exit__(self, *_: object) -> None:
        for window in Gtk.Window.list_toplevels():
            if isinstance(window, Gtk.Window):
                window.destroy()
        # What was left for the next turn of the loop may fail too; a bound, since some of it may
        # come back for ever.
        for _turn in range(100):
            if not GLib.MainContext.default().iteration(False):
                break
        gc.collect()
        # In memory, and the same for all tests of a process.
        preferences = Gio.Settings.new_full(find_schema(), None, None)
        for key in preferences.props.settings_schema.list_keys():
            preferences.reset(key)
        sys.excepthook, sys.unraisablehook = self._hooks
        logging.getLogger("asyncio").removeHandler(self._log)
        _listeners.remove(self._troubles)

    def show(self, widget: Gtk.Widget, width: int = 600, height: int = 400) -> Gtk.Window:
        """Show a widget in a window of its own, or a window itself, and wait until it is mapped."""
        window = widget if isinstance(widget, Gtk.Window) else Gtk.Window(child=widget)
        window.set_default_size(width, height)
        window.present()
        spin_until(lambda: window.get_mapped() and window.get_width() > 0)
        return window

    def resize(self, window: Gtk.Window, width: int, height: int) -> None:
        window.set_default_size(width, height)
        spin_until(lambda: (window.get_width(), window.get_height()) == (width, height))

    def expect_trouble(self, part: str) -> None:
        """Remove an expected report from the list."""
        found = [trouble for trouble in self._troubles if part in trouble]
        assert found, f"nothing like {part!r} was reported, but: {self._troubles}"
        for trouble in found:
            self._troubles.remove(trouble)

    def check(self) -> None:
        assert not self._troubles, "\n".join(self._troubles)

    def _exception(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        self._troubles.append("".join(traceback.format_exception(kind, error, where)))

    def _unraisable(self, seen: sys.UnraisableHookArgs) -> None:
        self._troubles.append(f"in {seen.object!r}: {seen.exc_value!r}")


class _Collector(logging.Handler):
    """Collects the log: a task that fails and is never awaited reports only there."""

    def __init__(self, troubles: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._troubles = troubles

    def emit(self, record: logging.LogRecord) -> None:
        self._troubles.append(self.format(record))


def spin(seconds: float = 0.0) -> None:
    """Run the main loop for a while, for effects that no condition can show."""
    end = time.monotonic() + seconds
    while GLib.MainContext.default().iteration(False) or time.monotonic() < end:
        if time.monotonic() > end + 1:
            break


def spin_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Run the main loop until the condition is true. It is checked at every turn."""
    end = time.monotonic() + seconds
    # Without it a loop with nothing to do would never ask again.
    wake = GLib.timeout_add(10, lambda: GLib.SOURCE_CONTINUE)
    try:
        while not condition():
            if time.monotonic() > end:
                troubles = "\n".join(trouble for found in _listeners for trouble in found)
                raise AssertionError(f"not within {seconds} s: {_name(condition)}\n{troubles}")
            GLib.MainContext.default().iteration(True)
    finally:
        GLib.source_remove(wake)


def draw_frames(widget: Gtk.Widget, count: int = 2) -> None:
    """Wait until the widget was laid out and drawn `count` times."""
    clock = widget.get_frame_clock()
    assert clock is not None, "it is not on a screen"
    drawn: list[object] = []
    handler = clock.connect("after-paint", drawn.append)
    try:
        while len(drawn) < count:
            before = len(drawn)
            widget.queue_draw()
            spin_until(partial(_longer, drawn, before))
    finally:
        clock.disconnect(handler)


def _longer(things: list[object], before: int) -> bool:
    return len(things) > before


def children(widget: Gtk.Widget) -> Iterator[Gtk.Widget]:
    child = widget.get_first_child()
    while child is not None:
        yield child
        child = child.get_next_sibling()


def descendants(widget: Gtk.Widget) -> Iterator[Gtk.Widget]:
    """Yield everything below a widget, in reading order."""
    # Not by calling itself: each widget would pass through as many calls as there are around it.
    waiting = [*children(widget)][::-1]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += [*children(found)][::-1]


def all_of(widget: Gtk.Widget, kind: type[W]) -> list[W]:
    return [found for found in descendants(widget) if isinstance(found, kind)]


def one_of(widget: Gtk.Widget, kind: type[W], text: str | None = None) -> W:
    """Return the only widget of its kind, or the only one with this text in it."""
    found = [one for one in all_of(widget, kind) if text is None or text in texts(one)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__} with {text!r}"
    return found[0]


def popover_of(button: Gtk.MenuButton) -> Gtk.Popover:
    popover = button.get_popover()
    assert popover is not None
    return popover


def watch_freeing(*things: object) -> Callable[[], bool]:
    """Return a function that collects garbage and tells whether all things are freed. It watches
    the GObject itself: PyGObject's wrapper around it may be freed earlier."""
    assert things
    references = [weak_reference(one) for one in things]

    def are_freed() -> bool:
        gc.collect()
        return all(one() is None for one in references)

    return are_freed


def texts(widget: Gtk.Widget) -> list[str]:
    """Return all visible text: labels, text views, entries. The widget itself may not be on a
    screen."""
    found, waiting = [], [widget]
    while waiting:
        one = waiting.pop()
        if one is widget or (one.get_visible() and one.get_child_visible()):
            found.append(_own_text(one))
            waiting += [*children(one)][::-1]
    return [text for text in found if text]


def _own_text(widget: Gtk.Widget) -> str:
    if isinstance(widget, Gtk.Label):
        return widget.get_text()
    if isinstance(widget, Gtk.TextView):
        buffer = widget.get_buffer()
        return buffer.get_text(buffer.get_start_iter(), buffer.get_end_iter(), True)
    # An entry has a Gtk.Text in it, which would say the same once more.
    return widget.get_text() if isinstance(widget, Gtk.Text) else ""


def _name(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(condition)


# --- what GLib has to say: its writer can be set once in a process -------------------------------

_listeners: list[list[str]] = []
_SERIOUS = (
    GLib.LogLevelFlags.LEVEL_ERROR
    | GLib.LogLevelFlags.LEVEL_CRITICAL
    | GLib.LogLevelFlags.LEVEL_WARNING
)
# Libadwaita 1.7 shows what dims the chat under a pane only while it lays it out, each time the pane
# comes back: for one frame it has no place.
_NOT_OURS = "Trying to snapshot AdwGizmo"


def _write(
    level: GLib.LogLevelFlags, fields: list[GLib.LogField], *_: object
) -> GLib.LogWriterOutput:
    if level & _SERIOUS:
        text = GLib.log_writer_format_fields(level, fields, False)
        print(text, file=sys.stderr)
        if _NOT_OURS not in text:
            for troubles in _listeners:
                troubles.append(text)
    return GLib.LogWriterOutput.HANDLED


GLib.log_set_writer_func(_write)

_styled: list[Gtk.CssProvider] = []


def _load_style() -> None:
    """Load the style sheet as the application does, so that a mistake in it is found."""
    display = Gdk.Display.get_default()
    if _styled or display is None:
        return
    provider = Gtk.CssProvider()
    provider.load_from_path(stylesheet())
    Gtk.StyleContext.add_provider_for_display(
        display, provider, Gtk.STYLE_PROVIDER_PRIORITY_APPLICATION
    )
    _styled.append(provider)
