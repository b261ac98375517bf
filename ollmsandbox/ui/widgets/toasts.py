# SPDX-License-Identifier: GPL-3.0-or-later
"""Toasts that show long texts completely."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Adw, Gdk, GLib, Gtk, Pango

from ...text.visible import visible_words
from .labels import children_of, show_ellipsized_as_tooltip, wrapped
from .scheduling import Timer
from .weak import weakly

# Pixels around a toast; and milliseconds until it has a size.
_GAP, _FRAME = 6, 50


class Toasts:
    """Shows texts for a while, and each of them soon: a toast that is waited for goes early."""

    def __init__(self, add: Callable[[Adw.Toast], object], room: ToastRoom | None = None) -> None:
        self._add = add
        self._room = room
        # What is shown or queued, in this order.
        self._queue: dict[str, Adw.Toast] = {}
        self._timer = Timer(self._on_turn)

    def tell(self, text: str, button: str = "", do: Callable[[], object] | None = None) -> None:
        """Show a text, unless it is shown already, and a button with this label if there is
        something to do."""
        # It may contain a file name, which may contain anything.
        shown = visible_words(text.replace("\n", " "))
        if shown in self._queue:
            return
        # Seconds for a slow reader.
        toast = Adw.Toast(timeout=round(4 + len(shown) * 0.06))
        # More does not fit into one line of a narrow window. GTK would cut the end off, which says
        # what to do.
        if len(shown) > 36:
            toast.set_custom_title(_lines(shown, button))
        else:
            toast.set_title(GLib.markup_escape_text(shown))
        if do is not None:
            toast.set_button_label(button)
            toast.connect("button-clicked", lambda _toast: do())
        self._queue[shown] = toast
        toast.connect("dismissed", weakly(self._on_dismissed), shown)
        self._add(toast)
        if self._room is not None:
            self._room.make()
        self._hurry()

    def _hurry(self) -> None:
        if len(self._queue) > 1:
            self._timer.start(1500)

    def _on_turn(self) -> None:
        if len(self._queue) > 1:
            next(iter(self._queue.values())).dismiss()

    def _on_dismissed(self, _toast: Adw.Toast, text: str) -> None:
        self._queue.pop(text, None)
        # The next one appears now, and has its own time.
        self._timer.stop()
        self._hurry()
        if not self._queue and self._room is not None:
            self._room.end()


class ToastRoom:
    """Keeps toasts off what is at the bottom of a widget: it ends above them while they are shown.
    They are above everything that is below the widget."""

    def __init__(self, overlay: Adw.ToastOverlay, above: Gtk.Widget) -> None:
        self._overlay = overlay
        self._above = above
        self._style = Gtk.CssProvider()
        self._is_needed = False

    def make(self) -> None:
        self._is_needed = True
        # Later: the widget of a toast gets its size with the next frame.
        GLib.timeout_add(_FRAME, weakly(self._make))

    def end(self) -> None:
        self._is_needed = False
        # A window that is destroyed dismisses its toasts, too.
        if not self._overlay.in_destruction():
            self._above.set_margin_bottom(0)

    def _make(self) -> bool:
        toast = next(reversed(_toasts_of(self._overlay)), None)
        place = self._above.translate_coordinates(self._overlay, 0, 0)
        if not self._is_needed or toast is None or place is None or not self._above.get_mapped():
            return GLib.SOURCE_REMOVE
        bottom = place[1] + self._above.get_height() + self._above.get_margin_bottom()
        below = max(_GAP, round(self._overlay.get_height() - bottom) + _GAP)
        css = f".main-toasts toast {{ margin-bottom: {below}px; }}"
        self._style.load_from_data(css.encode())
        context = toast.get_style_context()
        context.add_provider(self._style, Gtk.STYLE_PROVIDER_PRIORITY_APPLICATION + 1)
        # Else newer GTKs may lay it out with the new margin in the height it had before.
        toast.queue_resize()
        self._above.set_margin_bottom(toast.get_height() + 2 * _GAP)
        return GLib.SOURCE_REMOVE


def dismiss_when_shown(overlay: Adw.ToastOverlay, toast: Adw.Toast) -> None:
    """Dismiss a toast as soon as none is appearing. libadwaita 1.2 reads freed memory if a toast
    has gone before the animation that shows it has ended."""

    def dismiss() -> None:
        toast.disconnect(handler)
        toast.dismiss()

    waiting = when_shown(overlay, dismiss)
    # It may go by itself before that.
    handler = toast.connect("dismissed", lambda _toast: overlay.remove_tick_callback(waiting))


def when_shown(overlay: Adw.ToastOverlay, act: Callable[[], object]) -> int:
    """Call a function as soon as no toast is appearing; return the id of the tick callback."""
    shown: list[Gtk.Widget] = []
    since = 0

    def on_frame(_overlay: Gtk.Widget, clock: Gdk.FrameClock) -> bool:
        nonlocal shown, since
        now = clock.get_frame_time()
        found = _toasts_of(overlay)
        if not since or found != shown:
            shown, since = found, now
        # Libadwaita takes 300 ms to show a toast, and 500 ms to replace one.
        elif now - since > 600_000:
            act()
            return GLib.SOURCE_REMOVE
        return GLib.SOURCE_CONTINUE

    return overlay.add_tick_callback(on_frame)


def _toasts_of(overlay: Adw.ToastOverlay) -> list[Gtk.Widget]:
    """Return the widgets of toasts, the newest last: all children but the overlay's own."""
    return [child for child in children_of(overlay) if child is not overlay.get_child()]


def _lines(text: str, button: str) -> Gtk.Widget:
    label = wrapped(text, "heading")
    # About the width of lines in the chat.
    label.set_max_width_chars(64)
    # An error may be very long, and must not enlarge the lowest window.
    label.set_lines(10)
    label.set_ellipsize(Pango.EllipsizeMode.END)
    show_ellipsized_as_tooltip(label)
    # Beside its text, a toast needs room for padding, margins and a cross.
    if not button:
        return _Paragraph(label, 130)
    beside = Gtk.Button(label=button, use_underline=True)
    return _Paragraph(label, 106 + beside.measure(Gtk.Orientation.HORIZONTAL, -1)[1])


class _Paragraph(Adw.Bin):
    """Wraps a label to the width of the overlay. A toast asks for the height without a width, and a
    label would answer for more width than there is."""

    def __init__(self, label: Gtk.Label, around: int) -> None:
        super().__init__(child=label)
        self._label = label
        self._around = around
        self._again = Timer(self._measure_again)
        # A layout manager would be asked instead of do_measure.
        self.set_layout_manager(None)

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(self, orientation: Gtk.Orientation, for_size: int) -> tuple[int, int, int, int]:
        least, natural, *_lines = self._label.measure(Gtk.Orientation.HORIZONTAL, -1)
        overlay = self.get_ancestor(Adw.ToastOverlay)
        room = overlay.get_width() - self._around if overlay is not None else 0
        if overlay is not None and not overlay.get_width():
            # In a window that has no size yet. It gets one with this layout.
            self._again.start(_FRAME)
        natural = max(least, min(natural, room))
        if orientation is Gtk.Orientation.HORIZONTAL:
            return least, natural, -1, -1
        width = for_size if for_size >= least else natural
        height = self._label.measure(Gtk.Orientation.VERTICAL, width)[1]
        # Newer GTKs rely on a minimum height for any width.
        lowest = self._label.measure(Gtk.Orientation.VERTICAL, -1)[0] if for_size < 0 else height
        return min(lowest, height), height, -1, -1

    def _measure_again(self) -> None:
        self.queue_resize()

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        self._label.allocate(width, height, baseline, None)
