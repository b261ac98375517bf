# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar of the tour above the composer: Next after each idea, and what to do at its end."""

from __future__ import annotations

from gi.repository import Gtk

from ...i18n import _
from ..widgets.labels import name_buttons
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox


class TourBar(Gtk.Box):
    __gtype_name__ = "OllmTourBar"

    __gsignals__ = signals({"next": (), "open-project": (), "connect-model": (), "remove": ()})

    def __init__(self) -> None:
        super().__init__(spacing=12, visible=False)
        self.add_css_class("queue-bar")
        self._label = Gtk.Label(
            xalign=0, hexpand=True, wrap=True, css_classes=["caption", "dim-label"]
        )
        self.append(self._label)
        self.next_button = self._button(_("_Next"), "next")
        self.next_button.add_css_class("suggested-action")
        self.append(self.next_button)
        self._end = WrapBox()
        self._end.set_hexpand(True)
        for label, name in (
            (_("_Remove the Sample"), "remove"),
            (_("_Open a Project"), "open-project"),
            (_("Connect a _Model"), "connect-model"),
        ):
            self._end.add_group([self._button(label, name)])
        self.append(self._end)
        name_buttons(self)

    def show_stop(self, number: int, most: int) -> None:
        """Show the Next button at this stop."""
        self._label.set_label(_("Tour: {number} of {most}").format(number=number, most=most))
        self._show(is_end=False)
        self.next_button.grab_focus()

    def show_end(self) -> None:
        self._show(is_end=True)

    def _show(self, *, is_end: bool) -> None:
        self._label.set_visible(not is_end)
        self.next_button.set_visible(not is_end)
        self._end.set_visible(is_end)
        self.set_visible(True)

    def _button(self, label: str, name: str) -> Gtk.Button:
        button = Gtk.Button(label=label, use_underline=True, valign=Gtk.Align.CENTER)
        forward(button, "clicked", self, name)
        return button
