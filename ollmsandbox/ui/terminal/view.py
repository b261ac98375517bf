# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a command's output while it runs, with little work in each frame however much there is."""

from __future__ import annotations

import time
from collections import deque

from gi.repository import Adw, Gdk, GObject, Gtk, Pango

from ...i18n import ngettext
from ..resources import template
from ..widgets import readable
from ..widgets.keyboard import add_shortcut
from ..widgets.labels import name_buttons
from ..widgets.scheduling import Timer
from ..widgets.scroller import NestedScroller, lower_when_wider
from ..widgets.signals import SignalHandlers, follow_theme, forward, signals
from ..widgets.weak import weakly
from .find import Finder
from .screen import MOST_LINES, Screen
from .style import Tags, theme

# Bytes that are left after a cut: about as much as the screen keeps.
_KEPT = 1 << 18
_MOST = 1 << 20
# Bytes. The slowest kind of output, nothing but line ends, takes some milliseconds for this much.
_PIECE = 1 << 11


# Seconds for which kinetic scrolling may go on.
_AFTER = 1.0


class Follower:
    """Keeps a scrolled window at its end while text is added, until the user scrolls up.

    A text view scrolls by itself while it measures its lines. So only a change right after an
    action of the user counts as the user's wish."""

    def __init__(self, scroller: Gtk.ScrolledWindow) -> None:
        self.is_following = True
        self._user_until = 0.0
        self._is_moving = False
        self._due = Timer(self._go_to_end)
        self._adjustment = adjustment = scroller.get_vadjustment()
        self._last = adjustment.get_value()
        adjustment.connect("value-changed", weakly(self._scrolled))
        adjustment.connect("changed", weakly(self._resized))
        wheel = Gtk.EventControllerScroll.new(Gtk.EventControllerScrollFlags.VERTICAL)
        for controller, signal in (
            (wheel, "scroll"),
            (Gtk.GestureDrag(), "drag-update"),
            (Gtk.EventControllerKey(), "key-pressed"),
        ):
            controller.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
            controller.connect(signal, weakly(self._acted))
            scroller.add_controller(controller)

    def _acted(self, *_args: object) -> bool:
        self._user_until = time.monotonic() + _AFTER
        return Gdk.EVENT_PROPAGATE

    def _scrolled(self, adjustment: Gtk.Adjustment) -> None:
        value, last = adjustment.get_value(), self._last
        self._last = value
        if self._is_moving:
            return
        is_at_end = value >= adjustment.get_upper() - adjustment.get_page_size() - 1
        if time.monotonic() < self._user_until:
            if is_at_end:
                self.is_following = True
            elif value < last:
                self.is_following = False
        elif not is_at_end:
            self._resized(adjustment)

    def _resized(self, _adjustment: Gtk.Adjustment) -> None:
        # Not now: this may be called during layout.
        if self.is_following:
            self._due.start()

    def _go_to_end(self) -> None:
        if self.is_following:
            self._is_moving = True
            end = self._adjustment.get_upper() - self._adjustment.get_page_size()
            self._adjustment.set_value(end)
            self._is_moving = False


class Backlog:
    """Output that is not shown yet. Keeps only the end of too much, and counts the rest."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._waiting: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._size += len(data)
        if self._size > _MOST:
            self._cut()

    def work(self, until: float) -> None:
        """Pass on what there is, but no longer than `until` on the monotonic clock."""
        while self._waiting:
            data = self._waiting.popleft()
            for start in range(0, len(data), _PIECE):
                if time.monotonic() >= until:
                    self._waiting.appendleft(data[start:])
                    return
                piece = data[start : start + _PIECE]
                self._screen.feed(piece)
                self._size -= len(piece)

    def _cut(self) -> None:
        """Drop all but the end, and begin with a whole line if there is one."""
        lines = 0
        # Chunks that are dropped whole are only counted: joining them first would take longer.
        while self._size - len(self._waiting[0]) >= _KEPT:
            piece = self._waiting.popleft()
            self._size -= len(piece)
            lines += piece.count(b"\n")
        data = b"".join(self._waiting)
        rest = data[-_KEPT:]
        if rest.count(b"\n") > MOST_LINES:
            rest = rest[len(rest.rsplit(b"\n", MOST_LINES)[0]) + 1 :]
        else:
            rest = rest[rest.find(b"\n") + 1 :]
        self._screen.skip(lines + data.count(b"\n", 0, len(data) - len(rest)))
        self._waiting = deque([rest] if rest else [])
        self._size = len(rest)


# Seconds for new output in each update; the rest of a frame is for drawing and everything else.
_BUDGET = 0.004
# Milliseconds between two updates; nobody reads faster.
_PAUSE = 33
# New lines for each update. Each has to be laid out, and may have hundreds of styles.
_LINES, _RUNS = 60, 150
_COMPACT, _HIGHEST = 12, 30


@Gtk.Template(filename=template("terminal/view"))
class TerminalView(Gtk.Box):
    __gtype_name__ = "OllmTerminalView"

    # The user wants all of the output, including what is only on disk.
    __gsignals__ = signals({"open-all": ()})

    earlier = Gtk.Template.Child()
    earlier_label = Gtk.Template.Child()
    open_all = Gtk.Template.Child()
    search_bar = Gtk.Template.Child()
    search_entry = Gtk.Template.Child()
    search_count = Gtk.Template.Child()
    search_previous = Gtk.Template.Child()
    search_next = Gtk.Template.Child()
    scroller: NestedScroller = Gtk.Template.Child()
    text_view = Gtk.Template.Child()

    def __init__(self, most_lines: int = MOST_LINES) -> None:
        super().__init__()
        name_buttons(self)
        self._most_lines = most_lines
        self._buffer = self.text_view.get_buffer()
        # An undo history would keep every piece a second time.
        self._buffer.set_enable_undo(False)
        self._tags = Tags(self._buffer)
        self._finder = Finder(self._buffer)
        self._compact = True
        self._line_height = 0.0
        self._timer = Timer(self._update)
        self._next_search = 0.0
        self._follower = Follower(self.scroller)
        lower_when_wider(self.scroller)
        self._theme = SignalHandlers()
        self._restart()
        forward(self.open_all, "clicked", self, "open-all")
        self.search_bar.connect_entry(self.search_entry)
        self.search_bar.connect("notify::search-mode-enabled", weakly(self._search_toggled))
        self.search_entry.connect("search-changed", weakly(self._search))
        for signal, by in (("next-match", 1), ("previous-match", -1), ("activate", 1)):
            self.search_entry.connect(signal, weakly(self._step), by)
        self.search_next.connect("clicked", weakly(self._step), 1)
        self.search_previous.connect("clicked", weakly(self._step), -1)
        add_shortcut(self, "<Control>f", self.find)

    # --- for the owner -------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Add output, which is interpreted later."""
        self._backlog.add(data)
        self._wake()

    def finish(self) -> None:
        """Show the rest: the command has ended."""
        self._is_finished = True
        self._wake()

    def clear(self) -> None:
        self._buffer.set_text("")
        self._restart()
        self._show_earlier()

    @property
    def is_up_to_date(self) -> bool:
        return not self._is_behind

    @property
    def text(self) -> str:
        """The text in the view."""
        return self._buffer.get_text(*self._buffer.get_bounds(), True)

    @property
    def is_following(self) -> bool:
        return self._follower.is_following

    def copy_all(self) -> None:
        self.get_clipboard().set(self.text)

    def find(self) -> None:
        self.search_bar.set_search_mode(True)
        self.search_entry.grab_focus()

    @GObject.Property(type=bool, default=True)
    def compact(self) -> bool:
        """Whether the view is only as high as a few lines."""
        return self._compact

    @compact.setter  # type: ignore[no-redef]
    def compact(self, value: bool) -> None:
        self._compact = value
        self._set_height()

    # --- updates -------------------------------------------------------------------------------

    def _restart(self) -> None:
        self._screen = Screen(self._most_lines)
        self._backlog = Backlog(self._screen)
        self._first = self._end = self._changed = 0
        self._is_finished = False
        self._is_behind = False

    def _wake(self) -> None:
        self._is_behind = True
        # Not in a frame callback: a text view that changes there learns its height only while it is
        # drawn, too late for its scrollbar. A hidden view can wait, too.
        if self.get_mapped():
            self._timer.start(_PAUSE)

    def _update(self) -> bool:
        """Update the view, and return whether there is more to do."""
        now = time.monotonic()
        self._backlog.work(now + _BUDGET)
        if self._is_finished and not self._backlog:
            self._screen.finish()
            self._is_finished = False
        self._changed = min(self._changed, self._screen.take_changed())
        self._remove_old()
        self._add_new()
        self._show_earlier()
        is_behind = bool(self._backlog) or self._end < self._screen.end or self._is_finished
        if not is_behind and self._first > self._screen.dropped:
            self._add_above()
            is_behind = True
        # Only now and then while it grows, and once more at the end.
        if self._finder.is_active and (not is_behind or now >= self._next_search):
            self._search_again()
        self._is_behind = is_behind
        return is_behind and self.get_mapped()

    def _remove_old(self) -> None:
        end, dropped = self._screen.end, self._screen.dropped
        is_far_behind = end - self._end > _LINES and self._follower.is_following
        if dropped >= self._end or is_far_behind:
            # Lines that would scroll past unseen are inserted later, above the end.
            self._buffer.set_text("")
            self._first = self._end = max(dropped, end - self._most_in_sight())
            self._changed = self._end
            return
        if dropped > self._first:
            _found, start = self._buffer.get_iter_at_line(dropped - self._first)
            self._buffer.delete(self._buffer.get_start_iter(), start)
            self._first = dropped
        changed = max(self._changed, self._first)
        if changed < self._end:
            _found, start = self._buffer.get_iter_at_line(changed - self._first)
            if changed > self._first:
                start.backward_char()
            self._buffer.delete(start, self._buffer.get_end_iter())
            self._end = changed
        self._changed = self._end

    def _add_new(self) -> None:
        last = self._screen.end
        if self._end < last:
            start = self._buffer.get_char_count()
            self._end = self._insert(start, self._end, min(last, self._end + _LINES))
            self._changed = self._end

    def _add_above(self) -> None:
        start = max(self._screen.dropped, self._first - _LINES)
        # All of them, or they would not join the lines below.
        self._insert(0, start, self._first, is_whole=True)
        self._first = start

    def _insert(self, offset: int, start: int, end: int, *, is_whole: bool = False) -> int:
        """Insert lines of the screen into the buffer, and return the next line to insert."""
        pieces: list[str] = []
        marks: list[tuple[int, int, tuple[Gtk.TextTag, ...]]] = []
        begin = offset
        number = start
        while number < end and (is_whole or len(marks) < _RUNS):
            if number > self._first:
                pieces.append("\n")
                offset += 1
            for run in self._screen.line(number):
                pieces.append(run.text)
                tags = self._tags.of(run.style)
                if tags:
                    marks.append((offset, offset + len(run.text), tags))
                offset += len(run.text)
            if is_whole:
                pieces.append("\n")
                offset += 1
            number += 1
        at = self._buffer.get_iter_at_offset
        self._buffer.insert(at(begin), "".join(pieces))
        self._buffer.apply_tag(self._tags.base, at(begin), at(offset))
        for first, last, tags in marks:
            bounds = at(first), at(last)
            for tag in tags:
                self._buffer.apply_tag(tag, *bounds)
        return number

    def _show_earlier(self) -> None:
        count = self._screen.dropped
        if self.earlier.get_visible() != (count > 0):
            self.earlier.set_visible(count > 0)
        if count:
            words = ngettext(
                "{count} earlier line is on disk", "{count} earlier lines are on disk", count
            )
            self.earlier_label.set_label(words.format(count=readable.number(count)))

    # --- height and scrolling ------------------------------------------------------------------

    def _set_height(self) -> None:
        metrics = self.text_view.get_pango_context().get_metrics(None, None)
        self._line_height = (metrics.get_ascent() + metrics.get_descent()) / Pango.SCALE
        lines = _COMPACT if self._compact else _HIGHEST
        self.scroller.set_max_content_height(round(self._line_height * lines) + 12)

    def _most_in_sight(self) -> int:
        """Return how many lines fit: laying out more takes time, and they would soon be gone."""
        page = self.scroller.get_vadjustment().get_page_size()
        filled = int(page / self._line_height) + 1 if self._line_height else _LINES
        return min(_LINES, max(_COMPACT if self._compact else _HIGHEST, filled) + 1)

    # --- finding -------------------------------------------------------------------------------

    def _search_toggled(self, bar: Gtk.SearchBar, _property: GObject.ParamSpec) -> None:
        if not bar.get_search_mode():
            self._finder.search("")
            self.search_count.set_label("")
            self.text_view.grab_focus()

    def _search(self, entry: Gtk.SearchEntry) -> None:
        self._finder.search(entry.get_text())
        self._show_found()

    def _step(self, _widget: Gtk.Widget, by: int) -> None:
        self._finder.step(by)
        self._show_found()

    def _search_again(self) -> None:
        self._finder.again()
        self.search_count.set_label(self._finder.position_text)
        self._next_search = time.monotonic() + 0.5

    def _show_found(self) -> None:
        self.search_count.set_label(self._finder.position_text)
        place = self._finder.current
        if place is not None:
            self._follower.is_following = False
            start = self._buffer.get_iter_at_offset(place)
            self.text_view.scroll_to_iter(start, 0.1, False, 0, 0)

    def do_map(self) -> None:
        Gtk.Box.do_map(self)
        self._wake()

    # --- the theme -----------------------------------------------------------------------------

    def do_realize(self) -> None:
        Gtk.Box.do_realize(self)
        self._set_height()
        follow_theme(self._theme, self._theme_changed)

    def do_unrealize(self) -> None:
        self._theme.disconnect()
        Gtk.Box.do_unrealize(self)

    def _theme_changed(self, *_args: object) -> None:
        manager = Adw.StyleManager.get_default()
        self._tags.set_theme(
            theme(dark=manager.get_dark(), high_contrast=manager.get_high_contrast())
        )
