# SPDX-License-Identifier: GPL-3.0-or-later
"""The model's to-do list, in the card of the call that set it and in a bar above the composer."""

from __future__ import annotations

from collections.abc import Sequence

from gi.repository import GObject, Gtk

from ...i18n import _
from ...text.visible import visible_line
from ...tools.todo import TodoState, TodoStep, count_done
from ..widgets.labels import (
    decorative_icon,
    one_line,
    set_accessible_name,
    without_hyphens,
    wrap_label,
)


class TodoList(Gtk.Box):
    def __init__(self, steps: Sequence[TodoStep]) -> None:
        super().__init__(
            orientation=Gtk.Orientation.VERTICAL,
            spacing=6,
            accessible_role=Gtk.AccessibleRole.LIST,
        )
        set_accessible_name(self, _("Plan"))
        for step in steps:
            self.append(_row(step))


class _StepScroller(Gtk.ScrolledWindow):
    """Scrolls the steps, and asks for as much height as they need, up to a limit.

    GTK's own class measures them as if their lines did not wrap.
    """

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(self, orientation: Gtk.Orientation, for_size: int) -> tuple[int, int, int, int]:
        child = self.get_child()
        if child is None:
            return 0, 0, -1, -1
        if orientation is Gtk.Orientation.HORIZONTAL:
            return (*child.measure(orientation, -1)[:2], -1, -1)
        wanted = min(160, child.measure(orientation, for_size)[1])
        return min(wanted, 46), wanted, -1, -1


class TodoBar(Gtk.Expander):
    """Shows how far the plan is, in one line that opens to the whole list."""

    def __init__(self) -> None:
        super().__init__(visible=False)
        self._steps: tuple[TodoStep, ...] = ()
        self._label = one_line()
        self.set_label_widget(self._label)
        self._list = _StepScroller(hscrollbar_policy=Gtk.PolicyType.NEVER)
        # Else the Tab key leads into it while it is folded.
        self.bind_property("expanded", self._list, "visible", GObject.BindingFlags.SYNC_CREATE)
        self.set_child(self._list)
        self.add_css_class("todo-bar")
        set_accessible_name(self, _("Plan"))

    def show_steps(self, steps: tuple[TodoStep, ...], *, is_busy: bool) -> None:
        """Show the steps, unless all of them are done and nothing goes on."""
        done = count_done(steps)
        self.set_visible(bool(steps) and (is_busy or done < len(steps)))
        if steps == self._steps:
            return
        self._steps = steps
        doing = [visible_line(step.text) for step in steps if step.state == TodoState.DOING.value]
        # Translators: the model's plan: how many of its steps are done, and the one in progress.
        text = (
            _("Plan: {done} of {count} done") if not doing else _("Plan: {done} of {count}: {step}")
        )
        text = text.format(done=done, count=len(steps), step=doing[0] if doing else "")
        self._label.set_label(text)
        self.update_property([Gtk.AccessibleProperty.LABEL], [text])
        self._list.set_child(TodoList(steps))


def _row(step: TodoStep) -> Gtk.Widget:
    state = TodoState(step.state)
    text = visible_line(step.text)
    icon, said = {
        TodoState.PENDING: ("checkbox-symbolic", _("To do: {step}")),
        TodoState.DOING: ("media-playback-start-symbolic", _("In progress: {step}")),
        TodoState.DONE: ("checkbox-checked-symbolic", _("Done: {step}")),
    }[state]
    image = decorative_icon(icon, valign=Gtk.Align.START)
    label = Gtk.Label(label=text, xalign=0, hexpand=True)
    wrap_label(label, text)
    without_hyphens(label)
    if state is TodoState.DOING:
        image.add_css_class("accent")
        label.add_css_class("current-step")
    elif state is TodoState.DONE:
        image.add_css_class("success")
        label.add_css_class("dim-label")
    row = Gtk.Box(spacing=9, accessible_role=Gtk.AccessibleRole.LIST_ITEM)
    set_accessible_name(row, said.format(step=text))
    row.append(image)
    row.append(label)
    return row
