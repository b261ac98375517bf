# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from gi.repository import Gtk
from support.screen import Screen, draw_frames, spin_until

from ollmsandbox.ui.widgets.scroller import NestedScroller, lower_when_wider


def scrollers(inner: NestedScroller) -> list[Gtk.EventControllerScroll]:
    """Return the controllers that get the wheel, in order; ours is the first."""
    found = inner.observe_controllers()
    return [
        controller
        for index in range(found.get_n_items())
        if isinstance(controller := found.get_item(index), Gtk.EventControllerScroll)
    ]


def keeps(inner: NestedScroller, down: float) -> bool:
    """Return whether GTK's own controller will handle such a scroll event."""
    first, *rest = scrollers(inner)
    assert not first.emit("scroll", 0, down)
    vertical = Gtk.EventControllerScrollFlags.VERTICAL
    (answer,) = {bool(controller.get_flags() & vertical) for controller in rest}
    horizontal = Gtk.EventControllerScrollFlags.HORIZONTAL
    assert all(controller.get_flags() & horizontal for controller in rest)
    return answer


def nested(screen: Screen, policy: Gtk.PolicyType) -> NestedScroller:
    inner = NestedScroller()
    inner.set_policy(Gtk.PolicyType.AUTOMATIC, policy)
    inner.set_child(Gtk.Label(label="a line that is longer than the window is wide\n" * 100))
    window = screen.show(Gtk.ScrolledWindow(child=inner), 200, 200)
    draw_frames(window)
    return inner


def test_a_scroller_without_overflow_passes_the_wheel_on(screen: Screen) -> None:
    inner = nested(screen, Gtk.PolicyType.NEVER)
    assert not keeps(inner, 1)
    assert not keeps(inner, -1)


def test_a_scroller_at_its_edge_passes_the_wheel_on(screen: Screen) -> None:
    inner = nested(screen, Gtk.PolicyType.AUTOMATIC)
    adjustment = inner.get_vadjustment()
    spin_until(lambda: adjustment.get_upper() > adjustment.get_page_size() > 0)
    assert keeps(inner, 1)
    assert not keeps(inner, -1)
    adjustment.set_value(100)
    assert keeps(inner, 1)
    assert keeps(inner, -1)
    adjustment.set_value(adjustment.get_upper())
    assert not keeps(inner, 1)
    assert keeps(inner, -1)


def test_wrapped_text_becomes_lower_when_it_becomes_wider(screen: Screen) -> None:
    scroller = Gtk.ScrolledWindow(
        hscrollbar_policy=Gtk.PolicyType.NEVER, propagate_natural_height=True
    )
    text = Gtk.TextView(wrap_mode=Gtk.WrapMode.WORD)
    text.get_buffer().set_text("some words " * 30)
    scroller.set_child(text)
    lower_when_wider(scroller)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(scroller)
    window = screen.show(box, 200, 500)
    draw_frames(window)
    # The lines may have been wrapped after the height was measured.
    text.queue_resize()
    spin_until(lambda: scroller.get_height() > 100)
    screen.resize(window, 900, 500)
    spin_until(lambda: scroller.get_height() < 100)
