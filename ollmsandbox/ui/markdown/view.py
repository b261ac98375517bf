# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows Markdown, complete or while it is being written.

The part that is still being written is in a text view, because a growing label lays out all of its
text again at each word. Only finished blocks become labels, a few in each turn of the main loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from gi.repository import Adw, GLib, Gtk

from ...i18n import _
from ...text.visible import replace_unshowable
from ..widgets.scheduling import FrameByFrame, Patience, is_late
from ..widgets.signals import signals
from ..widgets.viewport import VisibleColumn
from ..widgets.weak import weakly
from .blocks import build
from .code_block import CodeBlock
from .parse import Block, Code
from .stream import Splitter

# Seconds of work, then milliseconds of pause, in which the main loop draws frames and handles keys.
_SLICE = 0.004
_PAUSE = 6
_TAG = "line-height"
# Pixels.
_SPACING = 12


class MarkdownView(Adw.Bin):
    __gsignals__ = signals(
        {
            # The user clicked a link. The owner decides whether to open it.
            "open-link": (str,),
            # The text is finished, and all of it is shown as widgets.
            "settled": (),
        }
    )

    def __init__(self, text: str = "", *, project: str = "") -> None:
        super().__init__()
        self._project = project
        # Groups of blocks, each a column, and what is being written.
        self._column = VisibleColumn(spacing=_SPACING, waits=True)
        self._column.add_css_class("markdown")
        self.set_child(self._column)
        self._source = 0
        self._patience = Patience()
        self._frames = FrameByFrame()
        self._start()
        self.connect("unrealize", weakly(self.take_down))
        if text:
            self.set_text(text)

    def set_text(self, whole: str) -> None:
        while self._remove_last():
            pass
        self._start()
        self.text = whole
        self._splitter.feed(whole)
        self._finished = True
        # A message that takes no longer is built at once, with its final height.
        if self._work(0.006):
            self._schedule(_PAUSE)

    def append(self, piece: str) -> None:
        self.text += piece
        self._splitter.feed(piece)
        self.is_settled = False
        # Pieces that arrive within this time are shown together.
        self._schedule(30)

    def finish(self) -> None:
        """Show the rest: the text is complete."""
        self._finished = True
        self._schedule(0)

    def take_down(self, *_args: object) -> None:
        """Remove the widgets in steps, because freeing hundreds of them takes time."""
        if self._source:
            GLib.source_remove(self._source)
        # The view stays alive for as long as that takes.
        self._source = GLib.timeout_add(_PAUSE, self._take_down)

    def _take_down(self) -> bool:
        if self._patience.waits():
            return GLib.SOURCE_CONTINUE
        end = time.monotonic() + _SLICE / 2
        while self._remove_last():
            if is_late() or time.monotonic() >= end:
                return GLib.SOURCE_CONTINUE
        self._source = 0
        return GLib.SOURCE_REMOVE

    def _remove_last(self) -> bool:
        """Remove the last block, and return whether there was one."""
        last = self._column.get_last_child()
        if isinstance(last, VisibleColumn) and (block := last.get_last_child()) is not None:
            last.remove(block)
        elif last is not None:
            self._column.remove(last)
        return last is not None

    def _start(self) -> None:
        self.text = ""
        self._splitter = Splitter()
        self._blocks: deque[Block] = deque()
        self._building: Iterator[None] | None = None
        self._finished = False
        self.is_settled = True
        self._tail: Gtk.TextView | None = None
        self._code: CodeBlock | None = None
        self._group: VisibleColumn | None = None
        self._room = 0

    def _schedule(self, delay: int) -> None:
        if not self._source:
            self._source = GLib.timeout_add(delay, weakly(self._turn))

    def _turn(self) -> bool:
        self._source = 0
        # Many views may have waited for their turn at the same time.
        is_early = self._patience.waits() or self._frames.waits(self)
        if is_early or self._work(_SLICE / 4 if is_late() else _SLICE):
            self._schedule(_PAUSE)
        return GLib.SOURCE_REMOVE

    def _work(self, seconds: float) -> bool:
        """Build widgets for this long, and return whether there is more to do."""
        self.is_settled = False
        end = time.monotonic() + seconds
        while self._step():
            if time.monotonic() >= end:
                return True
        self._show_tail()
        if self._finished:
            if self._tail is not None:
                self._column.remove(self._tail)
                self._tail = None
            self.is_settled = True
            self.emit("settled")
        return False

    def _step(self) -> bool:
        if self._building is not None:
            if next(self._building, self) is self:
                self._building = None
            return True
        if self._blocks:
            self._building = self._build(self._blocks.popleft())
            return True
        blocks = self._splitter.take()
        if not blocks and self._finished:
            blocks = self._splitter.finish()
        self._blocks.extend(blocks)
        return bool(blocks)

    def _build(self, block: Block) -> Iterator[None]:
        if self._code is not None:
            code, self._code = self._code, None
            if isinstance(block, Code) and code.text == block.text:
                return iter(())  # shown already while it was written
            assert self._group is not None  # the code is in it, because nothing was added since
            self._group.remove(code)
        return build(block, self._add, weakly(self._link_clicked), project=self._project)

    def _add(self, widget: Gtk.Widget) -> None:
        if self._group is None or not self._room:
            # Most texts are one group, and the column around it waits.
            is_second = self._group is not None
            self._group = VisibleColumn(spacing=_SPACING, waits=is_second)
            # Each word that arrives lays out a column again, but no group that stays as it is.
            self._room = 30
            self._group.insert_before(self._column, self._tail)
        self._group.append(widget)
        self._room -= 1

    def _show_tail(self) -> None:
        if (open_code := self._splitter.open_code()) is not None:
            self._show_code(*open_code)
            text = ""
        else:
            text = replace_unshowable(self._splitter.tail).strip("\n")
        if self._tail is None:
            if not text:
                return
            self._tail = self._add_tail()
        self._tail.set_visible(bool(text))
        buffer = self._tail.get_buffer()
        start, end = buffer.get_bounds()
        shown = buffer.get_text(start, end, include_hidden_chars=True)
        if text.startswith(shown):
            buffer.insert(end, text[len(shown) :])
        else:
            buffer.set_text(text)
        buffer.apply_tag_by_name(_TAG, *buffer.get_bounds())

    def _add_tail(self) -> Gtk.TextView:
        tail = Gtk.TextView(
            editable=False,
            cursor_visible=False,
            accepts_tab=False,
            wrap_mode=Gtk.WrapMode.WORD_CHAR,
        )
        tail.add_css_class("markdown-tail")
        # As in the style sheet, which does not reach text views.
        tail.get_buffer().create_tag(_TAG, line_height=1.2)
        tail.update_property([Gtk.AccessibleProperty.LABEL], [_("Answer in progress")])
        self._column.append(tail)
        # A text view wraps for the width it had last. Before it had one, that is one pixel, and for
        # a moment it would be several pages high.
        if width := self._column.get_width():
            tail.measure(Gtk.Orientation.HORIZONTAL, -1)
            tail.allocate(width, tail.measure(Gtk.Orientation.VERTICAL, width)[1], -1, None)
        return tail

    def _show_code(self, language: str, code: str) -> None:
        if self._code is None:
            self._code = CodeBlock(replace_unshowable(language))
            self._add(self._code)
        # The last line may become the closing fence.
        lines, _newline, last = code.rpartition("\n")
        if last.strip(" `~"):
            lines = code
        self._code.add_text(replace_unshowable(lines[len(self._code.text) :]), follow=True)

    def _link_clicked(self, _label: Gtk.Label, address: str) -> bool:
        self.emit("open-link", address)
        return True
