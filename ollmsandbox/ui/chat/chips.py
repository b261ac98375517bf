# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures that go with the next message, above the text field."""

from __future__ import annotations

from gi.repository import Adw, Gtk, Pango

from ...i18n import _
from ...tools.base import Picture
from ..widgets.boxes import hbox, icon_button
from ..widgets.labels import set_accessible_name
from ..widgets.signals import signals
from ..widgets.weak import weakly

# Pixels.
_SIZE = 40
_NAME = 16


class PictureChips(Gtk.FlowBox):
    __gtype_name__ = "OllmPictureChips"

    # One was added or removed.
    __gsignals__ = signals({"changed": ()})

    def __init__(self) -> None:
        super().__init__()
        # Not as arguments: in a template, the widget exists already, and they would be ignored.
        self.set_selection_mode(Gtk.SelectionMode.NONE)
        self.set_column_spacing(6)
        self.set_row_spacing(6)
        self.set_max_children_per_line(20)
        self.add_css_class("picture-chips")
        set_accessible_name(self, _("Attached pictures"))
        # In their order.
        self._chips: list[tuple[Picture, Gtk.FlowBoxChild]] = []

    @property
    def attached(self) -> tuple[Picture, ...]:
        return tuple(picture for picture, _chip in self._chips)

    @attached.setter
    def attached(self, attached: tuple[Picture, ...]) -> None:
        if attached == self.attached:
            return
        for picture, chip in tuple(self._chips):
            if not any(one is picture for one in attached):
                self._chips.remove((picture, chip))
                self.remove(chip)
        # Those that stay are not decoded again.
        for place, picture in enumerate(attached):
            if place >= len(self._chips) or self._chips[place][0] is not picture:
                chip = Gtk.FlowBoxChild(child=self._chip(picture), focusable=False)
                set_accessible_name(chip, picture.name)
                self._chips.insert(place, (picture, chip))
                self.insert(chip, place)
        self.set_visible(bool(attached))
        self.emit("changed")

    def _chip(self, picture: Picture) -> Gtk.Widget:
        # Imported here: the first frame needs none.
        from ..markdown.picture import DecodedPicture

        name = picture.name
        words = _("Remove {name}").format(name=name)
        button = icon_button("window-close-symbolic", words, "flat", "circular", "chip-button")
        button.connect("clicked", weakly(self._on_remove), picture)
        # It has its place before it is decoded. The chip has a name, so the picture needs none.
        place = Adw.Bin(
            child=DecodedPicture(picture.data, "", _SIZE, _SIZE),
            width_request=_SIZE,
            height_request=_SIZE,
            valign=Gtk.Align.CENTER,
        )
        label = Gtk.Label(
            label=name,
            ellipsize=Pango.EllipsizeMode.MIDDLE,
            max_width_chars=_NAME,
            xalign=0,
            css_classes=["caption"],
        )
        chip = hbox(place, label, button, spacing=6)
        chip.add_css_class("picture-chip")
        chip.set_tooltip_text(name)
        chip.set_halign(Gtk.Align.START)
        return chip

    def _on_remove(self, _button: Gtk.Button, picture: Picture) -> None:
        self.attached = tuple(one for one in self.attached if one is not picture)
