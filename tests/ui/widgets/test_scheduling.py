# SPDX-License-Identifier: GPL-3.0-or-later
"""Widgets made in pieces: each piece is drawn before the next is made."""

from __future__ import annotations

from typing import cast

from gi.repository import Gtk

from ollmsandbox.ui.widgets.scheduling import FrameByFrame


class Shown:
    """A widget as far as frames go; its clock is itself."""

    def __init__(self, *, mapped: bool = True) -> None:
        self.drawn = 0
        self._mapped = mapped

    def get_mapped(self) -> bool:
        return self._mapped

    def get_frame_clock(self) -> Shown:
        return self

    def get_frame_counter(self) -> int:
        return self.drawn


def waits(frames: FrameByFrame, shown: Shown) -> bool:
    return frames.waits(cast(Gtk.Widget, shown))


def test_the_next_piece_is_made_after_the_last_one_was_drawn() -> None:
    frames, shown = FrameByFrame(), Shown()
    assert not waits(frames, shown)
    assert waits(frames, shown)
    assert waits(frames, shown)
    shown.drawn += 1
    assert not waits(frames, shown)
    assert waits(frames, shown)


def test_a_hidden_window_does_not_block_the_next_piece() -> None:
    frames, shown = FrameByFrame(), Shown()
    turns = [waits(frames, shown) for _turn in range(100)]
    assert not turns[0]
    assert 5 < turns.count(False) < 20


def test_a_hidden_widget_waits_for_no_frame() -> None:
    frames, hidden = FrameByFrame(), Shown(mapped=False)
    assert not any(waits(frames, hidden) for _turn in range(10))
