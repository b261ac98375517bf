# SPDX-License-Identifier: GPL-3.0-or-later
"""The model's to-do list, in the card of the call that set it."""

from __future__ import annotations

from collections.abc import Sequence

from gi.repository import Gtk

from ...i18n import _
from ...text.visible import visible_line
from ...tools.todo import TodoState, TodoStep
from ..widgets.labels import decorative_icon, set_accessible_name, without_hyphens, wrap_label


class TodoList(Gtk.Box):
    __gtype_name__ = "OllmTodoList"

    def __init__(self, steps: Sequence[TodoStep]) -> None:
        super().__init__(
            orientation=Gtk.Orientation.VERTICAL,
            spacing=6,
            accessible_role=Gtk.AccessibleRole.LIST,
        )
        set_accessible_name(self, _("Plan"))
        for step in steps:
            self.append(_row(step))


def _row(step: TodoStep) -> Gtk.Widget:
    state = TodoState(step.state)
    text = visible_line(step.text)
    icon, said = {
        TodoState.PENDING: ("checkbox-symbolic", _("To do: {step}")),
        TodoState.DOING: ("media-playback-start-symbolic", _("In progress: {step}")),
        TodoState.DONE: ("checkbox-checked-symbolic", _("Done: {step}")),
    }[state]
    image = decorative_icon(icon)
    image.set_valign(Gtk.Align.START)
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
    row.update_property([Gtk.AccessibleProperty.LABEL], [said.format(step=text)])
    row.append(image)
    row.append(label)
    return row
